"""What the text headers of NRRD and MetaImage have in common: fields of numbers, units, and a data file beside them.

The headers are parsed here and not by SimpleITK, which takes memory for whatever size the header claims, fills
what is missing with zeros, passes over units, and prints on the terminal. A field that would change what the image
means is honoured or refused, never passed over.
"""

from pathlib import Path

import numpy as np

from veloxseg.errors import GeometryError, ImageError, shown
from veloxseg.image.validate import check_shape
from veloxseg.types import Affine, Size

__all__ = [
    "HEADER_LIMIT",
    "LPS",
    "affine_of_axes",
    "beside",
    "check_spacing",
    "millimetres",
    "numbers",
    "one_whole_number",
    "same_in_all",
    "spatial_shape",
    "whole_numbers",
]

HEADER_LIMIT = 1 << 20  # a text header is some hundred bytes; 3D Slicer's segment tables are some thousand
MOST = 1 << 62  # of any whole number in a header
LPS = (-1, -1, 1)  # signs from the axes of LPS+ to those of RAS+
MILLIMETRES = {
    1000.0: ("m", "meter", "meters", "metre", "metres"),
    10.0: ("cm", "centimeter", "centimeters", "centimetre", "centimetres"),
    1.0: ("", "?", "mm", "millimeter", "millimeters", "millimetre", "millimetres"),  # not said: taken as mm
    # the sign for micro has two codes, and Python's lower() keeps them apart
    0.001: ("um", "\u00b5m", "\u03bcm", "micron", "microns", "micrometer", "micrometers", "micrometre", "micrometres"),
}


def numbers(text: str, what: str) -> list[float]:
    """The numbers of a line, apart by spaces or commas, with or without brackets."""
    plain = text
    for bracket in "(),":
        plain = plain.replace(bracket, " ")
    try:
        check_digits(plain)
        return [float(word) for word in plain.split()]
    except ValueError as error:
        raise ImageError(f"the header's {what} is {shown(text, 60)!r}, expected numbers; restore the file") from error


def whole_numbers(text: str, what: str) -> list[int]:
    try:
        check_digits(text)
        found = [int(word) for word in text.split()]
    except ValueError as error:  # also for more digits than Python takes
        raise ImageError(
            f"the header's {what} is {shown(text, 60)!r}, expected whole numbers; restore the file"
        ) from error
    if any(abs(number) > MOST for number in found):
        raise ImageError(f"the header's {what} is {shown(text, 60)!r}, more than any file holds; restore the file")
    return found


def one_whole_number(text: str, what: str) -> int:
    found = whole_numbers(text, what)
    if len(found) != 1:
        raise ImageError(f"the header's {what} is {shown(text, 60)!r}, expected one whole number; restore the file")
    return found[0]


def check_digits(text: str) -> None:
    """Refuses what Python takes for a number and no other program does: 1_000, and digits of other scripts."""
    if not text.isascii() or "_" in text:
        raise ValueError("not a plain number")


def millimetres(unit: str, what: str) -> float:
    """How many millimetres a unit of length is."""
    for length, names in MILLIMETRES.items():
        if unit.lower() in names:
            return length
    raise GeometryError(f"the header's {what} is {shown(unit, 20)!r}, expected mm, cm, m or um; convert to millimetres")


def same_in_all(fields: dict[str, str], names: tuple[str, ...]) -> str | None:
    """The value of a field that has several names; None where it is missing, refused where the names disagree."""
    found = [fields[name] for name in names if name in fields]
    if any(value != found[0] for value in found):
        raise ImageError(f"the header gives different values for {' and '.join(names)}; restore the file")
    return found[0] if found else None


def spatial_shape(sizes: list[int], max_voxels: int) -> tuple[Size, int]:
    """The three spatial sizes and the number of volumes."""
    check_shape(tuple(sizes), max_voxels)
    volumes = 1
    for n in sizes[3:]:
        volumes *= n
    return (sizes[0], sizes[1], sizes[2]), volumes


def check_spacing(spacing: list[float], count: int = 3) -> None:
    """Refuses anything but one positive number for each of `count` axes, of which the first three are spatial."""
    if len(spacing) != count or not all(0 < s < float("inf") for s in spacing[:3]):
        found = " × ".join(f"{s:g}" for s in spacing[:8])
        raise GeometryError(
            f"the spacing is {found or 'missing'}, expected {count} positive numbers; restore it from the original scan"
        )


def affine_of_axes(axes: list[list[float]], origin: list[float], signs: tuple[int, int, int]) -> Affine:
    """The affine whose columns are the steps along the array's axes, after `signs` has turned space to RAS+."""
    affine = np.eye(4)
    affine[:3, :3] = np.array([axis[:3] for axis in axes[:3]]).T
    affine[:3, 3] = origin[:3]
    affine[:3] *= np.array(signs)[:, None]  # a product of matrices would make NaN of Inf, with a warning
    return affine


def beside(header: Path, name: str) -> Path:
    """The data file that a header names; it must lie in the header's folder or below."""
    if not name.isprintable():
        raise ImageError(f"the header names a data file {shown(name)!r} that cannot exist; restore the file")
    if any(mark in name for mark in "%*?") or name.split()[:1] == ["LIST"]:
        raise ImageError("the voxels lie in one file per slice, expected one file; convert to .nrrd, .mha or .nii.gz")
    data = header.parent / name
    if not data.resolve().is_relative_to(header.parent.resolve()):
        raise ImageError(f"the header points to {shown(name)!r} outside of its folder; put both files into one folder")
    if not data.is_file():
        raise ImageError(f"the data file {shown(name)!r} is missing, expected beside the header")
    return data
