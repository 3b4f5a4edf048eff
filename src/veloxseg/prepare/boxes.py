"""Where the labels are in a label map: mostly background, so that work on the boxes around labels is little work."""

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["label_boxes", "nonzero_box"]

Box = tuple[slice, slice, slice]


def nonzero_box(labels: npt.NDArray[Any]) -> Box | None:
    """The box around everything that is not 0, by three fast projections."""
    parts = []
    for axis in range(3):
        hit = np.flatnonzero(labels.max(axis=tuple(a for a in range(3) if a != axis)))
        if not len(hit):
            return None
        parts.append(slice(int(hit[0]), int(hit[-1]) + 1))
    return parts[0], parts[1], parts[2]


def label_boxes(labels: npt.NDArray[np.unsignedinteger[Any]]) -> list[tuple[int, Box]]:
    """Every value but 0, and the box around it."""
    from scipy.ndimage import find_objects

    outer = nonzero_box(labels)
    if outer is None:
        return []
    return [
        (value, _moved(box, outer))
        for value, box in enumerate(find_objects(labels[outer]), start=1)
        if box is not None
    ]


def _moved(box: Box, outer: Box) -> Box:
    x, y, z = (slice(b.start + o.start, b.stop + o.start) for b, o in zip(box, outer, strict=True))
    return x, y, z
