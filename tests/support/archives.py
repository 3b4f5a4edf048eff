"""The paper's three data sets as they unpack, with tiny scans of a body and a lesion."""

from pathlib import Path

import numpy as np

from support.cases import CT_GRID, PET_GRID, centred, lesion, phantom, save

CT, PET = centred(*CT_GRID), centred(*PET_GRID)


def autopet(folder: Path, cases: int = 3) -> Path:
    for index in range(cases):
        study = folder / "FDG-PET-CT-Lesions" / f"PETCT_{index:04x}" / "study"
        save(study / "CTres.nii.gz", phantom("ct", PET_GRID[0], PET, index), PET)
        save(study / "SUV.nii.gz", phantom("pet", PET_GRID[0], PET, index), PET)
        save(study / "SEG.nii.gz", lesion(PET_GRID[0], PET), PET)
    return folder


def hecktor(folder: Path, cases: int = 3) -> Path:
    """The lower half of the lesion is GTVp, 1, the upper half GTVn, 2."""
    for index in range(cases):
        save(folder / "imagesTr" / f"A-{index:03d}__CT.nii.gz", phantom("ct", CT_GRID[0], CT, index), CT)
        save(folder / "imagesTr" / f"A-{index:03d}__PT.nii.gz", phantom("pet", PET_GRID[0], PET, index), PET)
        label = lesion(CT_GRID[0], CT)
        label[:, :, 9:] *= 2
        save(folder / "labelsTr" / f"A-{index:03d}.nii.gz", label, CT)
    return folder


def brats(folder: Path, cases: int = 3) -> Path:
    shape = (64, 48, 64)
    grid = centred(shape, (1.0, 1.0, 1.0))
    for index in range(cases):
        name = f"BraTS2021_{index:05d}"
        for number, what in enumerate(("t1", "t1ce", "t2", "flair")):
            save(folder / name / f"{name}_{what}.nii.gz", phantom("mr", shape, grid, 4 * index + number), grid)
        label = lesion(shape, grid)
        label[:, :, 27:] *= 2
        label[:, 28:][label[:, 28:] > 0] = 4
        assert set(np.unique(label)) == {0, 1, 2, 4}
        save(folder / name / f"{name}_seg.nii.gz", label, grid)
    return folder


ARCHIVES = {"autopet2": autopet, "hecktor2022": hecktor, "brats2021": brats}
