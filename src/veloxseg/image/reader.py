"""Reading: any file, DICOM folder or image object of another library becomes a `Volume`.

Which format a file has, its first bytes or its name tell, by the table in formats.py. Voxels are converted run by
run as they come out of the file, so that reading takes the memory of its result and little more.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.errors import ImageError, shown
from veloxseg.image.formats import FIRST_BYTES, FORMATS, Format, function, recognised
from veloxseg.image.itk import geometry_of_simpleitk
from veloxseg.image.nifti import place
from veloxseg.image.stream import Header, check_claim, read_voxels
from veloxseg.image.validate import (
    MAX_VOXELS,
    LabelRuns,
    about,
    check_affine,
    check_image_values,
    check_same_grid,
    check_shape,
    pick_volume,
)
from veloxseg.image.volume import Geometry, Volume
from veloxseg.types import Array, Floats, Size

__all__ = ["from_image", "label_drawn_on", "read", "read_dicom_label", "read_header", "read_label"]


def read(
    path: str | Path, *, series: str | None = None, volume: int | None = None, max_voxels: int = MAX_VOXELS
) -> Volume:
    """Reads an image as float32 in (X, Y, Z) with an affine to RAS+ millimetres; PET from DICOM is in SUV.

    `series` picks one of several DICOM series (by modality, number or UID), `volume` one volume of a 4-D file.
    """
    path = Path(path)
    with about(path):
        form = format_of(path)
        if form.image:
            image: Volume = function(form.image)(path, series, volume, max_voxels)
            return image
        header: Header = function(form.header)(path, max_voxels)
        array, warnings = read_floats(header, pick_volume(header.volumes, volume))
        check_image_values(array)
    return as_volume(header, array, path, warnings)


def read_label(path: str | Path, *, reference: Volume | None = None, rois: tuple[str, ...] = ()) -> Volume:
    """Reads a label map in the smallest unsigned integer type that holds it.

    An RTSTRUCT needs the `reference` image that it was drawn on; the regions named in `rois` become labels
    1, 2, … in this order (a sole region needs no name). A DICOM SEG is placed on the grid of `reference`, where
    one is given; any other label map must lie on it.
    """
    path = Path(path)
    with about(path):
        form = format_of(path)
        if form.label:
            return replace(function(form.label)(path, reference, rois), source=path)
        header: Header = function(form.header)(path, MAX_VOXELS)
        array, warnings = read_integers(header, pick_volume(header.volumes, None))
        if reference is not None:
            check_same_grid({"image": reference.geometry, "label": header})
    return as_volume(header, array, path, warnings)


def read_header(path: str | Path, *, series: str | None = None, max_voxels: int = MAX_VOXELS) -> Header:
    """Reads the grid and how it is stored, and checks both, without reading voxels."""
    path = Path(path)
    with about(path):
        form = format_of(path)
        given = (path, series, max_voxels) if form.is_series else (path, max_voxels)
        header: Header = function(form.header)(*given)
        return header


def format_of(path: Path) -> Format:
    """The format of what lies at `path`; a folder holds DICOM series."""
    if not path.exists():
        raise ImageError("does not exist; check the path")
    if path.is_dir():
        return FORMATS["dicom"]
    if not path.is_file():
        raise ImageError("is neither a file nor a folder; check the path")
    with open(path, "rb") as file:
        start = file.read(FIRST_BYTES)
    if not start:
        raise ImageError("is empty (0 bytes); copy or download it again")
    return FORMATS[recognised(path.name, start)]


def read_dicom_label(path: Path, reference: Volume | None, rois: tuple[str, ...]) -> Volume:
    """Reads a DICOM SEG or RTSTRUCT: the file, or the only one in a folder."""
    from veloxseg.image.dicom.file import open_dicom, parsing
    from veloxseg.image.dicom.rtstruct import read_rtstruct
    from veloxseg.image.dicom.seg import read_dicom_seg

    file = only_dicom_file(path)
    with parsing():
        dataset = open_dicom(file, ["Modality"])
        kind = str(dataset.get("Modality"))
        if kind == "SEG":
            return read_dicom_seg(file, reference)
        if kind == "RTSTRUCT":
            return read_rtstruct(open_dicom(file), reference, rois)
    raise ImageError(f"DICOM of modality {shown(kind, 16)}, expected SEG or RTSTRUCT as a label map")


def label_drawn_on(path: Path) -> set[str]:
    """The UIDs of the series that a DICOM SEG or RTSTRUCT was made on; empty for any other label map."""
    with about(path):
        if not format_of(path).is_series:
            return set()
        from veloxseg.image.dicom.file import open_dicom, parsing
        from veloxseg.image.dicom.rtstruct import series_drawn_on

        with parsing():
            tags = ["ReferencedFrameOfReferenceSequence", "ReferencedSeriesSequence"]
            return series_drawn_on(open_dicom(only_dicom_file(path), tags))


def only_dicom_file(path: Path) -> Path:
    from veloxseg.image.dicom.file import is_dicom

    files = [p for p in path.iterdir() if p.is_file() and is_dicom(p)] if path.is_dir() else [path]
    if len(files) != 1:
        raise ImageError(f"{len(files)} DICOM files, expected one RTSTRUCT or DICOM SEG; give the file itself")
    return files[0]


def read_floats(header: Header, volume: int) -> tuple[Floats, list[str]]:
    """Reads one volume as float32 with the file's slope and intercept applied, and warnings."""
    check_claim(header)
    array = np.empty(header.voxels, np.float32)

    def take(first: int, run: Array) -> None:
        part = array[first : first + len(run)]
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows becomes Inf, and is counted by the check
            part[...] = run
            apply_slope(part, header)

    warnings = read_voxels(header, volume, take)
    return array.reshape(header.shape, order="F"), warnings


