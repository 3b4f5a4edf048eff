"""What a scan must be, checked by us, because the libraries open broken files without a word.

Grid: three axes of at least two voxels, finite and positive spacing, axes at right angles.
Values: finite, not all the same. Labels: whole numbers from zero on.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from veloxseg.errors import GeometryError, ImageError, shown
from veloxseg.image.volume import Geometry
from veloxseg.types import Affine, Array, Labels

__all__ = [
    "MAX_VOXELS",
    "LabelRuns",
    "about",
    "check_affine",
    "check_image_values",
    "check_same_grid",
    "check_shape",
    "grid_difference",
    "label_array",
    "pick_volume",
]

MAX_VOXELS = 1 << 30  # four gibibytes as float32; the longest whole-body CT in use is about half of it
RUN = 1 << 20  # voxels looked at together: a comparison takes memory of their size
SMALLEST, LARGEST = 0.001, 100.0  # spacings in mm: beyond them a header has other units than it says, or is damaged
FARTHEST = 1e5  # mm from the origin of space to the first voxel: a hundred metres
SHEAR = 1e-3  # largest cosine between two axes: 0.06 degrees, half a millimetre over half a metre


@contextlib.contextmanager
def about(path: Path) -> Iterator[None]:
    """Puts the path before the message of what goes wrong inside, and makes the system's errors ours."""
    try:
        yield
    except ImageError as error:
        raise type(error)(f"{shown(path)}: {error}") from error
    except OSError as error:
        raise ImageError(f"{shown(path)}: cannot be read ({shown(error.strerror or error)})") from error
    except MemoryError as error:
        raise ImageError(f"{shown(path)}: not enough memory to read it; crop or resample the image") from error


def check_shape(shape: tuple[int, ...], max_voxels: int = MAX_VOXELS) -> None:
    """Refuses less than three axes of two voxels, and more voxels than the limit."""
    size = " × ".join(map(str, shape))
    if any(n <= 0 for n in shape):
        raise ImageError(f"the header gives the size {size}, expected positive numbers; restore the file")
    if len(shape) < 3 or 1 in shape[:3]:
        raise ImageError(
            f"a 2-D image ({size}), expected a volume with at least 2 voxels along each of 3 axes; "
            "join the slices into one volume"
        )
    voxels = int(np.prod([int(n) for n in shape[:3]], dtype=object))
    if voxels > max_voxels:
        raise ImageError(
            f"the header claims {size} voxels, more than the limit of {max_voxels}; "
            "crop or resample the image, or raise max_voxels"
        )


def check_affine(affine: Affine, what: str = "affine") -> list[str]:
    """Refuses what no scanner makes: numbers without end, spacing out of range, axes not at right angles.

    Returns warnings.
    """
    if not np.isfinite(affine).all():
        raise GeometryError(f"the {what} holds NaN or Inf; restore the geometry from the original scan")
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    found = " × ".join(f"{s:g}" for s in spacing)
    if not ((spacing >= SMALLEST) & (spacing <= LARGEST)).all():
        raise GeometryError(
            f"the spacing is {found} mm by the {what}, expected {SMALLEST:g} to {LARGEST:g} mm; "
            "restore the geometry from the original scan, or correct its units"
        )
    if np.abs(affine[:3, 3]).max() > FARTHEST:
        place = ", ".join(f"{s:g}" for s in affine[:3, 3])
        raise GeometryError(
            f"the {what} puts the first voxel at ({place}) mm, expected at most {FARTHEST:g} mm from the origin; "
            "restore the geometry from the original scan, or correct its units"
        )
    direction = affine[:3, :3] / spacing
    if abs(np.linalg.det(direction)) < 1e-3:
        raise GeometryError(
            f"the {what} is singular, so two axes point the same way; restore the geometry from the original scan"
        )
    cosines = np.abs(direction.T @ direction - np.eye(3)).max()
    if cosines > SHEAR:
        degrees = np.degrees(np.arcsin(min(1.0, cosines)))
        raise GeometryError(
            f"the axes of the {what} are sheared, {degrees:.2f} degrees away from right angles; "
            "resample the image to an orthogonal grid first"
        )
    if spacing.min() < 0.01 or spacing.max() > 50:
        return [f"the spacing of {found} mm is unusual; are the units right?"]
    return []


