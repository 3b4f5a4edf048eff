"""How a patient is shown: turned as radiologists look, in true proportions, with grey levels that suit the scan.

Every picture maker (preview of a prediction, contact sheet, report, phantoms) takes its planes, windows and colours
from here, and draws with `drawing.py`. The patient's right is on the left of axial and coronal pictures, the front is
to the left of sagittal ones, and the head is up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import numpy.typing as npt

from veloxseg.image.regions import bounding_box, box_around, components, nonzero_box
from veloxseg.image.volume import Geometry
from veloxseg.modality import KINDS
from veloxseg.types import Array, Box, Mask, Size, Spacing

__all__ = [
    "AXIAL",
    "CORONAL",
    "IGNORED",
    "PLANES",
    "SAGITTAL",
    "Colour",
    "Grey",
    "Plane",
    "View",
    "fused",
    "grey_level",
    "palette",
    "shown_box",
    "to_radiological",
    "widest_cut",
    "window",
]

Grey = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]  # red, green, blue from 0 to 255

# the first ones are told apart by the colour-blind too; each further label gets what is farthest from all before it
FIRST_COLOURS: tuple[Colour, ...] = (
    (255, 90, 54), (53, 196, 255), (255, 210, 63), (123, 216, 143), (199, 146, 234), (255, 158, 205)
)  # fmt: skip
MOST_COLOURS = 200  # beyond, colours come again: nobody tells so many apart
IGNORED: Colour = (160, 160, 160)


@dataclass(frozen=True)
class Plane:
    """A way to cut the patient: along which axis one looks, and what lies left, right, above and below."""

    name: str
    axis: int
    letters: str


AXIAL, CORONAL, SAGITTAL = Plane("axial", 2, "RLAP"), Plane("coronal", 1, "RLSI"), Plane("sagittal", 0, "APSI")
PLANES = (AXIAL, CORONAL, SAGITTAL)


@dataclass(frozen=True, kw_only=True)
class View:
    """An array whose axes run from the patient's right to left, anterior to posterior, superior to inferior."""

    array: Array
    spacing: Spacing

    def cut(self, plane: Plane, place: Size) -> Array:
        """The slice through a voxel, as (columns, rows)."""
        return self.array[(slice(None),) * plane.axis + (place[plane.axis],)]

    def projection(self, plane: Plane) -> Array:
        """The highest value along each ray, as (columns, rows)."""
        return self.array.max(axis=plane.axis)

    def pixel(self, plane: Plane) -> tuple[float, float]:
        """Millimetres of a voxel along columns and rows of the plane's pictures."""
        across, down = (step for axis, step in enumerate(self.spacing) if axis != plane.axis)
        return across, down

    def within(self, box: Box) -> "View":
        return View(array=self.array[box], spacing=self.spacing)


def to_radiological(array: Array, geometry: Geometry) -> View:
    """Reorders and flips axes without interpolation; an oblique scan is shown along its own axes."""
    # patient axes point to the right, the front and the head: those of a picture run the other way
    turned = geometry.orientation.apply(array)[::-1, ::-1, ::-1]
    return View(array=turned, spacing=geometry.in_ras().spacing)


def window(image: Array, kind: str, air: float | None = None) -> tuple[float, float]:
    """What is black and what is white, by the kind of the scan (`modality.KINDS`), else by percentiles.

    `air` is the value of air in a scan whose intensities were normalised, so that fixed values do not apply.
    """
    facts = KINDS.get(kind, KINDS["other"])
    if facts.grey_window is not None and air is None:
        return facts.grey_window
    sample = image.ravel(order="K")[:: max(1, image.size // 200_000)]  # enough for a percentile
    sample = sample[sample != sample.min()]
    low, high = np.percentile(sample, (1, 99.5)) if len(sample) else (0.0, 1.0)
    if facts.starts_at_air:
        low = facts.air if air is None else air
    return float(low), float(max(high, low + 1e-6))


def grey_level(image: Array, limits: tuple[float, float], kind: str = "other") -> Grey:
    """0 to 255 between the limits of a `window`; hot is dark in PET, as nuclear medicine prints it."""
    low, high = limits
    scaled = (np.asarray(image, dtype=np.float32) - low) * (255 / max(high - low, 1e-6))
    grey = np.asarray(np.clip(scaled, 0, 255), dtype=np.uint8)
    return 255 - grey if KINDS.get(kind, KINDS["other"]).inverted else grey


def fused(anatomy: Grey, uptake: Array, limits: tuple[float, float]) -> Grey:
    """PET in the colours of heat over grey anatomy, (…, 3); only what is hot covers the anatomy."""
    heat = np.clip((np.asarray(uptake, np.float32) - limits[0]) / (limits[1] - limits[0]), 0, 1)
    colours = np.clip(3 * heat[..., None] - (0, 1, 2), 0, 1) * 255
    share = 0.7 * heat[..., None]
    return np.asarray(anatomy[..., None] * (1 - share) + colours * share, np.uint8)


def palette(values: Iterable[int], ignore: int | None = None) -> dict[int, Colour]:
    """A colour for each label value, the same one in every picture, and as distinct as their number allows."""
    colours = _colours()
    return {value: IGNORED if value == ignore else colours[(value - 1) % MOST_COLOURS] for value in values if value}


@cache
def _colours() -> tuple[Colour, ...]:
    """Colours in an order in which each is the farthest from all before it, of a grid without very dark ones."""
    grid = np.array([c for c in product(range(0, 256, 15), repeat=3) if _brightness(c) > 150 and max(c) - min(c) > 80])
    chosen = [np.array(colour) for colour in (*FIRST_COLOURS, IGNORED, (255, 255, 255))]
    nearest = np.min([_difference(grid, colour) for colour in chosen], axis=0)
    found = list(FIRST_COLOURS)
    while len(found) < MOST_COLOURS:
        red, green, blue = (int(part) for part in grid[nearest.argmax()])
        found.append((red, green, blue))
        nearest = np.minimum(nearest, _difference(grid, grid[nearest.argmax()]))
    return tuple(found)


def _brightness(colour: Sequence[int]) -> float:
    return 0.4 * colour[0] + 0.7 * colour[1] + 0.3 * colour[2]


def _difference(colours: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """How different colours look: squares of red, green and blue, weighted by how red they are ("redmean")."""
    red = (colours[:, 0] + other[0]) / 2
    squares = (colours - other) ** 2
    return (2 + red / 256) * squares[:, 0] + 4 * squares[:, 1] + (2 + (255 - red) / 256) * squares[:, 2]


def widest_cut(mask: Mask) -> Size:
    """The voxel whose three planes cut most of the largest lesion of a mask; the middle if there is none."""
    if not mask.any():
        x, y, z = (size // 2 for size in mask.shape)
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


def shown_box(image: Array, limits: tuple[float, float], mask: Mask) -> Box:
    """The box around what is not black and around the mask, so that a picture is not mostly air."""
    seen = image > limits[0] + 0.05 * (limits[1] - limits[0])
    boxes = [box for box in (nonzero_box(seen), nonzero_box(mask)) if box is not None]
    x, y, z = (slice(0, size) for size in image.shape)
    return box_around(boxes) if boxes else (x, y, z)
