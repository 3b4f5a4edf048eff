"""How a patient is shown: turned as radiologists look, in true proportions, with grey levels that suit the image."""

import io
import math
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.io import Geometry

__all__ = ["View", "grey_level", "png", "to_radiological", "window"]

HEIGHT, WIDEST = 480, 520  # pixels
CT_WINDOW = (-160.0, 240.0)  # Hounsfield units, soft tissue
FILL = 0.45  # how much of the colour covers the image inside a contour
FILL_ON_WHITE = 0.7  # in projections hot lesions are black, and would turn every colour dark

Array = npt.NDArray[Any]
Grey = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class View:
    """An array whose axes run from the patient's right to left, anterior to posterior, superior to inferior."""

    array: Array
    spacing: tuple[float, float, float]


def to_radiological(array: Array, geometry: Geometry) -> View:
    """Reorders and flips axes without interpolation; an oblique scan is shown along its own axes."""
    cosines = np.abs(geometry.direction)
    axes = max(
        permutations(range(3)),
        key=lambda order: sum(cosines[world, axis] for world, axis in enumerate(order)),
    )
    # world axes point to the right, anterior, superior: the picture's run the other way
    flips = tuple(
        slice(None, None, -1 if geometry.affine[world, axis] > 0 else 1) for world, axis in enumerate(axes)
    )
    x, y, z = (geometry.spacing[axis] for axis in axes)
    return View(array=np.transpose(array, axes)[flips], spacing=(x, y, z))


def window(image: Array, modality: str) -> tuple[float, float]:
    """What is black and what white: soft tissue for CT, 0 to nearly the hottest for PET, else percentiles."""
    if modality == "ct":
        return CT_WINDOW
    sample = image.ravel(order="K")[:: max(1, image.size // 200_000)]  # enough for a percentile
    sample = sample[sample != sample.min()]
    low, high = np.percentile(sample, (1, 99.5)) if len(sample) else (0.0, 1.0)
    return (0.0 if modality == "pet" else float(low)), float(high)


def grey_level(image: Array, limits: tuple[float, float]) -> Grey:
    """0 to 255 between the limits of a `window`."""
    low, high = limits
    scaled = (np.asarray(image, dtype=np.float32) - low) * (255 / max(high - low, 1e-6))
    return np.asarray(np.clip(scaled, 0, 255), dtype=np.uint8)


def png(
    grey: Grey,
    code: Grey,
    spacing: tuple[float, float],
    letters: str,
    colours: tuple[tuple[int, int, int], ...],
) -> bytes:
    """A slice (columns, rows) with coloured regions, letters left, right, top and bottom, and a scale bar."""
    from PIL import Image, ImageDraw, ImageFont

    columns, rows = grey.shape
    width_mm, height_mm = columns * spacing[0], rows * spacing[1]
    scale = min(HEIGHT / height_mm, WIDEST / width_mm)  # pixels per millimetre
    size = max(1, round(width_mm * scale)), max(1, round(height_mm * scale))
    image = np.asarray(Image.fromarray(np.ascontiguousarray(grey.T)).resize(size, Image.Resampling.BICUBIC))
    regions = np.asarray(Image.fromarray(np.ascontiguousarray(code.T)).resize(size, Image.Resampling.NEAREST))
    picture = np.repeat(image[:, :, None], 3, axis=2).astype(np.float32)
    border = _borders(regions)
    light = bool(np.median(image) > 127)
    fill = FILL_ON_WHITE if light else FILL
    for number, colour in enumerate(colours, start=1):
        inside = regions == number
        picture[inside] += (np.array(colour, dtype=np.float32) - picture[inside]) * fill
        picture[inside & border] = colour
    drawn = Image.fromarray(picture.astype(np.uint8))
    _annotate(ImageDraw.Draw(drawn), ImageFont.load_default(15), size, letters, scale, light)
    buffer = io.BytesIO()
    drawn.save(buffer, format="PNG")
    return buffer.getvalue()


def _borders(regions: Grey) -> npt.NDArray[np.bool_]:
    """Pixels with another region up to two pixels away; the picture's own edge is no border."""
    padded = np.pad(regions, 2, mode="edge")
    rows, columns = regions.shape
    border = np.zeros(regions.shape, dtype=bool)
    for down, right in ((0, 2), (4, 2), (2, 0), (2, 4), (1, 1), (1, 3), (3, 1), (3, 3)):
        border |= padded[down : down + rows, right : right + columns] != regions
    return border


def _annotate(draw: Any, font: Any, size: tuple[int, int], letters: str, scale: float, light: bool) -> None:
    width, height = size
    places = (
        (4, height / 2, "lm"),
        (width - 4, height / 2, "rm"),
        (width / 2, 3, "mt"),
        (width / 2, height - 3, "mb"),
    )
    ink, halo = ("#333333", "white") if light else ("white", "black")
    style = {"font": font, "fill": ink, "stroke_width": 2, "stroke_fill": halo}
    for letter, (x, y, anchor) in zip(letters, places, strict=True):
        draw.text((x, y), letter, anchor=anchor, **style)
    length_mm = max((mm for mm in (5, 10, 20, 50, 100, 200) if mm * scale <= 0.35 * width), default=None)
    if length_mm is None or height < 120:
        return
    right, bottom = width - 8, height - 8
    left = right - math.floor(length_mm * scale)
    draw.line((left - 1, bottom, right + 1, bottom), fill=halo, width=5)
    draw.line((left, bottom, right, bottom), fill=ink, width=3)
    draw.text((right, bottom - 5), f"{length_mm / 10:g} cm", anchor="rb", **style)
