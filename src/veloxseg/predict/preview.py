"""One picture per case: PET from the front and from the side, and slices through the largest lesion with outlines.

A projection shows the brightest voxel along each ray, which finds hot lesions in PET and nothing in CT or MR: without
PET there are slices only.
"""

from pathlib import Path

import numpy as np

from veloxseg.errors import shown
from veloxseg.image import Volume
from veloxseg.image.drawing import Panel, draw_sheet
from veloxseg.image.views import (
    CORONAL,
    IGNORED,
    PLANES,
    SAGITTAL,
    Colour,
    View,
    fused,
    grey_level,
    palette,
    shown_box,
    to_radiological,
    widest_cut,
    window,
)
from veloxseg.modality import KINDS
from veloxseg.predict.result import Segmentation

__all__ = ["draw"]

NAMES = {"ct": "CT", "other": "scan", "pet": "PET"}


def draw(result: Segmentation, pet: Volume | None, anatomy: Volume | None, path: Path, *, title: str) -> None:
    """Writes the picture; `pet` and `anatomy` lie on the grid of the mask, and one of them is there."""
    labels = to_radiological(result.array, result.geometry)
    images = {
        kind: to_radiological(volume.array, result.geometry)
        for kind, volume in (("pet", pet), (_kind(anatomy), anatomy))
        if volume is not None
    }
    limits = {kind: window(view.array, kind) for kind, view in images.items()}
    widest = next((kind for kind in images if kind != "pet"), "pet")
    box = shown_box(images[widest].array, limits[widest], labels.array > 0)
    labels = labels.within(box)
    images = {kind: view.within(box) for kind, view in images.items()}
    panels = [*_projections(images, labels), *_slices(images, limits, labels)]
    draw_sheet([panels], shown(title, 100), _legend(result)).save(path, format="PNG")


def _legend(result: Segmentation) -> list[tuple[str, Colour]]:
    """Every label with its volume, in its colour; one that was not found is grey."""
    present = set(np.unique(result.array).tolist())
    volumes = {value: result.volumes_ml[name] for value, name in result.names.items() if name in result.volumes_ml}
    colours = palette(volumes)
    return [
        (f"{shown(result.names[value], 40)}  {ml:.2f} mL", colours[value] if value in present else IGNORED)
        for value, ml in volumes.items()
    ]


def _kind(anatomy: Volume | None) -> str:
    """The anatomy is CT if it shows air as CT does; any other scan is lit by its own values."""
    darkest = KINDS["ct"].lowest
    return "ct" if anatomy is not None and darkest is not None and anatomy.array.min() < darkest[1] else "other"


def _projections(images: dict[str, View], labels: View) -> list[Panel]:
    if "pet" not in images:
        return []
    panels = []
    for plane in (CORONAL, SAGITTAL):
        brightest = images["pet"].projection(plane)
        code = labels.projection(plane)
        panels.append(
            Panel(
                picture=grey_level(brightest, window(brightest, "pet"), "pet"),
                plane=plane,
                pixel=labels.pixel(plane),
                code=code,
                colours=palette(np.unique(code).tolist()),
                caption=f"PET, {plane.name} projection",
            )
        )
    return panels


def _slices(images: dict[str, View], limits: dict[str, tuple[float, float]], labels: View) -> list[Panel]:
    """Three planes through the largest lesion: PET over anatomy, or the one that is there."""
    place = widest_cut(labels.array > 0)
    anatomy = next((kind for kind in images if kind != "pet"), None)
    panels = []
    for plane in PLANES:
        if anatomy is None:
            picture = grey_level(images["pet"].cut(plane, place), limits["pet"], "pet")
        else:
            picture = grey_level(images[anatomy].cut(plane, place), limits[anatomy])
            if "pet" in images:
                picture = fused(picture, images["pet"].cut(plane, place), limits["pet"])
        code = labels.cut(plane, place)
        names = " + ".join(NAMES[kind] for kind in (anatomy, "pet") if kind is not None and kind in images)
        panels.append(
            Panel(
                picture=picture,
                plane=plane,
                pixel=labels.pixel(plane),
                code=code,
                colours=palette(np.unique(code).tolist()),
                caption=f"{names}, {plane.name}",
            )
        )
    return panels
