"""After the network: small components go, or all but the largest, label by label."""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["keep_largest", "remove_smaller"]

Labels = npt.NDArray[Any]


def remove_smaller(labels_XYZ: Labels, millilitres: float, voxel_ml: float) -> int:
    """Removes connected components below a volume, in place; returns how many."""
    least = millilitres / voxel_ml
    return _drop(labels_XYZ, lambda sizes: sizes < least * (1 - 1e-9))


def keep_largest(labels_XYZ: Labels) -> int:
    """Removes all but the largest connected component of every label, in place; returns how many."""
    return _drop(labels_XYZ, lambda sizes: np.arange(len(sizes)) != sizes.argmax())


def _drop(labels_XYZ: Labels, chosen: Any) -> int:
    """Removes the components for which `chosen(sizes)` is true. Works in each label's box, 26-connected."""
    from scipy import ndimage

    removed = 0
    for index, box in enumerate(ndimage.find_objects(labels_XYZ)):
        if box is None:
            continue
        part = labels_XYZ[box]
        pieces, count = ndimage.label(part == index + 1, structure=np.ones((3, 3, 3)))
        drop = np.zeros(count + 1, bool)
        drop[1:] = chosen(np.bincount(pieces.ravel())[1:])
        part[drop[pieces]] = 0
        removed += int(drop.sum())
    return removed
