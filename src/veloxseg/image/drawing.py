"""Pictures of planes: a slice in true proportions with coloured regions, letters of the sides and a scale bar, and
sheets of several such panels with a title, a legend and the notice."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veloxseg.image.views import Colour, Grey, Plane
from veloxseg.machine import NOTICE
from veloxseg.types import Array, Mask

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["FILL", "Panel", "draw_panel", "draw_sheet", "png"]

HEIGHT, WIDEST = 480, 520  # pixels
FILL = 0.45  # how much of the colour covers the image inside a contour
FILL_ON_WHITE = 0.7  # in projections hot lesions are black, and would turn every colour dark
RIM = 0.4  # how much of the picture's light is left just outside a contour
FONT, SMALL, LARGE = 15, 13, 18  # pixels
MARGIN = 10
INK, SOFT, PAPER = "#e8e8e8", "#a0a0a0", "black"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A plane to draw: its picture as (columns, rows) in grey or (columns, rows, 3) in colour, and what is marked."""

    picture: Grey
    plane: Plane
    pixel: tuple[float, float]  # millimetres of a voxel along columns and rows
    code: Array | None = None  # a number for every voxel; 0 is not marked
    colours: Mapping[int, Colour] = field(default_factory=dict)  # by number
    caption: str = ""
    fill: float = 0.0  # how much of the colour covers the picture inside a contour; 0: contours only

    @property
    def width_mm(self) -> float:
        return self.picture.shape[0] * self.pixel[0]

    @property
    def height_mm(self) -> float:
        return self.picture.shape[1] * self.pixel[1]

    @property
    def aspect(self) -> float:
        return self.width_mm / self.height_mm


def draw_panel(panel: Panel, scale: float | None = None) -> "Image":
    """The picture of one plane; `scale` is in pixels per millimetre, without it the usual size is filled."""
    from PIL import Image, ImageDraw

    if scale is None:
        scale = min(HEIGHT / panel.height_mm, WIDEST / panel.width_mm)
    size = max(1, round(panel.width_mm * scale)), max(1, round(panel.height_mm * scale))
    rows_first = np.ascontiguousarray(panel.picture.swapaxes(0, 1))
    image = np.asarray(Image.fromarray(rows_first).resize(size, Image.Resampling.BICUBIC))
    light = bool(np.median(image) > 127)
    picture = (image if image.ndim == 3 else np.repeat(image[:, :, None], 3, axis=2)).astype(np.float32)
    if panel.code is not None:
        fill = FILL_ON_WHITE if light and panel.fill else panel.fill
        _mark(picture, _enlarged(panel.code, size), panel.colours, fill)
    drawn = Image.fromarray(picture.astype(np.uint8))
    _annotate(ImageDraw.Draw(drawn), size, panel.plane.letters, scale, light)
    return drawn


def draw_sheet(
    rows: Sequence[Sequence[Panel]], title: str, legend: Sequence[tuple[str, Colour]] = (), scale: float | None = None
) -> "Image":
    """Rows of panels under a title; the legend names the colours, and the notice stands below."""
    from PIL import Image, ImageDraw

    drawn = [[(panel.caption, draw_panel(panel, scale)) for panel in row] for row in rows]
    widths = [sum(image.width + MARGIN for _, image in row) + MARGIN for row in drawn]
    entries = [(text, "#{:02x}{:02x}{:02x}".format(*colour)) for text, colour in legend]
    width = max(*widths, round(_font(LARGE).getlength(title)) + 2 * MARGIN, 480)
    lines = _lines(entries, width - 2 * MARGIN)
    top = 2 * MARGIN + LARGE + len(lines) * (FONT + 8)
    heights = [SMALL + MARGIN + max(image.height for _, image in row) for row in drawn]
    sheet = Image.new("RGB", (width, top + sum(heights) + MARGIN * (len(rows) + 1) + SMALL), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, MARGIN), title, font=_font(LARGE), fill=INK)
    for number, line in enumerate(lines):
        x = float(MARGIN)
        for text, colour in line:
            draw.text((x, 2 * MARGIN + LARGE + number * (FONT + 8)), text, font=_font(FONT), fill=colour)
            x += _font(FONT).getlength(text) + 2 * MARGIN
    y = top
    for row, height in zip(drawn, heights, strict=True):
        x = MARGIN
        for caption, image in row:
            draw.text((x, y), caption, font=_font(SMALL), fill=SOFT)
            sheet.paste(image, (int(x), y + SMALL + MARGIN // 2))
            x += image.width + MARGIN
        y += height + MARGIN
    draw.text((MARGIN, sheet.height - MARGIN), NOTICE, font=_font(SMALL), fill=SOFT, anchor="lb")
    return sheet


def png(image: "Image") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def _enlarged(code: Array, size: tuple[int, int]) -> Array:
    """The numbers at each pixel of a picture, without interpolation."""
    columns, rows = (np.minimum(((np.arange(n) + 0.5) * m / n).astype(int), m - 1)
                     for n, m in zip(size, code.shape, strict=True))  # fmt: skip
    return code[columns][:, rows].T


def _mark(picture: Array, regions: Array, colours: Mapping[int, Colour], fill: float) -> None:
    """Paints contours, and covers what they enclose by `fill`; without it a dark rim sets contours off from heat."""
    border = _borders(regions)
    if not fill:
        picture[border & (regions == 0)] *= RIM
    for number, colour in colours.items():
        inside = regions == number
        picture[inside] += (np.array(colour, dtype=np.float32) - picture[inside]) * fill
        picture[inside & border] = colour


def _borders(regions: Array) -> Mask:
    """Pixels with another region up to two pixels away; the picture's own edge is no border."""
    padded = np.pad(regions, 2, mode="edge")
    rows, columns = regions.shape
    border = np.zeros(regions.shape, dtype=bool)
    for down, right in ((0, 2), (4, 2), (2, 0), (2, 4), (1, 1), (1, 3), (3, 1), (3, 3)):
        border |= padded[down : down + rows, right : right + columns] != regions
    return border


def _annotate(draw: Any, size: tuple[int, int], letters: str, scale: float, light: bool) -> None:
    """The letters of the sides, and a bar of a round number of centimetres where there is room."""
    width, height = size
    places = ((4, height / 2, "lm"), (width - 4, height / 2, "rm"), (width / 2, 3, "mt"), (width / 2, height - 3, "mb"))
    ink, halo = ("#333333", "white") if light else ("white", "black")
    style = {"font": _font(FONT), "fill": ink, "stroke_width": 2, "stroke_fill": halo}
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


def _lines(entries: Sequence[tuple[str, str]], width: float) -> list[list[tuple[str, str]]]:
    """The entries of a legend in lines that fit."""
    lines: list[list[tuple[str, str]]] = []
    used = math.inf
    for text, colour in entries:
        length = _font(FONT).getlength(text) + 2 * MARGIN
        if used + length > width:
            lines.append([])
            used = 0
        lines[-1].append((text, colour))
        used += length
    return lines


@cache
def _font(size: int) -> Any:
    """DejaVu, which matplotlib brings along: the font of Pillow knows Latin letters only."""
    from matplotlib import get_data_path
    from PIL import ImageFont

    return ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)
