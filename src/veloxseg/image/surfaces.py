"""Masks as shaded surfaces, seen from the front, a little from the side and from above.

A camera looks at a box of the patient through a grid of parallel rays. Masks are smoothed and interpolated to this
grid, so a surface is where a field along a ray first exceeds one half: its normal is the field's gradient there, its
light Lambert's. What is translucent hides what lies behind it by its thickness t, as 1 − 2^(−t / half_mm).

    camera = Camera.around(mask, view.spacing)
    shaded([Layer(camera.field(mask), RED)], camera)   # (columns, rows, 3)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veloxseg.image.regions import components, nonzero_box
from veloxseg.image.views import Colour, Grey, Plane
from veloxseg.types import Box, Floats, Mask, Size, Spacing

__all__ = ["SURFACE", "Camera", "Layer", "shaded"]

SURFACE = Plane("surface", 1, "RLSI")  # sides as in a coronal picture, from which the camera is turned away
AZIMUTH, ELEVATION = math.radians(30), math.radians(20)  # seen from the patient's right, and from above
PIXELS = 200  # of the longer side; fewer where voxels are large
FINEST = 0.25  # of a voxel's shortest side: more pixels show nothing new
ALONG = 2.0  # pixels of a step along a ray
MARGIN = 0.06  # of the longer side
SMOOTHING = 0.8  # voxels; half a slice where slices are thick
WIPED = 0.6  # a lesion whose field is nowhere higher is not smoothed
PAD = 2  # voxels around a box, so that surfaces are closed
LIGHT = np.array([-0.4, -0.5, -0.77])  # columns, rows, depth: it comes from the left, from above and in front
AMBIENT, SHINE, FOG = 0.35, 0.2, 0.25
BACKGROUND: Colour = (16, 20, 26)


@dataclass(frozen=True, eq=False)
class Layer:
    """What is drawn in one colour."""

    field: Floats  # on the camera's grid, above one half inside
    colour: Colour
    half_mm: float = 0.0  # this thickness hides half of what lies behind; 0 hides it all


@dataclass(frozen=True, kw_only=True, eq=False)
class Camera:
    """A grid of rays in the space of a `View`: columns, rows, and steps away from the viewer."""

    box: Box  # of voxels; nothing else is seen
    spacing: Spacing
    middle: npt.NDArray[np.float64]  # of the grid, in mm from the middle of the box's first voxel
    size: Size  # columns, rows, steps
    steps: npt.NDArray[np.float64]  # mm from one column, row and step to the next
    axes: npt.NDArray[np.float64]  # unit vectors of columns, rows and depth as columns of a matrix

    @classmethod
    def around(cls, mask: Mask, spacing: Spacing) -> "Camera":
        """The camera that sees what is set as large as the picture allows."""
        box = nonzero_box(mask) or (slice(0, mask.shape[0]), slice(0, mask.shape[1]), slice(0, mask.shape[2]))
        axes = _axes()
        places = np.argwhere(mask[box]) * spacing
        seen = places @ axes if len(places) else np.zeros((1, 3))
        low, high = seen.min(axis=0), seen.max(axis=0)
        extent = high - low + 2 * max(spacing)
        border = 2 * MARGIN * max(extent[:2])
        pixel = float(max((max(extent[:2]) + border) / PIXELS, FINEST * min(spacing)))
        steps = pixel * np.array([1, 1, ALONG])
        columns, rows, along = np.ceil((extent + border) / steps).astype(int).tolist()
        return cls(
            box=box,
            spacing=spacing,
            middle=axes @ ((low + high) / 2),
            size=(columns, rows, along),
            steps=steps,
            axes=axes,
        )

    @property
    def pixel(self) -> tuple[float, float]:
        """Millimetres of a column and of a row."""
        return float(self.steps[0]), float(self.steps[1])

    def field(self, mask: Mask) -> Floats:
        """A mask of the whole view, smooth, on the camera's grid."""
        from scipy.ndimage import affine_transform

        coarse, factors = _coarser(np.pad(mask[self.box], PAD), self.steps[0], self.spacing)
        voxel = np.array(self.spacing) * factors
        matrix = self.axes * self.steps / voxel[:, None]
        first = (np.array(factors) - 1) / 2 - PAD  # the middle of the first block, in voxels of the box
        middle = (self.middle / self.spacing - first) / factors
        offset = middle - matrix @ ((np.array(self.size) - 1) / 2)
        smooth = _smooth(coarse, voxel)
        return np.asarray(affine_transform(smooth, matrix, offset, self.size, order=1), np.float32)


def _axes() -> npt.NDArray[np.float64]:
    """Columns, rows and depth of the camera in a view, whose own axes run to the left, the back and the feet."""
    right = np.array([math.cos(AZIMUTH), -math.sin(AZIMUTH), 0])
    away = np.array([math.sin(AZIMUTH), math.cos(AZIMUTH), 0])
    down = np.array([0.0, 0.0, 1.0])
    lower, farther = math.cos(ELEVATION) * down - math.sin(ELEVATION) * away, math.cos(ELEVATION) * away
    return np.stack([right, lower, farther + math.sin(ELEVATION) * down], axis=1)


