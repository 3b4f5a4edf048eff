"""Methods side by side as surfaces: a row for each case, the reference in front, a column for each method.

Colours are the paper's. Of one structure, true positives are red, false positives yellow and false negatives blue;
these two hide what lies behind them by their thickness, so that a rim of a voxel does not look like a mistake. Of
several, each structure has its colour (ET red, TC yellow, WT green), and one that encloses another is translucent. All
pictures of a row are taken by one camera.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.evaluate.report.html import Html, data_uri, element
from veloxseg.evaluate.report.pictures import COLOURS
from veloxseg.image.drawing import Panel, draw_panel, png
from veloxseg.image.surfaces import SURFACE, Camera, Layer, shaded
from veloxseg.image.views import Colour, palette, to_radiological
from veloxseg.types import Array, Mask

__all__ = ["colour_key", "side_by_side", "structure_colours"]

PAPER: dict[str, Colour] = {"ET": (229, 57, 53), "TC": (255, 214, 0), "WT": (67, 160, 71)}
RIM_MM = 3.0  # of a mistake, hides half of what lies behind it
SHELL_MM = 15.0  # of a structure that encloses another one

Structures = Mapping[str, tuple[int, ...]]


def side_by_side(evaluation: Evaluation, cases: Sequence[str]) -> Iterator[Html]:
    """The grid of `cases` × methods with its key."""
    structures = evaluation.structures
    several = len(structures) > 1
    yield colour_key(structure_colours(structures) if several else dict(list(COLOURS.items())[:3]))
    for case in cases:
        yield element("h3", case)
        yield _row(evaluation, case)
    note = "Seen from the front, 30° from the patient's right and 20° from above; one camera for each row."
    yield element("p", element("small", note))


def structure_colours(structures: Structures) -> dict[str, Colour]:
    """The paper's colours of the regions of a glioma, else those of the palette."""
    if set(structures) <= PAPER.keys():
        return {name: PAPER[name] for name in structures}
    return dict(zip(structures, palette(range(1, len(structures) + 1)).values(), strict=True))


def colour_key(colours: Mapping[str, Colour]) -> Html:
    swatches = (element("li", element("i", style=f"background:rgb{colour}"), name) for name, colour in colours.items())
    return element("ul", *swatches, class_="key")


def _row(evaluation: Evaluation, case: str) -> Html:
    """The reference and every method that predicted the case."""
    label = evaluation.masks.label(case)
    predictions = {
        method: evaluation.masks.prediction(method, case, label).array
        for method in evaluation.methods
        if case in evaluation.prediction_files[method]
    }
    views = {name: to_radiological(array, label.geometry).array for name, array in predictions.items()}
    truth = to_radiological(label.array, label.geometry)
    values = sorted({value for members in evaluation.structures.values() for value in members})
    everything: Mask = np.isin(truth.array, values)
    for view in views.values():
        everything = everything | np.isin(view, values)
    if not everything.any():
        return element("p", "nothing is labelled or predicted", class_="soft")
    camera = Camera.around(everything, truth.spacing)
    volume = np.isin(truth.array, values).sum() * label.geometry.voxel_ml
    cells = [_cell("Reference", f"{volume:.1f} mL", _picture(truth.array, truth.array, evaluation.structures, camera))]
    for method in evaluation.methods:
        if method in views:
            picture = _picture(views[method], truth.array, evaluation.structures, camera)
            cells.append(_cell(method, _dice_words(evaluation, method, case), picture))
        else:
            cells.append(_cell(method, "no prediction", None))
    return element("div", *cells, class_="side", style=f"--columns:{len(cells)}")


def _picture(prediction: Array, label: Array, structures: Structures, camera: Camera) -> bytes:
    if len(structures) > 1:
        layers = _by_structure(prediction, structures, camera)
    else:
        (values,) = structures.values()
        layers = _by_agreement(np.isin(prediction, values), np.isin(label, values), camera)
    return png(draw_panel(Panel(picture=shaded(layers, camera), plane=SURFACE, pixel=camera.pixel)))


def _by_agreement(prediction: Mask, label: Mask, camera: Camera) -> list[Layer]:
    """Where both hold the structure, and behind glass where only one does."""
    red, yellow, blue = list(COLOURS.values())[:3]
    predicted, labelled = camera.field(prediction), camera.field(label)
    return [
        Layer(np.minimum(predicted, labelled), red),
        Layer(np.minimum(predicted, 1 - labelled), yellow, RIM_MM),
        Layer(np.minimum(labelled, 1 - predicted), blue, RIM_MM),
    ]


def _by_structure(mask: Array, structures: Structures, camera: Camera) -> list[Layer]:
    """Every structure in its colour; the outermost last, so that it covers the others."""
    colours = structure_colours(structures)
    inner_first = sorted(structures, key=lambda name: len(structures[name]))
    return [
        Layer(camera.field(np.isin(mask, structures[name])), colours[name], SHELL_MM * _encloses(name, structures))
        for name in inner_first
    ]


def _encloses(name: str, structures: Structures) -> bool:
    """Whether it holds all values of another structure, and more."""
    return any(set(members) < set(structures[name]) for members in structures.values())


def _cell(name: str, words: str, picture: bytes | None) -> Html:
    shown = element("img", src=data_uri(picture), alt=f"{name}: surfaces") if picture is not None else Html("")
    return element("figure", shown, element("figcaption", element("b", name), element("br"), words))


def _dice_words(evaluation: Evaluation, method: str, case: str) -> str:
    """Dice of the case; of several structures their mean, and each."""
    index = evaluation.cases.index(case)
    found = {s: evaluation.select(method, s)[index].scores.dice for s in evaluation.structures}
    defined = {name: value for name, value in found.items() if not math.isnan(value)}
    if not defined:
        return "correctly empty"
    words = f"Dice {math.fsum(defined.values()) / len(defined):.3f}"
    single = ", ".join(f"{name} {value:.2f}" for name, value in defined.items())
    return f"{words} ({single})" if 1 < len(found) < 5 else words
