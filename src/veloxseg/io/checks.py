"""What a scan must be, checked by us, because the libraries open broken files without a word.

Grid: three axes of at least two voxels, finite and positive spacing, axes at right angles.
Values: finite, not all the same. Labels: whole numbers from zero on.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import GeometryError, ImageError
from veloxseg.io.volume import Geometry

__all__ = [
    "MAX_VOXELS",
    "about",
    "check_affine",
    "check_image_values",
    "check_same_grid",
    "check_shape",
    "grid_difference",
    "label_array",
    "pick_volume",
    "shown",
]

MAX_VOXELS = 1 << 30  # four gibibytes as float32; the longest whole-body CT in use is about half of it
SHEAR = 1e-3  # largest cosine between two axes: 0.06 degrees, half a millimetre over half a metre


@contextlib.contextmanager
def about(path: Path) -> Iterator[None]:
    """Puts the path before the message of what goes wrong inside; the system's errors become ours."""
    try:
        yield
    except ImageError as error:
        raise type(error)(f"{shown(path)}: {error}") from error
    except OSError as error:
        raise ImageError(f"{shown(path)}: cannot be read ({shown(error.strerror or error)})") from error
    except MemoryError as error:
        raise ImageError(
            f"{shown(path)}: not enough memory to read it; crop or resample the image"
        ) from error


def shown(value: object, limit: int = 200) -> str:
    """Text from outside as it may stand in a message: on one line, and not too long."""
    text = "".join(c if c.isprintable() else "?" for c in str(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def check_shape(shape: tuple[int, ...], max_voxels: int = MAX_VOXELS) -> None:
    """Three axes of two voxels or more, and no more voxels than the limit."""
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


def check_affine(affine: npt.NDArray[np.float64], what: str = "affine") -> list[str]:
    """Finite, positive spacing, three independent axes at right angles; returns warnings."""
    if not np.isfinite(affine).all():
        raise GeometryError(f"the {what} holds NaN or Inf; restore the geometry from the original scan")
    spacing = np.linalg.norm(affine[:3, :3], axis=0)
    if (spacing < 1e-9).any() or (spacing > 1e6).any():
        found = " × ".join(f"{s:g}" for s in spacing)
        raise GeometryError(
            f"the spacing is {found} mm by the {what}, expected positive numbers; "
            "restore the geometry from the original scan"
        )
    direction = affine[:3, :3] / spacing
    if abs(np.linalg.det(direction)) < 1e-3:
        raise GeometryError(
            f"the {what} is singular, so two axes point the same way; "
            "restore the geometry from the original scan"
        )
    cosines = np.abs(direction.T @ direction - np.eye(3)).max()
    if cosines > SHEAR:
        degrees = np.degrees(np.arcsin(min(1.0, cosines)))
        raise GeometryError(
            f"the axes of the {what} are sheared, {degrees:.2f} degrees away from right angles; "
            "resample the image to an orthogonal grid first"
        )
    if spacing.min() < 0.01 or spacing.max() > 50:
        found = " × ".join(f"{s:g}" for s in spacing)
        return [f"the spacing of {found} mm is unusual; are the units right?"]
    return []


def check_image_values(array: npt.NDArray[Any]) -> None:
    """No NaN, no Inf, and more than one value."""
    low, high = float(array.min()), float(array.max())  # NaN goes through both
    if not (np.isfinite(low) and np.isfinite(high)):
        nan, inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
        raise ImageError(
            f"{nan} NaN and {inf} Inf among {array.size} voxels, expected finite numbers; "
            "replace them, for example by the background value"
        )
    if low == high:
        raise ImageError(
            f"every voxel is {low:g}, expected an image with contrast; was the scan exported correctly?"
        )


def label_array(array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], list[str]]:
    """The label map in the smallest unsigned type that holds it, and warnings."""
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            broken = int(np.count_nonzero(np.rint(array) - array != 0))  # Inf - Inf and NaN count too
        if broken:
            raise ImageError(
                f"{broken} of {array.size} voxels are not whole numbers, expected a label map; "
                "was it resampled with interpolation? use nearest neighbour"
            )
    low, high = array.min(), array.max()
    if low < 0:
        raise ImageError(f"label value {low:g} is negative, expected 0 for background and 1, 2, …; renumber")
    if high >= 1 << 16:
        raise ImageError(f"label value {high:g} is above 65535; is this an image instead of a label map?")
    labels = array.astype(np.uint8 if high < 256 else np.uint16)
    return labels, ["the label map is empty: every voxel is background"] if high == 0 else []


def pick_volume(volumes: int, volume: int | None) -> int:
    """The index of the volume to read; a 4-D file needs a choice."""
    if volume is None and volumes > 1:
        raise ImageError(
            f"4-D, with {volumes} volumes, expected 3-D; pick one with --volume NAME=N "
            f"(volume=N in Python), N from 0 to {volumes - 1}"
        )
    if not 0 <= (volume or 0) < volumes:
        raise ImageError(f"there is no volume {volume}; expected a number from 0 to {volumes - 1}")
    return volume or 0


def grid_difference(one: Geometry, other: Geometry) -> str:
    """How two grids differ, in words with millimetres; empty where they are the same voxels."""
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
    """All images of a case lie on one grid; else says by how many millimetres they differ."""
    names = list(grids)
    for name in names[1:]:
        if difference := grid_difference(grids[names[0]], grids[name]):
            raise GeometryError(
                f"{case + ': ' if case else ''}{names[0]} and {name} lie on different grids: {difference}; "
                f"resample {name} to the grid of {names[0]} (veloxseg prepare does), and register them first "
                "if the patient moved (--register rigid)"
            )
