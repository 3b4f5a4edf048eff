"""Draws synthetic patients for the documentation: `python -m veloxseg.phantom.picture docs/images`."""

import sys
from pathlib import Path

import numpy as np

from veloxseg.image.drawing import FILL, Panel, draw_sheet
from veloxseg.image.resample import resample_image
from veloxseg.image.views import AXIAL, CORONAL, grey_level, palette, to_radiological, widest_cut, window
from veloxseg.phantom import brain, petct
from veloxseg.phantom.scans import Scans

__all__ = ["brain_picture", "petct_picture"]

SUV = (0.0, 8.0)  # black and white of PET


def petct_picture(patients: list[Scans], path: Path) -> None:
    """Per patient: the coronal CT slice through the largest lesion, and PET seen from the front with all outlined."""
    panels = []
    for patient in patients:
        grid = patient.label.geometry
        label = to_radiological(patient.label.array, grid)
        colours = palette(np.unique(label.array).tolist())
        ct = to_radiological(resample_image(patient.images["ct"], grid, "linear", -1000.0), grid)
        pet = to_radiological(resample_image(patient.images["pet"], grid, "linear", 0.0), grid)
        place = widest_cut(label.array > 0)
        panels += [
            Panel(
                picture=grey_level(ct.cut(CORONAL, place), window(ct.array, "ct")),
                plane=CORONAL,
                pixel=label.pixel(CORONAL),
                code=label.cut(CORONAL, place),
                colours=colours,
                caption="CT",
                fill=FILL,
            ),
            Panel(
                picture=grey_level(pet.projection(CORONAL), SUV, "pet"),
                plane=CORONAL,
                pixel=label.pixel(CORONAL),
                code=label.projection(CORONAL),
                colours=colours,
                caption="PET projection",
            ),
        ]
    title = f"Synthetic patients: CT with lesions, and PET (SUV {SUV[0]:g} to {SUV[1]:g}) seen from the front"
    _save([panels], title, path, height=340)


def brain_picture(patient: Scans, path: Path) -> None:
    """The axial slice with most tumour in the four sequences, and its labels."""
    grid = patient.label.geometry
    label = to_radiological(patient.label.array, grid)
    place = widest_cut(label.array > 0)
    views = {name: to_radiological(volume.array, grid) for name, volume in patient.images.items()}
    panels = [
        Panel(
            picture=grey_level(view.cut(AXIAL, place), window(view.array, "mr")),
            plane=AXIAL,
            pixel=view.pixel(AXIAL),
            caption=name,
        )
        for name, view in views.items()
    ]
    code = label.cut(AXIAL, place)
    labelled = Panel(
        picture=grey_level(views["flair"].cut(AXIAL, place), window(views["flair"].array, "mr")),
        plane=AXIAL,
        pixel=label.pixel(AXIAL),
        code=code,
        colours=palette(np.unique(code).tolist()),
        caption="labels 1, 2, 4",
        fill=FILL,
    )
    _save([[*panels, labelled]], "A synthetic brain with a tumour", path, height=230)


def _save(rows: list[list[Panel]], title: str, path: Path, height: int) -> None:
    """Writes a sheet whose panels are `height` pixels high."""
    draw_sheet(rows, title, scale=height / rows[0][0].height_mm).save(path, format="PNG", optimize=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    patients = [petct.render(petct.draw(0, index), (160, 108, 320)) for index in (2, 3, 4, 8)]
    petct_picture(patients, folder / "phantom.png")
    brain_picture(brain.render(brain.draw(0, 3), (168, 204, 160)), folder / "phantom-brain.png")