def _smooth(mask: Floats, voxel: npt.NDArray[np.float64]) -> Floats:
    """A mask without the stairs of its voxels; what is too thin for that stays as it is, so every lesion is seen."""
    from scipy.ndimage import gaussian_filter, maximum

    smooth = gaussian_filter(mask, SMOOTHING * np.maximum(1, max(voxel) / voxel / 2))
    numbered, sizes = components(mask > 0)
    peaks = np.array([1.0, *maximum(smooth, numbered, range(1, len(sizes) + 1))])
    return np.maximum(smooth, (peaks < WIPED)[numbered], dtype=np.float32)


def _coarser(mask: Mask, step: float, spacing: Spacing) -> tuple[Floats, tuple[int, int, int]]:
    """Means over blocks of voxels where these are much finer than the rays; and how many voxels a block has."""
    x, y, z = (max(1, int(step / mm)) for mm in spacing)
    short = [-size % factor for size, factor in zip(mask.shape, (x, y, z), strict=True)]
    padded = np.pad(mask, [(0, missing) for missing in short])
    blocks = padded.reshape(padded.shape[0] // x, x, padded.shape[1] // y, y, padded.shape[2] // z, z)
    return blocks.mean(axis=(1, 3, 5), dtype=np.float32), (x, y, z)


def shaded(layers: Sequence[Layer], camera: Camera) -> Grey:
    """The picture of some layers, (columns, rows, 3): the nearest opaque surface, behind what is translucent."""
    picture = np.broadcast_to(np.array(BACKGROUND, np.float32), (*camera.size[:2], 3)).copy()
    nearest = np.full(camera.size[:2], camera.size[2], np.float32)
    for layer in layers:
        if not layer.half_mm:
            depth = _depth(layer.field)
            front = depth < nearest
            picture[front] = _lit(layer, depth)[front]
            nearest = np.minimum(nearest, depth)
    places = np.arange(camera.size[2], dtype=np.float32)
    for layer in layers:
        if layer.half_mm:
            depth = _depth(layer.field)
            in_front = np.clip(nearest[:, :, None] - places + 0.5, 0, 1)
            within = np.clip(4 * layer.field - 1.5, 0, 1) * in_front  # no sharp edge, no rings of single steps
            hidden = 1 - 0.5 ** (within.sum(axis=2) * camera.steps[2] / layer.half_mm)
            picture += hidden[:, :, None].astype(np.float32) * (_lit(layer, depth) - picture)
    return np.asarray(np.clip(picture, 0, 255), np.uint8)


def _depth(field: Floats) -> Floats:
    """Steps until the field first exceeds one half, in fractions; as many as there are where it never does."""
    inside = field > 0.5
    first = inside.argmax(axis=2)
    columns, rows = np.indices(first.shape)
    after, before = field[columns, rows, first], field[columns, rows, np.maximum(first - 1, 0)]
    share = np.where(first > 0, (after - 0.5) / np.maximum(after - before, 1e-6), 0)
    return np.where(inside.any(axis=2), first - share, field.shape[2]).astype(np.float32)


def _lit(layer: Layer, depth: Floats) -> Floats:
    """The colour of a layer's surface: Lambert's light with a little shine, and darker the farther it is away."""
    field = layer.field
    before = np.floor(depth)
    share = (depth - before)[:, :, None]  # normals between two steps, or the steps would be seen as rings
    normal = (1 - share) * _descent(field, before) + share * _descent(field, before + 1)
    normal /= np.linalg.norm(normal, axis=2, keepdims=True) + 1e-6
    light = LIGHT / np.linalg.norm(LIGHT)
    direct = np.clip(normal @ light, 0, 1)
    halfway = light - np.array([0, 0, 1])  # between the light and the viewer
    shine = np.clip(normal @ (halfway / np.linalg.norm(halfway)), 0, 1) ** 24
    fog = 1 - FOG * np.clip(depth / field.shape[2], 0, 1)
    lit = (
        np.array(layer.colour) * ((AMBIENT + (1 - AMBIENT) * direct) * fog)[:, :, None]
        + 255 * SHINE * shine[:, :, None]
    )
    return lit.astype(np.float32)


def _descent(field: Floats, step: Floats) -> Floats:
    """How steeply the field falls along columns, rows and depth, at one step of each ray."""
    columns, rows = np.indices(step.shape)
    place = np.stack([columns, rows, np.clip(step, 0, field.shape[2] - 1).astype(int)])
    limits = np.array(field.shape)[:, None, None] - 1
    slopes = []
    for shift in np.eye(3, dtype=int)[:, :, None, None]:
        after, before = np.minimum(place + shift, limits), np.maximum(place - shift, 0)
        slopes.append(field[tuple(before)] - field[tuple(after)])
    return np.asarray(np.stack(slopes, axis=2) / np.array([1, 1, ALONG]), np.float32)
