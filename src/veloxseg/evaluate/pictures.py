"""Pictures of a case: where prediction and label agree, drawn on the patient.

Colours are the paper's: true positive red, false positive yellow, false negative blue; where both hold a structure
but not the same one, violet. A voxel of a slice is painted half through; of a projection, by the first of these
that its ray meets. How a patient is turned and lit is in `views.py`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.evaluate.lesions import components
from veloxseg.evaluate.metrics import bounding_box
from veloxseg.evaluate.views import View, grey_level, png, to_radiological
from veloxseg.io import Geometry

__all__ = ["COLOURS", "Picture", "agreement", "draw_case", "shown_images"]

COLOURS = {
    "true positive": (229, 57, 53),
    "false positive": (255, 214, 0),
    "false negative": (41, 121, 255),
    "wrong structure": (186, 85, 211),
}
CLOSE_UP_MM = 20.0  # shown around the structures in a close-up
BACKGROUNDS = ("ct", "t1ce", "t1c", "flair")  # what a case is drawn on, if it is there; else its first image

Array = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A PNG with what it shows."""

    title: str
    png: bytes


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
    x, y, z = focus(code.array)
    name = next(iter(shown_images(images)), None)
    if name is None:
        grey = View(array=np.full(label.shape, 24, dtype=np.uint8), spacing=code.spacing)
    else:
        image = to_radiological(images[name], geometry)
        grey = View(array=grey_level(image.array, name), spacing=image.spacing)
    across, along = (code.spacing[0], code.spacing[1]), (code.spacing[0], code.spacing[2])
    title = f"{name}, " if name else ""
    body = bounding_box(grey.array > 12) if name else tuple(slice(0, n) for n in code.array.shape)
    body = tuple(_hull(a, b) for a, b in zip(body, bounding_box(code.array), strict=True))
    yield _slice(f"{title}axial", grey.array[:, :, z][body[:2]], code.array[:, :, z][body[:2]], across, "RLAP")
    near = _surrounding(code.array[:, :, z], across)
    yield _slice(f"{title}axial, close-up", grey.array[:, :, z][near], code.array[:, :, z][near], across, "RLAP")
    side = body[0], body[2]
    yield _slice(f"{title}coronal", grey.array[:, y][side], code.array[:, y][side], along, "RLSI")
    if "pet" in images:
        pet = to_radiological(images["pet"], geometry).array
        yield from _projections(pet, code)


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
    x, y, z = (
        box[axis].start + int(np.argmax(largest.sum(axis=tuple(a for a in range(3) if a != axis)))) for axis in range(3)
    )
    return x, y, z


def _projections(pet: Array, code: View) -> Iterator[Picture]:
    """The brightest voxel of each ray; hot is dark, as nuclear medicine prints it."""
    priority = np.array([0, 4, 2, 3, 1], dtype=np.uint8)  # of a ray's voxels: agreement, then missed, then made up
    by_rank = np.argsort(priority).astype(np.uint8)
    for axis, title, letters in ((1, "front", "RLSI"), (0, "side", "APSI")):
        rays = 255 - grey_level(pet.max(axis=axis), "pet")
        found = by_rank[priority[code.array].max(axis=axis)]
        spacing = code.spacing[1 - axis], code.spacing[2]
        yield _slice(f"PET projection, {title}", rays, found, spacing, letters)


def _slice(title: str, grey: Array, code: Array, spacing: tuple[float, float], letters: str) -> Picture:
    return Picture(title=title, png=png(grey, code, spacing, letters, tuple(COLOURS.values())))


def _hull(one: slice, other: slice) -> slice:
    if one.start == one.stop or other.start == other.stop:
        return other if one.start == one.stop else one
    return slice(min(one.start, other.start), max(one.stop, other.stop))


def _surrounding(code: Array, spacing: tuple[float, float]) -> tuple[slice, ...]:
    """A square around all that is coloured, with a margin, inside the image."""
    box = bounding_box(code) if code.any() else tuple(slice(0, n) for n in code.shape)
    half = max((part.stop - part.start) * step for part, step in zip(box, spacing, strict=True)) / 2 + CLOSE_UP_MM
    result = []
    for part, step, size in zip(box, spacing, code.shape, strict=True):
        centre = (part.start + part.stop) / 2
        result.append(slice(max(0, round(centre - half / step)), min(size, round(centre + half / step))))
    return tuple(result)
