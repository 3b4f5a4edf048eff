"""A picture per case, to look at before training: three planes through the largest lesion, a row per modality."""

from pathlib import Path

import numpy as np

from veloxseg.console import progress
from veloxseg.errors import shown
from veloxseg.files import atomic_path, writable_folder
from veloxseg.image.drawing import Panel, draw_sheet
from veloxseg.image.views import PLANES, grey_level, palette, to_radiological, widest_cut, window
from veloxseg.prepare.plan import ModalityPlan
from veloxseg.prepare.store import Prepared
from veloxseg.types import Floats

__all__ = ["draw_contact_sheet", "draw_contact_sheets"]

WIDTH = 1100  # pixels of the three planes together


def draw_contact_sheets(prepared: Prepared) -> Path:
    """`PREPARED/pictures/<case>.png` for every case."""
    folder = writable_folder(prepared.path / "pictures")
    for case in progress(prepared.cases, "pictures"):
        draw_contact_sheet(prepared, case.name, folder / f"{case.name}.png")
    return folder


def draw_contact_sheet(prepared: Prepared, name: str, path: Path) -> None:
    """Rows are modalities, columns are planes, all in one scale; outlines are labels."""
    plan, grid = prepared.plan, prepared.placement(name).network
    stored = prepared.image(name)
    label = to_radiological(np.asarray(prepared.label(name)), grid)
    place = widest_cut((label.array != 0) & (label.array != (plan.ignore_label or 0)))
    values = [value for value in np.unique(label.array).tolist() if value]
    colours = palette(values, plan.ignore_label)
    rows = []
    for channel, modality in enumerate(plan.modalities):
        image, limits = _in_grey_values(np.asarray(stored[channel], np.float32), modality)
        view = to_radiological(image, grid)
        rows.append(
            [
                Panel(
                    picture=grey_level(view.cut(plane, place), limits, modality.kind),
                    plane=plane,
                    pixel=view.pixel(plane),
                    code=label.cut(plane, place),
                    colours=colours,
                    caption=f"{shown(modality.name, 30)}, {plane.name}",
                )
                for plane in PLANES
            ]
        )
    names = {value: label_name for label_name, value in plan.labels.items()}
    legend = [(shown(names.get(value, f"label {value}"), 40), colours[value]) for value in values]
    shape = " × ".join(map(str, label.array.shape))
    spacing = " × ".join(f"{step:.3g}" for step in label.spacing)
    title = f"{shown(name, 60)}: {shape} voxels of {spacing} mm" + ("" if values else ", no label")
    sheet = draw_sheet(rows, title, legend, scale=WIDTH / sum(panel.width_mm for panel in rows[0]))
    with atomic_path(path) as temporary:
        sheet.save(temporary, format="PNG")


def _in_grey_values(image: Floats, modality: ModalityPlan) -> tuple[Floats, tuple[float, float]]:
    """A channel of the network and its window; CT goes back to Hounsfield units, so that its own window applies."""
    scale = modality.normalisation
    if scale.scheme == "clip_zscore" and scale.mean is not None and scale.std is not None:
        image = image * scale.std + scale.mean
        return image, window(image, modality.kind)
    return image, window(image, modality.kind, air=float(image.min()))
