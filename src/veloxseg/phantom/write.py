"""Writes synthetic data sets as real files, in the folders and names that public data sets unpack to.

The layouts with PET/CT keep PET on its own, coarser grid where the public archive does. Arrays are stored in the
order of most scanners (left, posterior, superior), so that a reader that ignores the affine is found out.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from veloxseg.console import progress
from veloxseg.errors import ConfigError, OutputError
from veloxseg.files import atomic_path, writable_folder, write_json
from veloxseg.image.volume import Geometry, Volume
from veloxseg.phantom import brain, petct
from veloxseg.phantom.scans import Scans
from veloxseg.workers import Failure, run_all

__all__ = ["LAYOUTS", "default_size", "write_dataset"]

SCANNERS = {"brats": brain.HOME, "brats2016": brain.OLD}  # layouts of brain MR; all others are PET/CT
FIRST_OLD_INDEX = 2_000_000  # the patients of brats2016 are others than those of brats with the same seed
FIRST_TEST_INDEX = 1_000_000  # unseen cases stay the same, whatever the number of training cases
BECQUEREL_PER_SUV = 4200.0  # per millilitre: an injected dose of 315 MBq in 75 kg
NOTE = "Synthetic data made by `veloxseg phantom`: no patient, no medical meaning.\n"
NECROTIC, NON_ENHANCING, ENHANCING = 1, 3, 4  # labels of BraTS; 3 in 2016 only
NAMES_2016 = {"t1": "T1", "t1ce": "T1c", "t2": "T2", "flair": "Flair"}
SMALLEST = 16
WORTH_A_TEAM = 8  # cases; starting processes takes as long as two or three of them
LARGE = 256**3  # voxels: beyond, a case takes gigabytes, and one at a time is enough


def write_dataset(
    folder: str | Path,
    layout: str,
    cases: int,
    seed: int = 0,
    size: tuple[int, int, int] | None = None,
    test_cases: int = 0,
    workers: int = 1,
) -> Path:
    """Writes `cases` synthetic patients, and `test_cases` unseen ones (`imagesTs`, `labelsTs`).

    The files do not depend on the number of `workers` (processes).
    """
    size = size or default_size(layout)
    _check(layout, cases, size, test_cases)
    folder = writable_folder(folder)
    if any(folder.iterdir()):
        raise OutputError(f"{folder} is not empty; choose a new folder, so that data sets do not mix")
    with atomic_path(folder / "SYNTHETIC.txt") as temporary:
        temporary.write_text(NOTE, encoding="utf-8")
    jobs = [(index, "Tr") for index in range(cases)]
    jobs += [(FIRST_TEST_INDEX + index, "Ts") for index in range(test_cases)]
    work = partial(_make, folder=folder, layout=layout, seed=seed, size=size)
    team = workers if len(jobs) >= WORTH_A_TEAM and math.prod(size) <= LARGE else 1
    for _, result in progress(run_all(work, jobs, team), "synthetic cases", len(jobs)):
        if isinstance(result, Failure):
            raise (OutputError if result.expected else RuntimeError)(result.message)
    if layout == "nnunet":
        write_json(folder / "dataset.json", _nnunet_description(cases))
    return folder


def _make(job: tuple[int, str], folder: Path, layout: str, seed: int, size: tuple[int, int, int]) -> None:
    index, part = job
    LAYOUTS[layout](folder, index % FIRST_TEST_INDEX + 1, part, _scans(layout, seed, index, size))


def _scans(layout: str, seed: int, index: int, size: tuple[int, int, int]) -> Scans:
    if layout not in SCANNERS:
        return petct.render(petct.draw(seed, index), size)
    first = FIRST_OLD_INDEX if layout == "brats2016" else 0
    return brain.render(brain.draw(seed, first + index), size, SCANNERS[layout])


def default_size(layout: str) -> tuple[int, int, int]:
    return SCANNERS[layout].size if layout in SCANNERS else petct.SIZE


def _check(layout: str, cases: int, size: tuple[int, int, int], test_cases: int) -> None:
    if layout not in LAYOUTS:
        raise ConfigError(f"layout {layout!r} is unknown; choose one of {', '.join(LAYOUTS)}")
    if cases < 1 or test_cases < 0:
        raise ConfigError(f"{cases} cases and {test_cases} test cases were asked for; at least 1 and 0 are needed")
    if min(size) < SMALLEST or max(size) > 1024:
        raise ConfigError(f"size {size} is out of range; give {SMALLEST} to 1024 voxels per axis")
    if test_cases and layout not in ("nnunet", "hecktor"):
        raise ConfigError(f"layout {layout} has no test folder; make a second data set with another --seed instead")


def _nnunet(folder: Path, number: int, part: str, scans: Scans) -> None:
    name = f"{'synthetic' if part == 'Tr' else 'unseen'}_{number:04d}"
    _save(scans.images["ct"], folder / f"images{part}" / f"{name}_0000.nii.gz")
    _save(scans.images["pet"], folder / f"images{part}" / f"{name}_0001.nii.gz")
    _save(_any_lesion(scans.label), folder / f"labels{part}" / f"{name}.nii.gz")


def _nnunet_description(cases: int) -> dict[str, object]:
    return {
        "name": "SyntheticPETCT",
        "description": "Synthetic whole-body PET/CT with lesions. PET (SUV) lies on a coarser grid than CT, as "
        "scanners give it; `veloxseg prepare` resamples it, nnU-Net itself would need it resampled first.",
        "channel_names": {"0": "CT", "1": "PET"},
        "labels": {"background": 0, "lesion": 1},
        "numTraining": cases,
        "file_ending": ".nii.gz",
        "licence": "synthetic, public domain",
    }


def _hecktor(folder: Path, number: int, part: str, scans: Scans) -> None:
    name = f"{'SYN' if part == 'Tr' else 'NEW'}-{number:03d}"
    _save(scans.images["ct"], folder / f"images{part}" / f"{name}__CT.nii.gz")
    _save(scans.images["pet"], folder / f"images{part}" / f"{name}__PT.nii.gz")
    _save(scans.label, folder / f"labels{part}" / f"{name}.nii.gz")


def _autopet(folder: Path, number: int, part: str, scans: Scans) -> None:
    """CT on its own grid; all else, the label too, on the grid of PET."""
    patient = folder / "FDG-PET-CT-Lesions" / f"PETCT_{number:010x}"
    study = patient / f"01-01-2000-NA-Synthetic PET-CT-{number:05d}"
    ct, suv = scans.images["ct"], scans.images["pet"]
    label = _any_lesion(scans.label)
    on_pet = _resample(label.array.astype(np.float32), label.geometry, suv.geometry, outside=0)
    resampled = np.rint(_resample(ct.array.astype(np.float32), ct.geometry, suv.geometry, outside=-1024))
    _save(ct, study / "CT.nii.gz")
    _save(Volume(array=resampled.astype(np.int16), geometry=suv.geometry), study / "CTres.nii.gz")
    _save(Volume(array=suv.array * np.float32(BECQUEREL_PER_SUV), geometry=suv.geometry), study / "PET.nii.gz")
    _save(suv, study / "SUV.nii.gz")
    _save(Volume(array=(on_pet >= 0.5).astype(np.uint8), geometry=suv.geometry), study / "SEG.nii.gz")


def _brats(folder: Path, number: int, part: str, scans: Scans) -> None:
    name = f"BraTS2021_{number:05d}"
    for sequence, volume in scans.images.items():
        _save(volume, folder / name / f"{name}_{sequence}.nii.gz")
    _save(scans.label, folder / name / f"{name}_seg.nii.gz")


def _brats2016(folder: Path, number: int, part: str, scans: Scans) -> None:
    """BraTS 2016 from TCIA: folders by grade, MetaImage, four labels."""
    from veloxseg.image.writer import write

    grade = "HGG" if (scans.label.array == ENHANCING).any() else "LGG"
    case = folder / grade / f"brats_tcia_pat{number:03d}_0001"
    volumes = {f"VSD.Brain.XX.O.MR_{NAMES_2016[name]}": volume for name, volume in scans.images.items()}
    volumes["VSD.Brain_3more.XX.XX.OT"] = _label_2016(scans.label)
    for place, (name, volume) in enumerate(volumes.items()):
        whole = f"{name}.{10 * number + place + 35000}"
        (case / whole).mkdir(parents=True)
        write(_as_scanners_store(volume), case / whole / f"{whole}.mha")


def _label_2016(label: Volume) -> Volume:
    """With 3, the solid core that does not enhance: what lies below the rim, or the whole core where there is none."""
    from scipy.ndimage import binary_dilation

    core, rim = label.array == NECROTIC, label.array == ENHANCING
    array = label.array.copy()
    array[core & (binary_dilation(rim) if rim.any() else True)] = NON_ENHANCING
    return Volume(array=array, geometry=label.geometry)


LAYOUTS: dict[str, Callable[[Path, int, str, Scans], None]] = {
    "nnunet": _nnunet,
    "brats": _brats,
    "brats2016": _brats2016,
    "autopet": _autopet,
    "hecktor": _hecktor,
}


def _any_lesion(label: Volume) -> Volume:
    return Volume(array=(label.array > 0).astype(np.uint8), geometry=label.geometry)


def _resample(
    array: npt.NDArray[np.float32], source: Geometry, target: Geometry, outside: float
) -> npt.NDArray[np.float32]:
    """Linear, between grids whose axes are parallel."""
    from scipy.ndimage import affine_transform

    step = np.array(target.spacing) / np.array(source.spacing)
    offset = (np.array(target.origin) - np.array(source.origin)) / np.array(source.spacing)
    return np.asarray(affine_transform(array, step, offset, target.shape, order=1, cval=outside), np.float32)


def _as_scanners_store(volume: Volume) -> Volume:
    """The same volume with its axes towards left, posterior and superior."""
    affine = volume.geometry.affine.copy()
    affine[:3, 3] += affine[:3, :2] @ (np.array(volume.geometry.shape[:2]) - 1)
    affine[:3, :2] *= -1
    array = np.ascontiguousarray(volume.array[::-1, ::-1])
    return Volume(array=array, geometry=Geometry(shape=volume.geometry.shape, affine=affine))


def _save(volume: Volume, path: Path) -> None:
    import nibabel

    path.parent.mkdir(parents=True, exist_ok=True)
    stored = _as_scanners_store(volume)
    affine = stored.geometry.affine
    image = nibabel.Nifti1Image(stored.array, affine)
    image.header.set_xyzt_units("mm")
    image.header["descrip"] = b"synthetic (veloxseg phantom)"
    image.set_sform(affine, code=1)
    image.set_qform(affine, code=1)
    with atomic_path(path) as temporary:
        nibabel.save(image, temporary)
