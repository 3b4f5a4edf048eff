"""BraTS in its three namings; targets are the nested regions WT, TC and ET.

2021        <case>/<case>_{flair,t1,t1ce,t2,seg}.nii.gz                        labels 1, 2, 4 (ET is 4)
2023 on     <case>/<case>-{t2f,t1n,t1c,t2w,seg}.nii.gz                         labels 1, 2, 3 (ET is 3)
2016 TCIA   {HGG,LGG}/<case>/VSD.Brain.XX.O.MR_{Flair,T1,T1c,T2}.<id>/*.mha    labels 1, 2, 3, 4 (3 is the
            non-enhancing core of 2016), truth in VSD.Brain_*.OT.*/*.mha
"""

import re
from collections.abc import Mapping
from pathlib import Path

from veloxseg.dataset.dataset import Case, Dataset, safe_name
from veloxseg.errors import DatasetError
from veloxseg.image.formats import images_by_case
from veloxseg.modality import canonical_name

__all__ = ["nested_regions", "read", "recognises"]

MODALITIES = ("t1", "t1ce", "t2", "flair")
LABELS = {
    "2021": {"background": 0, "necrotic_core": 1, "oedema": 2, "enhancing": 4},
    "2023": {"background": 0, "necrotic_core": 1, "oedema": 2, "enhancing": 3},
    "2016": {"background": 0, "necrotic_core": 1, "oedema": 2, "non_enhancing": 3, "enhancing": 4},
}
REGIONS: dict[str, dict[str, tuple[int, ...]]] = {
    "2021": {"WT": (1, 2, 4), "TC": (1, 4), "ET": (4,)},
    "2023": {"WT": (1, 2, 3), "TC": (1, 3), "ET": (3,)},
    "2016": {"WT": (1, 2, 3, 4), "TC": (1, 3, 4), "ET": (4,)},
}
FILES = {
    "2021": re.compile(r"(?P<case>.+)_(?P<what>flair|t1|t1ce|t2|seg)\.nii(\.gz)?", re.IGNORECASE),
    "2023": re.compile(r"(?P<case>.+)-(?P<what>t2f|t1n|t1c|t2w|seg)\.nii(\.gz)?", re.IGNORECASE),
}
VSD = re.compile(r"VSD\.Brain\.XX\.O\.MR_(Flair|T1|T1c|T2)\..*", re.IGNORECASE)
VSD_TRUTH = re.compile(r"VSD\.Brain.*\.OT\..*", re.IGNORECASE)


def nested_regions(labels: Mapping[str, int]) -> dict[str, tuple[int, ...]] | None:
    """WT, TC and ET of labels that are BraTS's; None of others.

    >>> nested_regions({"background": 0, "necrotic_core": 1, "oedema": 2, "enhancing": 3})["TC"]
    (1, 3)
    """
    return next((dict(REGIONS[version]) for version, own in LABELS.items() if own == dict(labels)), None)


def recognises(path: Path) -> bool:
    return path.is_dir() and _version(path) is not None


def read(path: Path) -> Dataset:
    version = _version(path)
    if version is None:
        raise DatasetError(
            f"{path} has no BraTS case; expected <case>/<case>_t1ce.nii.gz, <case>-t1c.nii.gz or HGG/<case>/VSD.*"
        )
    cases = [_case_2016(f) for f in _grade_folders(path)] if version == "2016" else _cases(path, version)
    return Dataset(
        name=path.name,
        layout="brats",
        root=path,
        modalities=MODALITIES,
        labels=LABELS[version],
        regions=REGIONS[version],
        cases=tuple(cases),
    )


def _version(path: Path) -> str | None:
    if _grade_folders(path):
        return "2016"
    for folder in sorted(path.iterdir()):
        if folder.is_dir():
            for file in folder.iterdir():
                for version, pattern in FILES.items():
                    match = pattern.fullmatch(file.name)
                    if match and match["case"] == folder.name:
                        return version
    return None


def _cases(path: Path, version: str) -> list[Case]:
    cases = []
    for folder in sorted(f for f in path.iterdir() if f.is_dir()):
        images, label = {}, None
        for file in images_by_case(folder).values():
            match = FILES[version].fullmatch(file.name)
            if match is None or match["case"] != folder.name:
                continue
            if match["what"].lower() == "seg":
                label = file
            else:
                images[canonical_name(match["what"])] = file
        if images:
            # newer cases end in the number of the visit, BraTS-GLI-00005-100: one patient, several visits
            patient = re.sub(r"-\d{3}$", "", folder.name) if version == "2023" else folder.name
            cases.append(Case(name=safe_name(folder.name, folder), patient=patient, images=images, label=label))
    return cases


def _grade_folders(path: Path) -> list[Path]:
    """Case folders of BraTS 2016, below HGG and LGG or directly in `path`."""
    parents = [path / grade for grade in ("HGG", "LGG") if (path / grade).is_dir()] or [path]
    folders = [folder for parent in parents for folder in sorted(parent.iterdir()) if folder.is_dir()]
    return [f for f in folders if any(VSD.fullmatch(part.name) for part in f.iterdir())]


def _case_2016(folder: Path) -> Case:
    images, label = {}, None
    for part in sorted(folder.iterdir()):
        files = sorted(part.glob("*.mha")) if part.is_dir() else []
        if not files:
            continue
        if match := VSD.fullmatch(part.name):
            images[canonical_name(match[1])] = files[0]
        elif VSD_TRUTH.fullmatch(part.name):
            label = files[0]
    # brats_tcia_pat105_0001: the last number is the visit
    patient = re.sub(r"_\d{1,4}$", "", folder.name)
    name = safe_name(
        f"{folder.parent.name}_{folder.name}" if folder.parent.name in ("HGG", "LGG") else folder.name, folder
    )
    return Case(name=name, patient=patient, images=images, label=label)
