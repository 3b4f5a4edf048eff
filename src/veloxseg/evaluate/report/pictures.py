"""Pictures of a case: where prediction and label agree, drawn on the patient.

Colours are the paper's: true positive red, false positive yellow, false negative blue; where both hold a structure
but not the same one, violet. A voxel of a slice is painted half through; of a projection, by the first of these
that its ray meets. How a patient is turned and lit is in `views.py`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from veloxseg.errors import ConfigError, shown
from veloxseg.image import Geometry
from veloxseg.image.drawing import FILL, Panel, draw_panel, png
from veloxseg.image.regions import bounding_box
from veloxseg.image.views import (
    AXIAL,
    CORONAL,
    SAGITTAL,
    Grey,
    Plane,
    View,
    grey_level,
    shown_box,
    to_radiological,
    widest_cut,
    window,
)
from veloxseg.modality import canonical_name, kind_of
from veloxseg.types import Array, Mask, Size

__all__ = ["COLOURS", "Picture", "agreement", "draw_case", "drawn_on", "shown_images"]

COLOURS = {
    "true positive": (229, 57, 53),
    "false positive": (255, 214, 0),
    "false negative": (41, 121, 255),
    "wrong structure": (186, 85, 211),
}
CLOSE_UP_MM = 20.0  # what a close-up shows around the structures
CLOSE_UP_WORTH = 0.6  # a close-up of more than this part of the slice shows nothing new
BACKGROUNDS = ("ct", "t1ce", "t1c", "flair")  # what a case is drawn on, if it is there; else its first image


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A PNG with what it shows."""

    title: str
    plane: str  # "axial", "coronal" or "projection"
    png: bytes
    aspect: float  # width / height


def draw_case(
    prediction: Array, label: Array, geometry: Geometry, images: Mapping[str, Array], values: Iterable[int]
) -> Iterator[Picture]:
    """A slice through the largest lesion from two sides, a close-up, and projections if there is a PET image.

    All arrays lie on `geometry`; `values` are the label values to show.
    """
    wanted = np.array(sorted(values), np.int64)
    shown = [np.where(np.isin(array, wanted), array, 0) for array in (prediction, label)]
    code = to_radiological(agreement(*shown), geometry)
    place = focus(code.array)
    near = _surrounding(code.cut(AXIAL, place), code.pixel(AXIAL))
    name = next(iter(shown_images(images)), None)
    if name is None:
        view, kind, limits, title = View(array=np.zeros_like(code.array), spacing=code.spacing), "other", (0.0, 1.0), ""
    else:
        view, kind = to_radiological(images[name], geometry), kind_of(name)
        limits = window(view.array, kind)
        title = "" if name == "image" else f"{name.upper() if len(name) < 6 else name}, "
    body = shown_box(view.array, limits, code.array > 0)

    def cut(caption: str, plane: Plane, part: tuple[slice, ...]) -> Picture:
        grey = grey_level(view.cut(plane, place)[part], limits, kind)
        return _picture(title + caption, plane.name, grey, code.cut(plane, place)[part], code, plane)

    yield cut("axial", AXIAL, body[:2])
    if _area(near) < CLOSE_UP_WORTH * _area(body[:2]):
        yield cut("axial, close-up", AXIAL, near)
    yield cut("coronal", CORONAL, (body[0], body[2]))
    for name, image in images.items():
        if kind_of(name) == "pet":
            yield from _projections(to_radiological(image, geometry), code)
            break


def shown_images(names: Iterable[str]) -> list[str]:
    """The images of a case that `draw_case` looks at: the background, and PET."""
    names = list(names)
    others = sorted(names, key=lambda name: kind_of(name) == "pet")  # PET has pictures of its own
    background = [name for name in (*BACKGROUNDS, *others) if name in names][:1]
    return background + [name for name in names if kind_of(name) == "pet" and name not in background][:1]


def drawn_on(images: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, dict[str, Any]]:
    """Case → the images to draw it on, if the modality `name` is wanted: that one, and PET for the projections."""
    wanted = canonical_name(name)
    if not any(wanted in files for files in images.values()):
        known = dict.fromkeys(modality for files in images.values() for modality in files)
        raise ConfigError(f"no case has an image {shown(name)!r} to draw on; there is {', '.join(known) or 'none'}")
    return {
        case: {modality: file for modality, file in files.items() if modality == wanted or kind_of(modality) == "pet"}
        for case, files in images.items()
    }


def agreement(prediction: Array, label: Array) -> Grey:
    """0 where nothing is, else 1 + the position in `COLOURS`."""
    code = np.zeros(label.shape, dtype=np.uint8)
    predicted, labelled = prediction > 0, label > 0
    code[predicted & ~labelled] = 2
    code[labelled & ~predicted] = 3
    both = predicted & labelled
    code[both] = np.where(prediction[both] == label[both], 1, 4)
    return code


def focus(code: Grey) -> Size:
    """The voxel whose three planes cut most of the largest labelled lesion (or predicted, if nothing is labelled)."""
    labelled: Mask = (code > 0) & (code != 2)
    return widest_cut(labelled if labelled.any() else code > 0)


def _projections(pet: View, code: View) -> Iterator[Picture]:
    """Maximum-intensity projections: the brightest voxel of each ray."""
    # which of a ray's voxels gives the colour: agreement, then missed, then made up
    priority = np.array([0, 4, 2, 3, 1], dtype=np.uint8)
    by_rank = np.argsort(priority).astype(np.uint8)
    ranks = View(array=priority[code.array], spacing=code.spacing)
    for plane, side in ((CORONAL, "front"), (SAGITTAL, "side")):
        brightest = pet.projection(plane)
        rays = grey_level(brightest, window(brightest, "pet"), "pet")
        yield _picture(f"PET MIP, {side}", "projection", rays, by_rank[ranks.projection(plane)], code, plane)


def _picture(title: str, kind: str, grey: Grey, marks: Array, view: View, plane: Plane) -> Picture:
    colours = dict(enumerate(COLOURS.values(), start=1))
    panel = Panel(picture=grey, plane=plane, pixel=view.pixel(plane), code=marks, colours=colours, fill=FILL)
    return Picture(title=title, plane=kind, png=png(draw_panel(panel)), aspect=panel.aspect)


def _area(box: tuple[slice, ...]) -> int:
    return math.prod(part.stop - part.start for part in box)


def _surrounding(code: Array, spacing: tuple[float, float]) -> tuple[slice, ...]:
    """A square around all that is coloured, with a margin, inside the image."""
    box = bounding_box(code) if code.any() else tuple(slice(0, n) for n in code.shape)
    half = max((part.stop - part.start) * step for part, step in zip(box, spacing, strict=True)) / 2 + CLOSE_UP_MM
    result = []
    for part, step, size in zip(box, spacing, code.shape, strict=True):
        centre = (part.start + part.stop) / 2
        result.append(slice(max(0, round(centre - half / step)), min(size, round(centre + half / step))))
    return tuple(result)