def check_image_values(array: Array) -> None:
    """Refuses NaN, Inf, and an image of one value."""
    low, high = float(array.min()), float(array.max())  # NaN goes through both
    if not (np.isfinite(low) and np.isfinite(high)):
        flat = array.ravel(order="K")
        runs = [flat[first : first + RUN] for first in range(0, flat.size, RUN)]
        nan, inf = (sum(int(np.count_nonzero(test(run))) for run in runs) for test in (np.isnan, np.isinf))
        raise ImageError(
            f"{nan} NaN and {inf} Inf among {array.size} voxels, expected finite numbers; "
            "replace them, for example by the background value"
        )
    if low == high:
        raise ImageError(f"every voxel is {low:g}, expected an image with contrast; was the scan exported correctly?")


class LabelRuns:
    """A label map that comes in runs of voxels, in the smallest unsigned type that holds it."""

    def __init__(self, voxels: int) -> None:
        self.array: Array = np.empty(voxels, np.uint8)
        self.broken = 0  # voxels that are not whole numbers
        self.low = self.high = 0

    def take(self, first: int, run: Array) -> None:
        """Takes the voxels from number `first` on."""
        if run.dtype.kind == "f":
            with np.errstate(invalid="ignore"):
                self.broken += int(np.count_nonzero(np.rint(run) - run != 0))  # Inf - Inf and NaN count too
        if self.broken:
            return
        self.low, self.high = min(self.low, int(run.min())), max(self.high, int(run.max()))
        if self.low < 0 or self.high >= 1 << 16:
            return
        if self.high >= 1 << 8 and self.array.dtype == np.uint8:
            self.array = self.array.astype(np.uint16)
        self.array[first : first + len(run)] = run.astype(self.array.dtype)

    def checked(self) -> tuple[Labels, list[str]]:
        """The label map and warnings, after the last run."""
        if self.broken:
            raise ImageError(
                f"{self.broken} of {self.array.size} voxels are not whole numbers, expected a label map; "
                "was it resampled with interpolation? use nearest neighbour"
            )
        if self.low < 0:
            raise ImageError(f"label value {self.low:g} is negative, expected 0 for background and 1, 2, …; renumber")
        if self.high >= 1 << 16:
            raise ImageError(f"label value {self.high:g} is above 65535; is this an image instead of a label map?")
        return self.array, ["the label map is empty: every voxel is background"] if self.high == 0 else []


def label_array(array: Array) -> tuple[Labels, list[str]]:
    """The label map in the smallest unsigned type that holds it, and warnings."""
    flat = array.ravel(order="F")
    labels = LabelRuns(array.size)
    for first in range(0, array.size, RUN):
        labels.take(first, flat[first : first + RUN])
    checked, warnings = labels.checked()
    return checked.reshape(array.shape, order="F"), warnings


def pick_volume(volumes: int, volume: int | None) -> int:
    """Gives the index of the volume to read; a 4-D file needs a choice."""
    if volume is None and volumes > 1:
        raise ImageError(
            f"4-D, with {volumes} volumes, expected 3-D; pick one with --volume NAME=N "
            f"(volume=N in Python), N from 0 to {volumes - 1}"
        )
    if not 0 <= (volume or 0) < volumes:
        raise ImageError(f"there is no volume {volume}; expected a number from 0 to {volumes - 1}")
    return volume or 0


def grid_difference(one: Geometry, other: Geometry) -> str:
    """Says how two grids differ, in words with millimetres; the text is empty where they are the same voxels."""
    if one.same_grid(other):
        return ""
    parts = []
    if one.shape != other.shape:
        parts.append(f"shape {'×'.join(map(str, one.shape))} and {'×'.join(map(str, other.shape))}")
    spacing = np.abs(np.subtract(one.spacing, other.spacing)).max()
    if spacing > 1e-4:
        parts.append(f"spacing differs by {spacing:.4g} mm")
    origin = np.linalg.norm(np.subtract(one.origin, other.origin))
    if origin > 1e-3:
        parts.append(f"origin by {origin:.4g} mm")
    cosine = np.clip((one.direction * other.direction).sum(axis=0), -1, 1).min()
    if cosine < 1 - 1e-8:
        parts.append(f"direction by {np.degrees(np.arccos(cosine)):.3g} degrees")
    return f"{', '.join(parts)} (corners up to {one.distance(other):.4g} mm apart)"


def check_same_grid(grids: Mapping[str, Geometry], case: str = "") -> None:
    """Refuses images of one case that lie on different grids, and says by how many millimetres they differ."""
    names = list(grids)
    for name in names[1:]:
        if difference := grid_difference(grids[names[0]], grids[name]):
            raise GeometryError(
                f"{case + ': ' if case else ''}{names[0]} and {name} lie on different grids: {difference}; "
                f"resample {name} to the grid of {names[0]} (veloxseg prepare does), and register them first "
                "if the patient moved (--register rigid)"
            )
