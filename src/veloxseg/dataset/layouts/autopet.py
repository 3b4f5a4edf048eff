"""AutoPET-II (TCIA, NIfTI): `PETCT_<id>/<study>/{CT,CTres,PET,SUV,SEG}.nii.gz`.

`CTres` is the CT that the authors resampled to the PET grid, on which `SEG` is drawn; `SUV` is the PET in body-weight
SUV. These are used; where `CTres` is missing, the original `CT` is, and is resampled by us.
A patient folder with several studies is one patient: its studies never come apart in a split.
"""

from pathlib import Path

from veloxseg.dataset.dataset import Case, Dataset, safe_name
from veloxseg.image.formats import images_by_case

__all__ = ["read", "recognises"]


def recognises(path: Path) -> bool:
    return path.is_dir() and any(True for _ in _root(path).glob("PETCT_*/*/SUV.nii.gz"))


def read(path: Path) -> Dataset:
    root = _root(path)
    cases = []
    for patient in sorted(root.glob("PETCT_*")):
        studies = sorted(folder for folder in patient.iterdir() if folder.is_dir())
        for study in studies:
            name = safe_name(f"{patient.name}_{study.name}" if len(studies) > 1 else patient.name, study)
            listed = images_by_case(study)
            found = {"ct": listed.get("CTres", listed.get("CT")), "pet": listed.get("SUV")}
            images = {modality: file for modality, file in found.items() if file is not None}
            if images:
                label = listed.get("SEG", study / "SEG.nii.gz")
                cases.append(Case(name=name, patient=patient.name, images=images, label=label))
    return Dataset(
        name=root.name,
        layout="autopet",
        root=root,
        modalities=("ct", "pet"),
        labels={"background": 0, "lesion": 1},
        cases=tuple(cases),
    )


def _root(path: Path) -> Path:
    inner = path / "FDG-PET-CT-Lesions"
    return inner if inner.is_dir() else path