def read_integers(header: Header, volume: int) -> tuple[Array, list[str]]:
    """Reads one volume as labels, and warnings; a file with a slope must still mean whole numbers."""
    check_claim(header)
    labels = LabelRuns(header.voxels)

    def take(first: int, run: Array) -> None:
        if has_slope(header):
            with np.errstate(over="ignore", invalid="ignore"):
                run = apply_slope(run.astype(np.float32), header)
        labels.take(first, run)

    warnings = read_voxels(header, volume, take)
    array, more = labels.checked()
    return array.reshape(header.shape, order="F"), warnings + more


def has_slope(header: Header) -> bool:
    return header.stored is not None and (header.stored.slope, header.stored.intercept) != (1.0, 0.0)


def apply_slope(array: Floats, header: Header) -> Floats:
    """Changes stored numbers, in place, to what the file means by them."""
    assert header.stored is not None
    if header.stored.slope != 1:
        array *= np.float32(header.stored.slope)
    if header.stored.intercept != 0:
        array += np.float32(header.stored.intercept)
    return array


def as_volume(header: Header, array: Array, path: Path, warnings: list[str]) -> Volume:
    return Volume(
        array=array,
        geometry=header.grid(),
        source=path,
        file_type=header.file_type,
        header=header.keep,
        warnings=(*header.warnings, *warnings),
    )


def from_image(image: Any, *, volume: int | None = None) -> Volume:
    """Takes a nibabel or SimpleITK image object (or a `Volume`) as a float32 `Volume`, checked as a file is."""
    if isinstance(image, Volume):
        return image
    if hasattr(image, "GetSpacing") and hasattr(image, "GetDirection"):
        return from_simpleitk(image, volume)
    if hasattr(image, "dataobj") and hasattr(image, "affine"):
        return from_nibabel(image, volume)
    raise ImageError(f"a {type(image).__name__} is not an image; give a path, or a nibabel or SimpleITK image")


def from_nibabel(image: Any, volume: int | None) -> Volume:
    if image.affine is None:
        raise ImageError("a nibabel image without an affine; give it the affine of the scan")
    x, y, z = checked_shape(image.shape)
    affine = np.array(image.affine, np.float64)
    header = {}
    if "sform_code" in image.header and np.allclose(image.header.get_best_affine(), affine, atol=1e-4):
        affine, warnings = place(image.header, (x, y, z))  # both forms, and the units
        header = {key: int(image.header[key]) for key in ("sform_code", "qform_code", "xyzt_units")}
    else:
        warnings = check_affine(affine)
    picked = np.asanyarray(image.dataobj).reshape((x, y, z, -1), order="F")
    picked = picked[..., pick_volume(picked.shape[3], volume)]
    return Volume(
        array=as_float32(picked),
        geometry=Geometry(shape=(x, y, z), affine=affine),
        header=header,
        warnings=tuple(warnings),
    )


def from_simpleitk(image: Any, volume: int | None) -> Volume:
    import SimpleITK  # whoever has such an image has it

    if image.GetNumberOfComponentsPerPixel() != 1:
        raise ImageError("a SimpleITK image of vectors or colours, expected one real number per voxel")
    if image.GetDimension() == 4:
        image = image[:, :, :, pick_volume(image.GetSize()[3], volume)]
    checked_shape(image.GetSize())
    geometry = geometry_of_simpleitk(image)
    warnings = check_affine(geometry.affine)
    array = as_float32(SimpleITK.GetArrayViewFromImage(image).T)
    return Volume(array=array, geometry=geometry, file_type="nrrd", warnings=tuple(warnings))


def checked_shape(shape: Any) -> Size:
    sizes = tuple(int(n) for n in shape)
    check_shape(sizes)
    return sizes[0], sizes[1], sizes[2]


def as_float32(array: Array) -> Floats:
    """Copies the voxels, so that memory is not shared with the image, and checks their values."""
    if array.dtype.kind not in "biuf":
        raise ImageError(f"voxels of type {array.dtype}, expected one real number per voxel; convert to grey values")
    with np.errstate(over="ignore"):
        copy = np.array(array, np.float32, order="F")
    check_image_values(copy)
    return copy
