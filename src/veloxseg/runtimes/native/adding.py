"""Adds a window's scores to those of its neighbours, in one pass over memory where the kernels are built."""

import numpy as np

from veloxseg.runtimes.native.library import kernels
from veloxseg.runtimes.native.memory import FLOAT
from veloxseg.types import Array, Floats

__all__ = ["add_weighted"]


def add_weighted(held_XYZ: Floats, scores_XYZ: Floats, lines_XYZ: Floats, plane_XY: Floats) -> bool:
    """held += scores · lines · plane, in place. Whether all scores are finite; else what is held is of no use."""
    shapes = scores_XYZ.shape, lines_XYZ.shape, (*plane_XY.shape, held_XYZ.shape[2])
    if any(shape != held_XYZ.shape for shape in shapes):
        raise ValueError(f"scores, weights and their factors {shapes} for {held_XYZ.shape} voxels")
    library, arrays = kernels(), (held_XYZ, scores_XYZ, lines_XYZ)
    if library is None or not all(map(_in_lines, arrays)) or not _in_floats(plane_XY):
        held_XYZ += scores_XYZ * (lines_XYZ * plane_XY[:, :, None])
        return bool(np.isfinite(scores_XYZ).all())
    places = [(array.ctypes.data, *(step // FLOAT for step in array.strides[:2])) for array in (*arrays, plane_XY)]
    return bool(library.add_weighted(*(number for place in places for number in place), *held_XYZ.shape))


def _in_lines(array: Array) -> bool:
    """Whether the kernel can read it: numbers along z lie side by side."""
    return _in_floats(array) and array.strides[2] == FLOAT


def _in_floats(array: Array) -> bool:
    return array.dtype == np.float32 and not any(step % FLOAT for step in array.strides)
