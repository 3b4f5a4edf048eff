"""Names of types that many files use, each told once."""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Affine", "Array", "Box", "Floats", "Labels", "Mask", "Size", "Spacing"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[Any]  # whole numbers: the value of each voxel's label
Affine = npt.NDArray[np.float64]  # 4 × 4, or the 3 × 3 of directions
Size = tuple[int, int, int]  # voxels along X, Y, Z
Spacing = tuple[float, float, float]  # millimetres along X, Y, Z
Box = tuple[slice, slice, slice]
