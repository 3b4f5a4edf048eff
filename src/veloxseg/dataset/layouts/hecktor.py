"""HECKTOR 2022: `imagesTr/<centre>-<nnn>__{CT,PT}.nii.gz`, `labelsTr/<centre>-<nnn>.nii.gz` (1 GTVp, 2 GTVn).

CT and PT come on different grids, the labels on the CT's. `imagesTs` of the archive has no public labels.
"""

from pathlib import Path

from veloxseg.dataset.dataset import Case, Dataset, safe_name
from veloxseg.image.formats import images_by_case

__all__ = ["read", "recognises"]

MODALITIES = {"ct": "CT", "pet": "PT"}


def recognises(path: Path) -> bool:
    return path.is_dir() and any(True for _ in path.glob("imagesTr/*__PT.nii.gz"))


def read(path: Path) -> Dataset:
    cases = []
    for images, labels, split in (("imagesTr", "labelsTr", None), ("imagesTs", "labelsTs", "test")):
        listed, labelled = (images_by_case(p) if p.is_dir() else {} for p in (path / images, path / labels))
        for name in sorted({stem.split("__")[0] for stem in listed if "__" in stem}):
            files = {m: listed.get(f"{name}__{suffix}") for m, suffix in MODALITIES.items()}
            label = labelled.get(name, path / labels / f"{name}.nii.gz")
            cases.append(
                Case(
                    name=safe_name(name, path / images),
                    patient=name,
                    images={m: file for m, file in files.items() if file is not None},
                    label=label if split is None or label.is_file() else None,
                    split=split,
                )
            )
    return Dataset(
        name=path.name,
        layout="hecktor",
        root=path,
        modalities=tuple(MODALITIES),
        labels={"background": 0, "GTVp": 1, "GTVn": 2},
        cases=tuple(cases),
    )
