"""Scans and label maps of any format as files of another: DICOM, RTSTRUCT and SEG become NIfTI, and labels a SEG again.

Beside every file lies a JSON with its grid, its units and, for label maps, the names of the regions. Of the patient
nothing leaves the source: no tags, no UIDs. CT is in Hounsfield units, PET in SUV by body weight, as `read` has it.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.console import say, warn
from veloxseg.dataset.naming import label_values, peek
from veloxseg.dataset.reading import open_label
from veloxseg.errors import ConfigError, ImageError, OutputError, VeloxSegError, shown
from veloxseg.files import writable_folder, write_json
from veloxseg.image import Volume, read, read_label, write, write_dicom_seg
from veloxseg.image.dicom.labels import find_labels, label_kind, region_names
from veloxseg.image.dicom.series import Series, find_series, read_series, volumes_in
from veloxseg.image.formats import without_suffix
from veloxseg.image.reader import label_drawn_on
from veloxseg.machine import NOTICE, software
from veloxseg.modality import canonical_name
from veloxseg.types import Array

__all__ = ["Rois", "import_file", "import_folder", "sidecar", "write_scan"]

Rois = Mapping[str, str]  # label -> its region in an RTSTRUCT or SEG, with * and |
UNITS = {"CT": "HU", "PT": "SUV by body weight, g/mL"}  # by DICOM's modality
WHOLE = (np.uint8, np.int16, np.uint16, np.int32)
MOST_REGIONS = 255


def import_file(
    source: Path, target: Path, *, reference: Path | None, rois: Rois, series: str | None, volume: int | None
) -> None:
    """One scan or label map as another type of file; a `.dcm` target is a DICOM SEG on the series in `reference`."""
    _check_new(target)
    if not source.exists():
        raise ImageError(f"{shown(source)} does not exist; check the path")
    if target.name.lower().endswith(".dcm"):
        _write_seg(source, target, reference, rois)
    elif source.is_file() and label_kind(source):
        _import_label(source, target, None if reference is None else read(reference, series=series), rois)
        return
    else:
        write_scan(read(source, series=series, volume=volume), target)
    say(f"{shown(source)} → {shown(target)}")


def write_scan(volume: Volume, target: Path) -> None:
    """A scan and its JSON; whole numbers are stored as such."""
    for warning in volume.warnings:
        warn(f"{target.name}: {warning}")
    stored = replace(volume, array=whole_numbers(volume.array), header={}, file_type="nifti")
    write(stored, target)
    write_json(sidecar(target), _facts(replace(volume, array=stored.array), target))


def import_folder(folder: Path, output: Path, rois: Rois) -> dict[str, str]:
    """Every series, RTSTRUCT and SEG of a DICOM folder as `<modality>-<number>.nii.gz`; name → message of failures."""
    every = find_series(folder)
    writable_folder(output)
    names: dict[str, str] = {}  # name of a file → UID of its series
    failures: dict[str, str] = {}
    for one in every:
        name = _new_name(canonical_name(one.modality), one.number, names)
        names[name] = one.uid
        if sum(int(dataset.get("NumberOfFrames") or 1) for dataset in one.datasets) == 1:
            say(f"{name}: one picture and no volume, left out")
            continue
        with _failing(name, failures):
            for part, volume in enumerate(volumes := volumes_in(folder, one)):
                target = output / (f"{name}-{part}.nii.gz" if len(volumes) > 1 else f"{name}.nii.gz")
                _check_new(target)
                write_scan(read_series(folder, one, volume), target)
                say(f"{one} → {shown(target)}")
    for file, kind, number in find_labels(folder):
        with _failing(shown(file), failures):
            scan = _series_of(file, every)
            on = next(name for name, uid in names.items() if uid == scan.uid)
            name = _new_name(kind, number, names, f"{on}_")
            names[name] = ""
            _import_label(file, output / f"{name}.nii.gz", read_series(folder, scan, None), rois)
    if not names:
        raise ImageError(f"{shown(folder)}: no DICOM images here; give a DICOM folder, a scan, or a data set")
    return failures


def _series_of(label: Path, every: list[Series]) -> Series:
    """The series that an RTSTRUCT or SEG was made on."""
    drawn = label_drawn_on(label)
    on = [one for one in every if one.uid in drawn] or (every if len(every) == 1 else [])
    if not on:
        raise ImageError("the series that it was made on is not in this folder; give the file and --reference")
    return on[0]


def _import_label(file: Path, target: Path, scan: Volume | None, rois: Rois) -> None:
    _check_new(target)
    label, names = _dicom_label(file, scan, rois)
    write(label, target)
    write_json(sidecar(target), _facts(label, target, labels=names))
    say(f"{shown(file)} → {shown(target)}: {', '.join(shown(name, 40) for name in names)}")


def _dicom_label(file: Path, scan: Volume | None, rois: Rois) -> tuple[Volume, dict[str, int]]:
    """The label map of an RTSTRUCT or SEG with its names; all regions, unless `rois` names labels."""
    regions = dict(rois) or {name: name for name in region_names(file)}
    if len(regions) > MOST_REGIONS:
        raise ImageError(f"{len(regions)} regions, {MOST_REGIONS} are the most; choose some by --roi NAME=REGION")
    labels = {"background": 0, **{name: value for value, name in enumerate(regions, start=1)}}
    volumes = {} if scan is None else {"scan": scan}
    volume = open_label(file, labels, volumes, {name: (pattern,) for name, pattern in regions.items()})
    for warning in volume.warnings:
        warn(f"{file.name}: {warning}")
    return replace(volume, header={}, file_type="nifti"), {n: v for n, v in labels.items() if v}


def _write_seg(source: Path, target: Path, reference: Path | None, rois: Rois) -> None:
    if reference is None:
        raise ConfigError("a DICOM SEG refers to the series that it lies on; give its folder by --reference")
    if wrong := [text for text in rois.values() if not (text.isdecimal() and len(text) < 6)]:
        raise ConfigError(f"--roi NAME={shown(wrong[0])} is no label value; for a DICOM SEG write --roi tumour=1")
    names = {int(value): name for name, value in rois.items()} or _names_beside(source)
    write_dicom_seg(read_label(source), reference, target, names)


def _names_beside(source: Path) -> dict[int, str]:
    """Value → name, as the JSON says that an import left beside a label map."""
    beside = peek(sidecar(source))
    return {values[0]: name for name, values in label_values(beside, sidecar(source)).items()}


def whole_numbers(array: Array) -> Array:
    """The same voxels in the smallest type of whole numbers that holds them all; other voxels stay as they are."""
    if array.dtype.kind != "f":
        return array
    low, high = float(array.min()), float(array.max())
    if not all(np.array_equal(plane, np.rint(plane)) for plane in np.moveaxis(array, -1, 0)):
        return array
    fitting = [kind for kind in WHOLE if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max]
    return array.astype(fitting[0]) if fitting else array


def sidecar(target: Path) -> Path:
    return target.with_name(f"{without_suffix(target.name)}.json")


def _facts(volume: Volume, target: Path, labels: Mapping[str, int] | None = None) -> dict[str, Any]:
    modality = str(volume.header.get("modality", ""))
    facts: dict[str, Any] = {
        "notice": NOTICE,
        "software": software(),
        "file": target.name,
        "voxels": str(volume.array.dtype),
        "geometry": volume.geometry.to_json(),
        "warnings": list(volume.warnings),
    }
    if labels is not None:
        return {**facts, "labels": dict(labels)}
    if "suv_factor" in volume.header:
        facts["suv_factor"] = volume.header["suv_factor"]
    return {**facts, "modality": modality or None, "units": UNITS.get(modality, "as stored")}


def _check_new(target: Path) -> None:
    for path in (target, sidecar(target)):
        if path.exists():
            raise OutputError(f"{shown(path)} exists; name another output, or remove it")


def _new_name(kind: str, number: str, taken: Mapping[str, str], on: str = "") -> str:
    """`ct-2`, or `ct-2_rtstruct-1` for a label map on it; a further number where two are the same."""
    words = [("".join(c for c in text.lower() if c.isascii() and c.isalnum()))[:16] for text in (kind, number)]
    name = first = on + ("-".join(word for word in words if word) or "series")
    again = 2
    while name in taken:
        name, again = f"{first}-{again}", again + 1
    return name


@contextlib.contextmanager
def _failing(name: str, failures: dict[str, str]) -> Iterator[None]:
    """What is wrong with one series does not cost the others; an output that cannot be written does."""
    try:
        yield
    except OutputError:
        raise
    except VeloxSegError as error:
        failures[name] = str(error)
        warn(f"{name}: {error}")
