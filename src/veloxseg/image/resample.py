"""One interpolation from a scan's own grid to any other grid, with care against aliasing.

Grids whose axes are parallel (permuted or flipped, as nearly all are) are resampled axis by axis: along one axis
the value at target i is  sum_j  w_ij x_j,  w_ij = k((j - c_i) / max(1, s)),  where c_i is the source coordinate
of i, s the source voxels per target voxel and k a kernel. Widening the kernel by s is the low-pass filter that
downsampling needs. The three matrices are applied by BLAS in slabs, so memory is bounded by input + output and
one axis of reduction. Oblique grids go through scipy's splines, after a Gaussian of the same purpose.

The result depends on where voxels lie in the patient, not on how a file stores them: axes are worked off in the order
of the target, and coordinates are rounded to 1/512 voxel, since file formats round the same geometry differently.

A label map is interpolated label by label as a 0/1 map; the largest share of a voxel wins.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.image.regions import label_boxes, nonzero_box
from veloxseg.image.volume import Geometry, Volume
from veloxseg.machine import default_workers
from veloxseg.types import Array, Floats, Mask

__all__ = ["AxisMap", "axis_maps", "interpolate", "oblique", "resample_image", "resample_label"]

SLAB_BYTES = 64 << 20
TOLERANCE = 1e-3  # voxels: below this a coordinate counts as a voxel's centre
SNAP = 512  # parts of a voxel to which coordinates are rounded


@dataclass(frozen=True)
class AxisMap:
    """Where the voxels of one target axis lie on a source axis: coordinate c_i = step * i + start."""

    source_axis: int
    size: int  # voxels of the target
    step: float
    start: float

    @property
    def coordinates(self) -> npt.NDArray[np.float64]:
        return self.step * np.arange(self.size, dtype=np.float64) + self.start

    def gather(self, source_size: int) -> npt.NDArray[np.intp] | None:
        """Indices to take if every target voxel is a source voxel; None if it must be interpolated."""
        nearest = np.rint(self.coordinates)
        whole = abs(abs(self.step) - 1) * self.size < TOLERANCE
        if not whole or np.abs(self.coordinates - nearest).max() > TOLERANCE:
            return None
        return np.clip(nearest, 0, source_size - 1).astype(np.intp)

    def matrix(self, source_size: int, kernel: str) -> Floats:
        """(target, source) interpolation weights; beyond the border the outermost voxel is repeated."""
        width = max(1.0, abs(self.step))
        reach = int(np.ceil((2 if kernel == "cubic" else 1) * width)) + 1
        index = np.floor(self.coordinates).astype(np.intp)[:, None] + np.arange(-reach, reach + 1)
        distance = index - self.coordinates[:, None]
        weights = KERNELS[kernel](distance / width)
        # make sum w = 1 and sum w d = 0, so that a ramp stays a ramp and nothing is shifted, whatever the width
        tilt = _linear(distance / width) * distance
        lean = (weights * distance).sum(axis=1, keepdims=True) / np.maximum(
            (tilt * distance).sum(axis=1, keepdims=True), 1e-9
        )
        weights -= lean * tilt
        weights /= weights.sum(axis=1, keepdims=True)
        matrix = np.zeros((self.size, source_size), np.float64)
        rows = np.broadcast_to(np.arange(self.size)[:, None], index.shape)
        np.add.at(matrix, (rows, np.clip(index, 0, source_size - 1)), weights)
        return matrix.astype(np.float32)


def _linear(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.maximum(0.0, 1.0 - np.abs(x))


def _cubic(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Catmull-Rom: interpolates, and reproduces polynomials of degree 2."""
    x = np.abs(x)
    inner = 1.5 * x**3 - 2.5 * x**2 + 1
    outer = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return np.where(x < 1, inner, np.where(x < 2, outer, 0.0))


KERNELS = {"linear": _linear, "cubic": _cubic}


