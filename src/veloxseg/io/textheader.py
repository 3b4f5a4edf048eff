"""What the text headers of NRRD and MetaImage have in common: lines of numbers, and a data file beside them.

The headers are parsed here and not by SimpleITK, which takes memory for whatever size the header claims, fills
what is missing with zeros, and prints on the terminal.
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from veloxseg.errors import GeometryError, ImageError
from veloxseg.io.checks import check_shape, shown

__all__ = [
    "HEADER_LIMIT",
    "LPS_TO_RAS",
    "affine_of_axes",
    "beside",
    "check_spacing",
    "numbers",
    "spatial_shape",
    "whole_numbers",
]

HEADER_LIMIT = 1 << 20  # a text header is some hundred bytes; 3D Slicer's segment tables are some thousand
LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


def numbers(text: str, what: str) -> list[float]:
    """The numbers of a line, apart by spaces or commas, with or without brackets."""
    for bracket in "(),":
        text = text.replace(bracket, " ")
    try:
        return [float(word) for word in text.split()]
    except ValueError as error:
        raise ImageError(
            f"the header's {what} is {shown(text, 60)!r}, expected numbers; restore the file"
        ) from error


def whole_numbers(text: str, what: str) -> list[int]:
    try:
        return [int(word) for word in text.split()]
    except ValueError as error:
        raise ImageError(
            f"the header's {what} is {shown(text, 60)!r}, expected whole numbers; restore the file"
        ) from error


def spatial_shape(sizes: list[int], max_voxels: int) -> tuple[tuple[int, int, int], int]:
    """The three spatial sizes and the number of volumes."""
    check_shape(tuple(sizes), max_voxels)
    volumes = 1
    for n in sizes[3:]:
        volumes *= n
    return (sizes[0], sizes[1], sizes[2]), volumes


def check_spacing(spacing: list[float]) -> None:
    if len(spacing) < 3 or not all(0 < s < float("inf") for s in spacing[:3]):
        found = " × ".join(f"{s:g}" for s in spacing)
        raise GeometryError(
            f"the spacing is {found or 'missing'}, expected 3 positive numbers; restore it from the original scan"
        )


def affine_of_axes(axes: list[list[float]], origin: list[float]) -> npt.NDArray[np.float64]:
    """The affine whose columns are the steps along the array's axes."""
    affine = np.eye(4)
    affine[:3, :3] = np.array([axis[:3] for axis in axes[:3]]).T
    affine[:3, 3] = origin[:3]
    return affine


def beside(header: Path, name: str) -> Path:
    """The data file that a header names; it must lie in the header's folder or below."""
    if not name.isprintable():
        raise ImageError(f"the header names a data file {shown(name)!r} that cannot exist; restore the file")
    if any(mark in name for mark in "%*?") or name.split()[:1] == ["LIST"]:
        raise ImageError(
            "the voxels lie in one file per slice, expected one file; convert to .nrrd, .mha or .nii.gz"
        )
    data = header.parent / name
    if not data.resolve().is_relative_to(header.parent.resolve()):
        raise ImageError(
            f"the header points to {shown(name)!r} outside of its folder; put both files into one folder"
        )
    if not data.is_file():
        raise ImageError(f"the data file {shown(name)!r} is missing, expected beside the header")
    return data
