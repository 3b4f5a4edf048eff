"""Reading: any file or DICOM folder becomes a `Volume`.

What a path is, its first bytes tell: NRRD, MetaImage and DICOM have their marks, and the rest must be NIfTI.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ImageError
from veloxseg.io.checks import (
    MAX_VOXELS,
    about,
    check_image_values,
    check_same_grid,
    label_array,
    pick_volume,
    shown,
)
from veloxseg.io.header import Header
from veloxseg.io.metaimage import read_meta_header
from veloxseg.io.nifti import read_nifti_header
from veloxseg.io.nrrd import read_nrrd_header
from veloxseg.io.volume import Volume
from veloxseg.io.voxels import read_voxels

__all__ = ["read", "read_header", "read_label"]

HEADER_READERS = {"nifti": read_nifti_header, "nrrd": read_nrrd_header, "meta": read_meta_header}


def read(
    path: str | Path, *, series: str | None = None, volume: int | None = None, max_voxels: int = MAX_VOXELS
) -> Volume:
    """Reads an image as float32 in (X, Y, Z) with an affine to RAS+ millimetres; PET from DICOM is in SUV.

    `series` picks one of several DICOM series (by modality, number or UID), `volume` one volume of a 4-D file.
    """
    path = Path(path)
    with about(path):
        if (kind := file_kind(path)) == "dicom":
            from veloxseg.io.dicom import read_dicom

            return read_dicom(path, series, volume, max_voxels)
        header = HEADER_READERS[kind](path, max_voxels)
        stored, warnings = read_voxels(header, pick_volume(header.volumes, volume))
        array = scaled_float32(stored, header)
        check_image_values(stored if has_whole_numbers(header) else array)  # they are quicker to go through
    return as_volume(header, array, path, warnings)


def read_label(path: str | Path, *, reference: Volume | None = None, rois: tuple[str, ...] = ()) -> Volume:
    """Reads a label map in the smallest unsigned integer type that holds it.

    An RTSTRUCT needs the `reference` image that it was drawn on; the regions named in `rois` become labels
    1, 2, … in this order (a sole region needs no name). A DICOM SEG is placed on the grid of `reference`, where
    one is given; any other label map must lie on it.
    """
    path = Path(path)
    with about(path):
        if (kind := file_kind(path)) == "dicom":
            return replace(read_dicom_label(path, reference, rois), source=path)
        header = HEADER_READERS[kind](path, MAX_VOXELS)
        stored, warnings = read_voxels(header, pick_volume(header.volumes, None))
        array, more = label_array(scaled(stored, header))
        if reference is not None:
            check_same_grid({"image": reference.geometry, "label": header})
    return as_volume(header, array, path, warnings + more)


def read_dicom_label(path: Path, reference: Volume | None, rois: tuple[str, ...]) -> Volume:
    """A DICOM SEG or RTSTRUCT: the file, or the only one in a folder."""
    from veloxseg.io.dicomfile import is_dicom, open_dicom, parsing
    from veloxseg.io.dicomseg import read_dicom_seg
    from veloxseg.io.rtstruct import read_rtstruct

    files = [p for p in path.iterdir() if p.is_file() and is_dicom(p)] if path.is_dir() else [path]
    if len(files) != 1:
        raise ImageError(
            f"{len(files)} DICOM files, expected one RTSTRUCT or DICOM SEG; give the file itself"
        )
    with parsing():
        dataset = open_dicom(files[0], ["Modality"])
        kind = str(dataset.get("Modality"))
        if kind == "SEG":
            return read_dicom_seg(files[0], reference)
        if kind == "RTSTRUCT":
            return read_rtstruct(open_dicom(files[0]), reference, rois)
    raise ImageError(f"DICOM of modality {shown(kind, 16)}, expected SEG or RTSTRUCT as a label map")


def read_header(path: str | Path, *, series: str | None = None, max_voxels: int = MAX_VOXELS) -> Header:
    """The grid and how it is stored, checked, without reading voxels."""
    path = Path(path)
    with about(path):
        if (kind := file_kind(path)) == "dicom":
            from veloxseg.io.dicom import read_dicom_header

            return read_dicom_header(path, series, max_voxels)
        return HEADER_READERS[kind](path, max_voxels)


def file_kind(path: Path) -> str:
    """nifti, nrrd, meta or dicom; a folder is DICOM."""
    if not path.exists():
        raise ImageError("does not exist; check the path")
    if path.is_dir():
        return "dicom"
    if not path.is_file():
        raise ImageError("is neither a file nor a folder; check the path")
    with open(path, "rb") as file:
        start = file.read(512)
    if not start:
        raise ImageError("is empty (0 bytes); copy or download it again")
    if start.startswith(b"NRRD000"):
        return "nrrd"
    if start[128:132] == b"DICM" or path.suffix.lower() == ".dcm":
        return "dicom"
    if start.lstrip().startswith((b"ObjectType", b"NDims")) or path.suffix.lower() in (".mha", ".mhd"):
        return "meta"
    return "nifti"


def scaled(stored: npt.NDArray[Any], header: Header) -> npt.NDArray[Any]:
    """The numbers that the file means: as stored, or float32 where it has a slope or an intercept."""
    return scaled_float32(stored, header) if has_slope(header) else stored


def has_slope(header: Header) -> bool:
    return header.stored is not None and (header.stored.slope, header.stored.intercept) != (1.0, 0.0)


def has_whole_numbers(header: Header) -> bool:
    return header.dtype.kind in "iu" and not has_slope(header)


def scaled_float32(stored: npt.NDArray[Any], header: Header) -> npt.NDArray[np.float32]:
    assert header.stored is not None
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # what overflows becomes Inf, and is counted by the check
        array = stored.astype(np.float32, copy=False)
        if header.stored.slope != 1:
            array *= np.float32(header.stored.slope)
        if header.stored.intercept != 0:
            array += np.float32(header.stored.intercept)
    return array


def as_volume(header: Header, array: npt.NDArray[Any], path: Path, warnings: list[str]) -> Volume:
    return Volume(
        array=array,
        geometry=header.grid(),
        source=path,
        file_type=header.file_type,
        header=header.keep,
        warnings=(*header.warnings, *warnings),
    )