def axis_maps(source: Geometry, target: Geometry) -> tuple[AxisMap, AxisMap, AxisMap] | None:
    """The three axis maps from `target` to `source`, or None if the grids are oblique to each other."""
    to_source = np.linalg.inv(source.affine) @ target.affine
    linear = to_source[:3, :3]
    order = np.abs(linear).argmax(axis=0)
    if sorted(order) != [0, 1, 2]:
        return None
    off_axis = np.abs(linear).copy()
    off_axis[order, range(3)] = 0
    if (off_axis @ np.asarray(target.shape)).max() > 0.05:  # voxels that the far corner would be off
        return None
    x, y, z = (
        _snapped(int(order[i]), target.shape[i], float(linear[order[i], i]), float(to_source[order[i], 3]))
        for i in range(3)
    )
    return x, y, z


def _snapped(source_axis: int, size: int, step: float, start: float) -> AxisMap:
    """The map whose first and last coordinates are whole parts of a voxel."""
    first, last = (round(SNAP * value) / SNAP for value in (start, start + step * (size - 1)))
    return AxisMap(source_axis, size, (last - first) / (size - 1) if size > 1 else step, first)


def interpolate(array: Array, maps: Sequence[AxisMap], kernel: str) -> Floats:
    """`array` at the voxels that `maps` describe, as float32; the last axis of the target is worked off first."""
    view = array.transpose([m.source_axis for m in maps])
    matrices: list[Floats | None] = []
    for axis, m in enumerate(maps):
        part, matrix = _needed(m, view.shape[axis], kernel)
        view = view[(slice(None),) * axis + (part,)]
        matrices.append(matrix)
    result = np.empty((view.shape[0], maps[1].size, maps[2].size), np.float32)
    step = max(1, SLAB_BYTES // max(1, 4 * view.shape[1] * view.shape[2]))
    for begin in range(0, view.shape[0], step):
        slab = np.ascontiguousarray(view[begin : begin + step], np.float32)
        if matrices[2] is not None:
            slab = slab @ matrices[2].T
        if matrices[1] is not None:
            slab = matrices[1] @ slab
        result[begin : begin + step] = slab
    if matrices[0] is not None:
        result = (matrices[0] @ result.reshape(result.shape[0], -1)).reshape(-1, *result.shape[1:])
    if kernel == "cubic" and any(matrix is not None for matrix in matrices):
        np.clip(result, array.min(), array.max(), out=result)  # a cubic kernel overshoots at edges
    return result


def _needed(m: AxisMap, size: int, kernel: str) -> tuple[Any, Floats | None]:
    """The part of a source axis that is used, and its weights; None where voxels are taken as they are."""
    taken = m.gather(size)
    if taken is None:
        matrix = m.matrix(size, kernel)
        used = np.flatnonzero(matrix.any(axis=0))
        part = slice(int(used[0]), int(used[-1]) + 1)
        return part, np.ascontiguousarray(matrix[:, part])
    direction = 1 if m.step > 0 else -1
    if (np.diff(taken) == direction).all():  # a slice is a view, a list of indices a copy
        stop = int(taken[-1]) + direction
        return slice(int(taken[0]), stop if stop >= 0 else None, direction), None
    return taken, None


def resample_image(volume: Volume, target: Geometry, kernel: str, fill: float) -> Floats:
    """A scan on another grid; what lies outside the scan gets `fill`."""
    maps = axis_maps(volume.geometry, target)
    if maps is None:
        return oblique(volume.array.astype(np.float32, copy=False), volume.geometry, target, kernel, fill)
    # the last map first: in most files voxels run along the patient's first axis
    result = interpolate(volume.array, maps[::-1], kernel).transpose(2, 1, 0)
    for axis, m in enumerate(maps):
        margin = 0.5 + max(1.0, abs(m.step)) / 2
        outside = (m.coordinates < -margin) | (m.coordinates > volume.array.shape[m.source_axis] - 1 + margin)
        if outside.any():
            result[(slice(None),) * axis + (outside,)] = fill
    return result


def oblique(array: Floats, source: Geometry, target: Geometry, kernel: str, fill: float) -> Floats:
    """Any affine relation, slab by slab; what lies more than half a voxel outside of the scan gets `fill`."""
    from scipy import ndimage

    to_source = np.linalg.inv(source.affine) @ target.affine
    to_source[:3, :3] = np.round(to_source[:3, :3], 6)  # see the head of this file
    to_source[:3, 3] = np.round(SNAP * to_source[:3, 3]) / SNAP
    matrix, start = to_source[:3, :3], to_source[:3, 3]
    steps = np.linalg.norm(matrix, axis=1)  # source voxels, along each source axis, per target voxel
    sigmas = 0.42 * np.sqrt(np.maximum(steps**2 - 1, 0))  # as wide as the triangle kernel of the parallel case
    image = _smoothed(array, sigmas) if sigmas.max() > 0.1 else array
    order, mode = (3, "mirror") if kernel == "cubic" else (1, "nearest")
    if order == 3:
        image = ndimage.spline_filter(image, order, output=np.float32, mode=mode)
    result = np.empty(target.shape, np.float32)
    workers = default_workers()
    depth = max(1, min(SLAB_BYTES // max(1, 4 * result[0].size), -(-target.shape[0] // workers)))

    def fill_slab(begin: int) -> None:
        slab, first = result[begin : begin + depth], start + begin * matrix[:, 0]
        ndimage.affine_transform(
            image, matrix, first, slab.shape, output=slab, order=order, mode=mode, prefilter=False
        )  # fmt: skip
        slab[_outside(matrix, first, slab.shape, array.shape)] = fill

    begins = range(0, target.shape[0], depth)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(fill_slab, begins))
    if kernel == "cubic":
        np.clip(result, min(array.min(), fill), array.max(), out=result)
    return result


def _smoothed(array: Floats, sigmas: npt.NDArray[np.float64]) -> Floats:
    """By the Gaussian of whole numbers, e^-t I_n(t) with t = sigma², of which 1 % is cut off; borders are repeated."""
    from scipy.ndimage import correlate1d
    from scipy.special import ive

    for axis, variance in enumerate(sigmas**2):
        half = ive(np.arange(64), variance)
        reach = int(np.argmax(2 * np.cumsum(half) - half[0] >= 0.99))
        weights = np.concatenate([half[reach:0:-1], half[: reach + 1]])
        array = correlate1d(array, weights / weights.sum(), axis, np.float32, "nearest")
    return array


def _outside(matrix: Array, start: Array, shape: tuple[int, ...], size: tuple[int, ...]) -> Mask:
    """The target voxels whose centres lie beyond the outermost source voxels."""
    outside = np.zeros(shape, bool)
    x, y, z = np.ogrid[: shape[0], : shape[1], : shape[2]]
    for row, first, n in zip(matrix, start, size, strict=True):
        place = (row[0] * x + row[1] * y + first) + row[2] * z
        outside |= (place < -0.5) | (place >= n - 0.5)
    return outside


def resample_label(volume: Volume, target: Geometry) -> Array:
    """A label map on another grid: each voxel gets the label with the largest share in it; what lies outside is 0."""
    maps = axis_maps(volume.geometry, target)
    if maps is None:
        result = np.zeros(target.shape, volume.array.dtype)
        best = np.full(target.shape, 0.5 - 1e-5, np.float32)
        for value in np.unique(volume.array):
            if value != 0:
                share = oblique((volume.array == value).astype(np.float32), volume.geometry, target, "linear", 0)
                wins = share >= best
                result[wins] = value
                best[wins] = share[wins]
        return result
    result = _interpolate_labels(volume.array, maps)
    for axis, m in enumerate(maps):
        outside = (m.coordinates < -0.5 - 1e-3) | (m.coordinates > volume.array.shape[m.source_axis] - 0.5 + 1e-3)
        if outside.any():
            result[(slice(None),) * axis + (outside,)] = 0
    return result


def _interpolate_labels(labels: Array, maps: Sequence[AxisMap]) -> Array:
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
        result[into] = _vote(*_cut(view, maps, into))
    return result


def _vote(labels: Array, maps: Sequence[AxisMap]) -> Array:
    shape = tuple(m.size for m in maps)
    result = np.zeros(shape, labels.dtype)
    best, total = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for value, box in label_boxes(labels).items():
        into = tuple(_affected(m, part.start, part.stop) for m, part in zip(maps, box, strict=True))
        if any(part.start >= part.stop for part in into):
            continue
        part, cut = _cut(labels, maps, into)
        share = interpolate((part == value).view(np.uint8), cut, "linear")
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
