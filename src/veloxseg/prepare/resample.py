"""One interpolation from a scan's own grid to any other grid, with care against aliasing.

Grids whose axes are parallel (permuted or flipped, as nearly all are) are resampled axis by axis: along one axis
the value at target i is  sum_j  w_ij x_j,  w_ij = k((j - c_i) / max(1, s)),  where c_i is the source coordinate
of i, s the source voxels per target voxel and k a kernel. Widening the kernel by s is the low-pass filter that
downsampling needs. The three matrices are applied by BLAS in slabs, so memory is bounded by input + output and
one axis of reduction. Oblique grids go through SimpleITK, after a Gaussian of the same purpose.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.io.volume import Geometry, Volume

__all__ = ["AxisMap", "axis_maps", "interpolate", "oblique", "resample_image"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
SLAB_BYTES = 64 << 20
TOLERANCE = 1e-3  # voxels: below this a coordinate counts as a voxel's centre


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
        width = 1.0 if kernel == "point" else max(1.0, abs(self.step))
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


# "linear" and "cubic" widen when downsampling; "point" is linear and never does
KERNELS = {"linear": _linear, "cubic": _cubic, "point": _linear}


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
        AxisMap(int(order[i]), target.shape[i], float(linear[order[i], i]), float(to_source[order[i], 3]))
        for i in range(3)
    )
    return x, y, z


def interpolate(array: Array, maps: Sequence[AxisMap], kernel: str) -> Floats:
    """`array` at the voxels that `maps` describe, as float32."""
    view = array.transpose([m.source_axis for m in maps])
    if abs(view.strides[0]) < abs(view.strides[2]):  # the last axis should be the contiguous one
        return interpolate(array, maps[::-1], kernel).transpose(2, 1, 0)
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
    """What to take of a source axis, and the weights to apply to it; None if taking is all."""
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
    result = interpolate(volume.array, maps, kernel)
    for axis, m in enumerate(maps):
        margin = 0.5 + max(1.0, abs(m.step)) / 2
        outside = (m.coordinates < -margin) | (m.coordinates > volume.array.shape[m.source_axis] - 1 + margin)
        if outside.any():
            result[(slice(None),) * axis + (outside,)] = fill
    return result


def oblique(array: Floats, source: Geometry, target: Geometry, kernel: str, fill: float) -> Floats:
    """Any affine relation, by SimpleITK in index space (its axes are ours in reverse, so nothing is copied)."""
    import SimpleITK as sitk

    to_source = np.linalg.inv(source.affine) @ target.affine
    image = sitk.GetImageFromArray(np.ascontiguousarray(array))
    steps = np.linalg.norm(
        to_source[:3, :3], axis=1
    )  # source voxels, along each source axis, per target voxel
    sigmas = 0.42 * np.sqrt(
        np.maximum(steps**2 - 1, 0)
    )  # as wide as the triangle kernel of the parallel case
    if sigmas.max() > 0.1:
        image = sitk.DiscreteGaussian(image, [float(s) ** 2 for s in sigmas[::-1]], useImageSpacing=False)
    transform = sitk.AffineTransform(3)
    transform.SetMatrix(to_source[2::-1, 2::-1].ravel().tolist())
    transform.SetTranslation(to_source[2::-1, 3].tolist())
    kind = sitk.sitkBSpline3 if kernel == "cubic" else sitk.sitkLinear
    size = [int(n) for n in target.shape[::-1]]
    identity = np.eye(3).ravel().tolist()
    result = sitk.Resample(
        image, size, transform, kind, [0.0] * 3, [1.0] * 3, identity, float(fill), sitk.sitkFloat32
    )
    values: Floats = sitk.GetArrayFromImage(result)
    if kernel == "cubic":
        np.clip(values, min(array.min(), fill), array.max(), out=values)
    return values
