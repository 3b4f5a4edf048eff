"""Splines as one matrix per axis: what scipy's `zoom` does to a volume, in a twentieth of its time.

A spline in three dimensions is a product of splines along the axes, and each of them is linear in the voxels. So the
zoom of the identity matrix is the matrix of the zoom, and a volume is resampled by three matrix products:

    y_abc = Σ_ijk  M1_ai · M2_bj · M3_ck · x_ijk

Voxels are cells: the first and the last of both grids end at the same place, and beyond it the outermost voxel is
repeated. There is no low-pass filter: this is for models that were trained without one (predict/nnunet.py).
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from veloxseg.types import Array, Floats, Size

__all__ = ["spline_matrix", "zoom"]

Matrix = npt.NDArray[np.float64]
CHUNK_BYTES = 32 << 20  # of voxels in float64 that are worked on at a time


@lru_cache(maxsize=32)
def spline_matrix(source: int, target: int, order: int) -> Matrix | None:
    """(target, source) weights of one axis; None where nothing changes."""
    if source == target:
        return None
    from scipy.ndimage import zoom as scipy_zoom

    factors = (1 / (source / target), 1.0)
    matrix = scipy_zoom(np.eye(source), factors, order=order, mode="nearest", grid_mode=True)
    matrix[np.abs(matrix) < 1e-14] = 0  # what rounding leaves of zeros, so that a row shows what it depends on
    return matrix


def zoom(array: Array, shape: Size, orders: tuple[int, int, int]) -> Floats:
    """`array` (three axes) at another size, by a spline of the given order along each axis; sums are in float64."""
    first, second, third = (spline_matrix(n, m, order) for n, m, order in zip(array.shape, shape, orders, strict=True))
    middle = np.empty((array.shape[0], *shape[1:]), np.float32)
    step = max(1, CHUNK_BYTES // max(1, 8 * array.shape[1] * array.shape[2]))
    for begin in range(0, len(middle), step):
        middle[begin : begin + step] = planes_zoomed(array[begin : begin + step], second, third)
    if first is None:
        return middle
    result = np.empty((shape[0], shape[1] * shape[2]), np.float32)
    columns = middle.reshape(len(middle), -1)
    step = max(1, CHUNK_BYTES // (8 * max(len(middle), shape[0])))
    for begin in range(0, columns.shape[1], step):
        result[:, begin : begin + step] = first @ columns[:, begin : begin + step].astype(np.float64)
    return result.reshape(shape)


def planes_zoomed(array: Array, second: Matrix | None, third: Matrix | None) -> npt.NDArray[np.float64]:
    """The two last axes of an array at another size."""
    planes = array.astype(np.float64)
    if third is not None:
        planes = planes @ third.T
    return planes if second is None else second @ planes
