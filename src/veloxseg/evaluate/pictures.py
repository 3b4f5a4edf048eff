"""Pictures of a case: where prediction and label agree, drawn on the patient.

Colours are the paper's: true positive red, false positive yellow, false negative blue; where both hold a structure
but not the same one, violet. A voxel of a slice is painted half through; of a projection, by the first of these
that its ray meets. How a patient is turned and lit is in `views.py`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from veloxseg.evaluate.lesions import components
from veloxseg.evaluate.metrics import bounding_box
from veloxseg.evaluate.views import View, grey_level, png, to_radiological, window
from veloxseg.io import Geometry

__all__ = ["COLOURS", "Picture", "agreement", "draw_case", "shown_images"]

COLOURS = {
    "true positive": (229, 57, 53),
    "false positive": (255, 214, 0),
    "false negative": (41, 121, 255),
    "wrong structure": (186, 85, 211),
}
CLOSE_UP_MM = 20.0  # shown around the structures in a close-up
CLOSE_UP_WORTH = 0.6  # part of the slice beyond which a close-up shows nothing new
BACKGROUNDS = ("ct", "t1ce", "t1c", "flair")  # what a case is drawn on, if it is there; else its first image

Array = npt.NDArray[Any]
Plane = Literal["axial", "coronal", "projection"]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A PNG with what it shows."""

    title: str
    plane: Plane
    png: bytes
    aspect: float  # width / height


def draw_case(
    prediction: Array, label: Array, geometry: Geometry, images: Mapping[str, Array], values: Iterable[int]
) -> Iterator[Picture]:
    """A slice through the largest lesion from two sides, a close-up, and projections if there is a PET image.

    All arrays lie on `geometry`; `values` are the label values to show.
    """
    shown = np.zeros(int(max(prediction.max(), label.max())) + 1, dtype=label.dtype)
    wanted = [value for value in values if value < len(shown)]
    shown[wanted] = wanted
    code = to_radiological(agreement(shown[prediction], shown[label]), geometry)
    _, y, z = focus(code.array)
    across, along = (code.spacing[0], code.spacing[1]), (code.spacing[0], code.spacing[2])
    near = _surrounding(code.array[:, :, z], across)
    name = next(iter(shown_images(images)), None)
    if name is None:
        image, limits, title = np.zeros_like(code.array), (0.0, 255.0), ""
    else:
        image = to_radiological(images[name], geometry).array
        limits, title = (
            window(image, name),
            "" if name == "image" else f"{name.upper() if len(name) < 6 else name}, ",
        )
    body = _hull(_body(image, limits), bounding_box(code.array))

    def cut(caption: str, plane: tuple[Any, ...], part: tuple[slice, ...]) -> Picture:
        grey, colours = grey_level(image[plane][part], limits), code.array[plane][part]
        if caption.startswith("axial"):
            return _picture(title + caption, "axial", grey, colours, across, "RLAP")
        return _picture(title + caption, "coronal", grey, colours, along, "RLSI")

    everything = slice(None)
    yield cut("axial", (everything, everything, z), body[:2])
    if _area(near) < CLOSE_UP_WORTH * _area(body[:2]):
        yield cut("axial, close-up", (everything, everything, z), near)
    yield cut("coronal", (everything, y), (body[0], body[2]))
    if "pet" in images:
        yield from _projections(to_radiological(images["pet"], geometry).array, code)


def shown_images(names: Iterable[str]) -> list[str]:
    """Of a case's images, those that `draw_case` looks at: the background, and PET."""
    names = list(names)
    background = [name for name in (*BACKGROUNDS, *names) if name in names][:1]
    return background + [name for name in names if name == "pet" and name not in background]


def agreement(prediction: Array, label: Array) -> npt.NDArray[np.uint8]:
    """0 where nothing is, else 1 + the position in `COLOURS`."""
    code = np.zeros(label.shape, dtype=np.uint8)
    predicted, labelled = prediction > 0, label > 0
    code[predicted & ~labelled] = 2
    code[labelled & ~predicted] = 3
    both = predicted & labelled
    code[both] = np.where(prediction[both] == label[both], 1, 4)
    return code


def focus(code: npt.NDArray[np.uint8]) -> tuple[int, int, int]:
    """The voxel whose three planes cut most of the largest labelled lesion (or predicted, if nothing is labelled)."""
    mask = (code > 0) & (code != 2)
    if not mask.any():
        mask = code > 0
    if not mask.any():
        x, y, z = (size // 2 for size in code.shape)
        return x, y, z
    box = bounding_box(mask)
    numbered, sizes = components(mask[box])
    largest = numbered == 1 + int(np.argmax(sizes))
    places = []
    for axis in range(3):
        areas = largest.sum(axis=tuple(other for other in range(3) if other != axis))
        best = np.flatnonzero(areas == areas.max())
        places.append(box[axis].start + int(best[len(best) // 2]))  # of equal planes, the middle one
    x, y, z = places
    return x, y, z


def _projections(pet: Array, code: View) -> Iterator[Picture]:
    """Maximum-intensity projections: the brightest voxel of each ray; hot is dark, as nuclear medicine prints it."""
    # which of a ray's voxels gives the colour: agreement, then missed, then made up
    priority = np.array([0, 4, 2, 3, 1], dtype=np.uint8)
    by_rank = np.argsort(priority).astype(np.uint8)
    ranks = priority[code.array]
    for axis, side, letters in ((1, "front", "RLSI"), (0, "side", "APSI")):
        brightest = pet.max(axis=axis)
        rays = 255 - grey_level(brightest, window(brightest, "pet"))
        spacing = code.spacing[1 - axis], code.spacing[2]
        yield _picture(
            f"PET MIP, {side}", "projection", rays, by_rank[ranks.max(axis=axis)], spacing, letters
        )


def _picture(
    title: str, plane: Plane, grey: Array, code: Array, spacing: tuple[float, float], letters: str
) -> Picture:
    aspect = grey.shape[0] * spacing[0] / (grey.shape[1] * spacing[1])
    drawn = png(grey, code, spacing, letters, tuple(COLOURS.values()))
    return Picture(title=title, plane=plane, png=drawn, aspect=aspect)


def _body(image: Array, limits: tuple[float, float]) -> tuple[slice, ...]:
    """The box around what is not black; all of a black image."""
    box = bounding_box(image > limits[0] + 0.05 * (limits[1] - limits[0]))
    return box if box[0].stop else tuple(slice(0, size) for size in image.shape)


def _hull(box: tuple[slice, ...], other: tuple[slice, ...]) -> tuple[slice, ...]:
    """The box around two boxes; the first is never empty."""
    if not other[0].stop:
        return box
    return tuple(slice(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(box, other, strict=True))


def _area(box: tuple[slice, ...]) -> int:
    return math.prod(part.stop - part.start for part in box)


def _surrounding(code: Array, spacing: tuple[float, float]) -> tuple[slice, ...]:
    """A square around all that is coloured, with a margin, inside the image."""
    box = bounding_box(code) if code.any() else tuple(slice(0, n) for n in code.shape)
    half = (
        max((part.stop - part.start) * step for part, step in zip(box, spacing, strict=True)) / 2
        + CLOSE_UP_MM
    )
    result = []
    for part, step, size in zip(box, spacing, code.shape, strict=True):
        centre = (part.start + part.stop) / 2
        result.append(slice(max(0, round(centre - half / step)), min(size, round(centre + half / step))))
    return tuple(result)
