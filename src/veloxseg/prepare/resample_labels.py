"""Label maps on another grid: each label is interpolated as a 0/1 map, and the largest share of a voxel wins."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.io.volume import Geometry, Volume
from veloxseg.prepare.boxes import label_boxes, nonzero_box
from veloxseg.prepare.resample import SLAB_BYTES, AxisMap, axis_maps, interpolate, oblique

__all__ = ["resample_label"]

Array = npt.NDArray[Any]


def resample_label(volume: Volume, target: Geometry, kernel: str = "linear") -> Array:
    """A label map on another grid; what lies outside is 0.

    `linear` gives a coarser voxel the label with the largest share in it; `point` the label at its centre.
    """
    maps = axis_maps(volume.geometry, target)
    if maps is None:
        result = np.zeros(target.shape, volume.array.dtype)
        best = np.full(target.shape, 0.5 - 1e-5, np.float32)
        for value in np.unique(volume.array):
            if value != 0:
                share = oblique(
                    (volume.array == value).astype(np.float32), volume.geometry, target, "linear", 0
                )
                wins = share >= best
                result[wins] = value
                best[wins] = share[wins]
        return result
    result = interpolate_labels(volume.array, maps, kernel)
    for axis, m in enumerate(maps):
        outside = (m.coordinates < -0.5 - 1e-3) | (
            m.coordinates > volume.array.shape[m.source_axis] - 0.5 + 1e-3
        )
        if outside.any():
            result[(slice(None),) * axis + (outside,)] = 0
    return result


def interpolate_labels(labels: Array, maps: Sequence[AxisMap], kernel: str) -> Array:
    """Each label as a 0/1 map, interpolated; the largest share of a voxel wins, ties go to labels.

    Works on each label's bounding box only, so that a hundred labels cost little more than one.
    """
    view = labels.transpose([m.source_axis for m in maps])
    indices = [m.gather(n) for m, n in zip(maps, view.shape, strict=True)]
    if all(taken is not None for taken in indices):
        return np.ascontiguousarray(view[np.ix_(*[taken for taken in indices if taken is not None])])
    result = np.zeros(tuple(m.size for m in maps), labels.dtype)
    box = nonzero_box(view)
    if box is None:
        return result
    x, y, z = (_affected(m, side.start, side.stop) for m, side in zip(maps, box, strict=True))
    if any(side.start >= side.stop for side in (x, y, z)):
        return result
    step = max(1, SLAB_BYTES // max(1, 4 * (y.stop - y.start) * (z.stop - z.start)))
    for begin in range(x.start, x.stop, step):
        into = (slice(begin, min(begin + step, x.stop)), y, z)
        result[into] = _vote(*_cut(view, maps, into), kernel)
    return result


def _vote(labels: Array, maps: Sequence[AxisMap], kernel: str) -> Array:
    shape = tuple(m.size for m in maps)
    result = np.zeros(shape, labels.dtype)
    best, total = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for value, box in label_boxes(labels):
        into = tuple(_affected(m, part.start, part.stop) for m, part in zip(maps, box, strict=True))
        if any(part.start >= part.stop for part in into):
            continue
        part, cut = _cut(labels, maps, into)
        share = interpolate((part == value).view(np.uint8), cut, kernel)
        total[into] += share
        wins = share > best[into]
        result[into][wins] = value
        best[into][wins] = share[wins]
    result[best < 1 - total - 1e-5] = 0
    return result


def _cut(view: Array, maps: Sequence[AxisMap], into: tuple[slice, ...]) -> tuple[Array, list[AxisMap]]:
    """The part of the source that the target voxels `into` depend on, and the maps to it."""
    parts, cut = [], []
    for axis, (m, i, n) in enumerate(zip(maps, into, view.shape, strict=True)):
        ends = (m.step * i.start + m.start, m.step * (i.stop - 1) + m.start)
        reach = max(1.0, abs(m.step)) + 1
        begin = min(max(0, int(min(ends) - reach)), n - 1)
        end = max(min(n, int(max(ends) + reach) + 2), begin + 1)
        parts.append(slice(begin, end))
        cut.append(AxisMap(axis, i.stop - i.start, m.step, ends[0] - begin))
    return view[tuple(parts)], cut


def _affected(m: AxisMap, begin: int, end: int) -> slice:
    """The target voxels whose kernel can reach source voxels [begin, end)."""
    width = max(1.0, abs(m.step))
    a, b = (begin - width - m.start) / m.step, (end - 1 + width - m.start) / m.step
    first, last = int(np.floor(min(a, b))), int(np.ceil(max(a, b)))
    # the outermost voxel is repeated beyond the border, so a label that touches it reaches further
    return slice(max(0, first), min(m.size, last + 1))
