"""Adds a window's scores to those of its neighbours, in one pass over memory where the kernels are built."""

import numpy as np

from veloxseg.runtimes.native.library import kernels
from veloxseg.runtimes.native.memory import FLOAT
from veloxseg.types import Array, Floats

__all__ = ["add_weighted"]


def add_weighted(held_XYZ: Floats, scores_XYZ: Floats, weights_XYZ: Floats) -> bool:
    """held += scores · weights, in place. Whether all scores are finite; else what is held is of no use."""
    if not held_XYZ.shape == scores_XYZ.shape == weights_XYZ.shape:
        raise ValueError(f"{scores_XYZ.shape} scores and {weights_XYZ.shape} weights for {held_XYZ.shape} voxels")
    library, arrays = kernels(), (held_XYZ, scores_XYZ, weights_XYZ)
    if library is None or not all(map(_in_lines, arrays)):
        held_XYZ += scores_XYZ * weights_XYZ
        return bool(np.isfinite(scores_XYZ).all())
    places = [(array.ctypes.data, *(step // FLOAT for step in array.strides[:2])) for array in arrays]
    return bool(library.add_weighted(*(number for place in places for number in place), *held_XYZ.shape))


def _in_lines(array: Array) -> bool:
    """Whether the kernel can read it: numbers along z lie side by side."""
    return array.dtype == np.float32 and array.strides[2] == FLOAT and not any(step % FLOAT for step in array.strides)
