"""The weighted sums of windows' scores, as far as later windows can still change them.

Windows are weighed by a Gaussian, w(x, y, z) = g(x) g(y) g(z), sigma an eighth of the window, or by weights that a
pipeline brings. They lie on a regular grid, so the sum of weights is a product of three sums along axes where the
weights are a product, and needs no volume of its own.

Legend: S score (see decoding.py), XYZ space.
"""

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from veloxseg.runtimes.native.adding import add_weighted
from veloxseg.types import Floats, Size

__all__ = ["Accumulator", "Windows"]


class Windows(NamedTuple):
    """Where windows lie in an image: their first voxels along each axis, their size, and that of the image."""

    axes: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    patch: Size
    shape: Size

    def touching(self, strip: slice) -> "Windows":
        """Those that reach into a strip along y."""
        x, y, z = self.axes
        return self._replace(axes=(x, tuple(s for s in y if s < strip.stop and s + self.patch[1] > strip.start), z))

    def overlap(self, start: Size, region: Sequence[slice]) -> tuple[list[slice], list[slice]]:
        """The part of a window that lies in a region of the image, in the region's voxels and in the window's."""
        both = [slice(max(r.start, s), min(r.stop, s + p)) for s, p, r in zip(start, self.patch, region, strict=True)]
        place = [slice(b.start - r.start, b.stop - r.start) for b, r in zip(both, region, strict=True)]
        return place, [slice(b.start - s, b.stop - s) for b, s in zip(both, start, strict=True)]


class Accumulator:
    """The rows of the present windows along x, of a strip along y: add windows, take what is final, and go on.

    `room` is memory for the widest strip, the same for all: who reads scores may still hold those of the strip before.
    """

    def __init__(self, room_SXYZ: Floats, windows: Windows, strip: slice, own_weights: Floats | None = None) -> None:
        self.windows, self.strip, self.first = windows, strip, 0  # the row of the image that the first held one is
        self.held = room_SXYZ[:, :, : strip.stop - strip.start]
        self.held[...] = 0
        self.weights = _gaussian(windows.patch) if own_weights is None else _as_lines(own_weights)
        self.sums = _ProductSums(windows, strip) if own_weights is None else _CountedSums(self)

    @staticmethod
    def room(channels: int, windows: Windows, strips: Sequence[slice]) -> Floats:
        """(S, X, Y, Z): rows of a window, columns of the widest strip."""
        widest = max(strip.stop - strip.start for strip in strips)
        return np.empty((channels, min(windows.patch[0], windows.shape[0]), widest, windows.shape[2]), np.float32)

    @property
    def region(self) -> tuple[slice, slice, slice]:
        """What is held, and what will be, in the image's voxels."""
        return slice(self.first, self.windows.shape[0]), self.strip, slice(0, self.windows.shape[2])

    def add(self, start: Size, scores_SXYZ: Floats) -> bool:
        """Adds a window's scores; whether all are finite."""
        place, inner = self.windows.overlap(start, self.region)
        lines, plane = self.weights.lines_XYZ[*inner], self.weights.plane_XY[*inner[:2]]
        pairs = zip(self.held[:, *place], scores_SXYZ[:, *inner], strict=True)
        return all(add_weighted(held, scores, lines, plane) for held, scores in pairs)

    def final(self, row: int, following: int) -> Floats:
        """The mean scores of the rows that no window changes after those that start at `row`."""
        scores_SXYZ = self.held[:, : following - self.first]
        self.sums.divide(scores_SXYZ, row)
        return scores_SXYZ

    def go_on(self, following: int) -> None:
        """Drops the rows before that one."""
        _shift(self.held, following - self.first)
        self.first = following


def _shift(held_SXYZ: Floats, rows: int) -> None:
    """Drops the first rows and appends empty ones, row by row so that nothing is copied aside."""
    kept = held_SXYZ.shape[1] - rows
    for row in range(kept):
        held_SXYZ[:, row] = held_SXYZ[:, row + rows]
    held_SXYZ[:, max(kept, 0) :] = 0


class _Weights(NamedTuple):
    """w(x, y, z) = plane(x, y) lines(x, y, z). Where weights are a product, all lines are one: no volume is read."""

    plane_XY: Floats
    lines_XYZ: Floats


@lru_cache(maxsize=4)
def _gaussian(patch: Size) -> _Weights:
    x, y, z = (_gaussian_axis(side) for side in patch)
    plane_XY = np.asarray(x[:, None] * y, np.float32)
    return _Weights(plane_XY, np.broadcast_to(np.asarray(z, np.float32), patch))


def _gaussian_axis(side: int) -> npt.NDArray[np.float64]:
    offsets = np.arange(side) - (side - 1) / 2
    return np.asarray(np.exp(-0.5 * (offsets / (side / 8)) ** 2))


def _as_lines(weights_XYZ: Floats) -> _Weights:
    return _Weights(np.ones(weights_XYZ.shape[:2], np.float32), weights_XYZ)


class _ProductSums:
    """The weights of all windows at each voxel, where a window's weights are a product: three sums along axes."""

    def __init__(self, windows: Windows, strip: slice) -> None:
        self.x, y, z = map(_weight_sum, windows.axes, windows.patch, windows.shape)
        self.plane_YZ = y[strip, None] * z

    def divide(self, scores_SXYZ: Floats, row: int) -> None:
        """Divides the scores that are final after the windows which start at `row` by their weights."""
        first = max(0, row)
        scores_SXYZ /= self.x[first : first + scores_SXYZ.shape[1], None, None]
        scores_SXYZ /= self.plane_YZ


class _CountedSums:
    """The same for any weights: they are added window by window, as the scores are."""

    def __init__(self, accumulator: Accumulator) -> None:
        self.accumulator = accumulator
        self.held_XYZ = np.zeros_like(accumulator.held[0])

    def divide(self, scores_SXYZ: Floats, row: int) -> None:
        windows = self.accumulator.windows
        for start in itertools.product([row], windows.axes[1], windows.axes[2]):
            place, inner = windows.overlap(start, self.accumulator.region)
            self.held_XYZ[*place] += self.accumulator.weights.lines_XYZ[*inner]
        scores_SXYZ /= self.held_XYZ[: scores_SXYZ.shape[1]]
        _shift(self.held_XYZ[None], scores_SXYZ.shape[1])


def _weight_sum(starts: tuple[int, ...], patch: int, size: int) -> Floats:
    """The weights of all windows along one axis, summed at each voxel."""
    total, weights = np.zeros(size), _gaussian_axis(patch)
    for start in starts:
        image = slice(max(0, start), min(size, start + patch))
        total[image] += weights[image.start - start : image.stop - start]
    return total.astype(np.float32)
