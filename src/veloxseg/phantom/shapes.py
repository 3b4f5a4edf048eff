"""Solids on a voxel grid: each is a field that is below 1 inside, evaluated only in the box that can hold it.

All positions are millimetres in the body's own frame: x to the patient's right, y to the front, z upwards.
The frame is the grid's frame bent by a smooth random field, so that no two patients are alike.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veloxseg.types import Box, Mask

__all__ = ["Box", "Field", "Mask", "Space", "smooth_noise"]

Field = npt.NDArray[np.float32]
Point = tuple[float, float, float]


def smooth_noise(random: np.random.Generator, shape: tuple[int, int, int], knots: tuple[int, int, int]) -> Field:
    """Noise of about unit variance that varies over `1 / knots` of each axis: random knots, linear between them."""
    field = random.standard_normal(knots).astype(np.float32)
    for size, knot in zip(shape, knots, strict=True):  # one axis after another; each goes to the end in turn
        at = np.linspace(0, knot - 1, size)
        hats = np.clip(1 - np.abs(at[None, :] - np.arange(knot)[:, None]), 0, None).astype(np.float32)
        field = np.tensordot(field, hats, axes=(0, 0))
    return np.asarray(field / max(float(field[::2, ::2, ::2].std()), 1e-6), dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class Space:
    """Where the voxels of a grid lie in the body's frame."""

    x: Field  # (X, Y, Z), millimetres, bent
    y: Field
    z: Field
    axes: tuple[Field, Field, Field]  # the same without the bending, one vector per axis
    slack: float  # the largest bending, millimetres
    spacing: float  # of the grid, mean of its axes, millimetres

    @classmethod
    def bent(
        cls, shape: tuple[int, int, int], spacing: Point, scale: Point, top: float, bend: float, seed: int
    ) -> "Space":
        """The grid's centre is x = y = 0, its upper end z = `top`; a `scale` above 1 makes a larger body."""
        random = np.random.default_rng(seed)
        x, y, z = [
            ((np.arange(size) - (size - 1) / 2) * step / factor).astype(np.float32)
            for size, step, factor in zip(shape, spacing, scale, strict=True)
        ]
        z += np.float32(top - z[-1])
        knots = (4, 4, 7)
        shifts = [np.clip(smooth_noise(random, shape, knots), -2, 2) * np.float32(bend) for _ in range(3)]
        return cls(
            x=x[:, None, None] + shifts[0],
            y=y[None, :, None] + shifts[1],
            z=z[None, None, :] + shifts[2],
            axes=(x, y, z),
            slack=2 * bend,
            spacing=float(np.mean(spacing)),
        )

    def box(self, low: Point, high: Point) -> Box:
        """The smallest box of voxels that surely holds all points between `low` and `high`."""
        slices = []
        for axis, least, most in zip(self.axes, low, high, strict=True):
            start = int(np.searchsorted(axis, least - self.slack))
            stop = int(np.searchsorted(axis, most + self.slack, side="right"))
            slices.append(slice(start, max(stop, start)))
        return slices[0], slices[1], slices[2]

    def ellipsoid(self, centre: Point, radii: Point, tilt: float = 0.0) -> tuple[Box, Field]:
        """`tilt` turns it about the y axis, in radians (the upper end leans to the right)."""
        reach = max(radii[0], radii[2]) if tilt else 0.0
        extent = (max(radii[0], reach), radii[1], max(radii[2], reach))
        low, high = _around(centre, centre, extent)
        box = self.box(low, high)
        x, y, z = (axis[box] - np.float32(c) for axis, c in zip((self.x, self.y, self.z), centre, strict=True))
        if tilt:
            cosine, sine = np.float32(np.cos(tilt)), np.float32(np.sin(tilt))
            x, z = cosine * x - sine * z, sine * x + cosine * z
        return box, np.asarray((x / radii[0]) ** 2 + (y / radii[1]) ** 2 + (z / radii[2]) ** 2)

    def capsule(self, start: Point, end: Point, radius: float) -> tuple[Box, Field]:
        """A round rod with round ends, from `start` to `end`."""
        low, high = _around(start, end, (radius, radius, radius))
        box = self.box(low, high)
        x, y, z = (axis[box] - np.float32(s) for axis, s in zip((self.x, self.y, self.z), start, strict=True))
        dx, dy, dz = (np.float32(b - a) for a, b in zip(start, end, strict=True))
        along = np.clip((x * dx + y * dy + z * dz) / max(float(dx * dx + dy * dy + dz * dz), 1e-6), 0, 1)
        squared = (x - along * dx) ** 2 + (y - along * dy) ** 2 + (z - along * dz) ** 2
        return box, np.asarray(squared / np.float32(radius * radius))


def _around(start: Point, end: Point, extent: Point) -> tuple[Point, Point]:
    low = [min(a, b) - e for a, b, e in zip(start, end, extent, strict=True)]
    high = [max(a, b) + e for a, b, e in zip(start, end, extent, strict=True)]
    return (low[0], low[1], low[2]), (high[0], high[1], high[2])
