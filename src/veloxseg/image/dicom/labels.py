"""Which label maps a DICOM folder holds (RTSTRUCT, SEG), and what their regions are called."""

from pathlib import Path

from veloxseg.image.dicom.file import is_dicom, open_dicom, parsing
from veloxseg.image.dicom.rtstruct import contours_by_name
from veloxseg.image.dicom.series import files_in

__all__ = ["find_labels", "has_dicom", "label_kind", "region_names"]

KINDS = ("RTSTRUCT", "SEG")


def has_dicom(folder: Path) -> bool:
    """Whether a DICOM file lies in a folder or below it."""
    return any(is_dicom(path) for path in folder.rglob("*") if path.is_file())


def find_labels(folder: Path) -> list[tuple[Path, str, str]]:
    """File, kind and series number of every RTSTRUCT and SEG of a folder, looked for where `find_series` looks."""
    found = []
    for file in files_in(folder.iterdir()) or files_in(folder.rglob("*")):
        with parsing(file.name):
            dataset = open_dicom(file, ["Modality", "SeriesNumber"])
            kind = str(dataset.get("Modality") or "")
            if kind in KINDS:
                found.append((file, kind, str(dataset.get("SeriesNumber") or "")))
    return found


def label_kind(path: Path) -> str:
    """RTSTRUCT or SEG, or nothing if the file is neither."""
    if not is_dicom(path):
        return ""
    with parsing(path.name):
        kind = str(open_dicom(path, ["Modality"]).get("Modality") or "")
    return kind if kind in KINDS else ""


def region_names(path: Path) -> list[str]:
    """The regions of an RTSTRUCT that enclose something, or the segments of a SEG, in the order of the file."""
    with parsing(path.name):
        dataset = open_dicom(path)
        if dataset.get("Modality") == "RTSTRUCT":
            return list(contours_by_name(dataset))
        return list(dict.fromkeys(str(segment.SegmentLabel) for segment in dataset.get("SegmentSequence") or []))
