"""After the network: small components go, or all but the largest, label by label."""

from typing import Any

import numpy as np

from veloxseg.image.regions import components, label_boxes
from veloxseg.types import Labels

__all__ = ["keep_largest", "remove_smaller"]


def remove_smaller(labels_XYZ: Labels, millilitres: float, voxel_ml: float) -> int:
    """Removes connected components below a volume, in place; returns how many."""
    least = millilitres / voxel_ml
    return _drop(labels_XYZ, lambda sizes: sizes < least * (1 - 1e-9))


def keep_largest(labels_XYZ: Labels) -> int:
    """Removes all but the largest connected component of every label, in place; returns how many."""
    return _drop(labels_XYZ, lambda sizes: np.arange(len(sizes)) != sizes.argmax())


def _drop(labels_XYZ: Labels, chosen: Any) -> int:
    """Removes the components for which `chosen(sizes)` is true. Works in each label's box."""
    removed = 0
    for value, box in label_boxes(labels_XYZ).items():
        part = labels_XYZ[box]
        pieces, sizes = components(part == value)
        drop = np.zeros(len(sizes) + 1, bool)
        drop[1:] = chosen(sizes)
        part[drop[pieces]] = 0
        removed += int(drop.sum())
    return removed
