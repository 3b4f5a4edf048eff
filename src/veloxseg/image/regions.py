"""Boxes and connected components: where something is in an array, and which voxels hang together.

A lesion is a connected component, and neighbours share a face or an edge (18 neighbours). AutoPET's own scoring counts
lesions so; here every part that speaks of lesions (scores, tables, post-processing, pictures, fingerprint) does too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.types import Array, Box, Mask, Size

__all__ = ["CONNECTIVITY", "PADDING", "bounding_box", "box_around", "components", "cut", "label_boxes", "nonzero_box"]

CONNECTIVITY = 18  # neighbours of a voxel that belong to the same lesion
PADDING = 0.0  # beyond the image: the mean of normalised intensities, in training and prediction alike


def components(mask: Mask) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """The lesions of a mask, numbered from 1, and their sizes in voxels."""
    from scipy import ndimage

    numbered, count = ndimage.label(mask, structure=ndimage.generate_binary_structure(3, 2))
    return numbered, np.bincount(numbered.ravel(order="K"), minlength=count + 1)[1:].astype(np.int64)


def bounding_box(mask: Array) -> tuple[slice, ...]:
    """The smallest box that holds everything that is not 0, in any number of dimensions; empty if there is nothing."""
    box = []
    for axis in range(mask.ndim):
        hit = np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
        box.append(slice(int(hit[0]), int(hit[-1]) + 1) if len(hit) else slice(0, 0))
    return tuple(box)


def nonzero_box(labels: Array) -> Box | None:
    """The box around everything that is not 0; None if there is nothing."""
    x, y, z = bounding_box(labels)
    return (x, y, z) if x.stop else None


def label_boxes(labels: npt.NDArray[np.unsignedinteger[Any]]) -> dict[int, Box]:
    """Every value but 0, and the box around it."""
    from scipy.ndimage import find_objects

    outer = nonzero_box(labels)
    if outer is None:
        return {}
    # scipy reads rows of memory; label maps are mostly stored column by column
    part, turned = labels[outer], labels.flags.f_contiguous
    found = enumerate(find_objects(part.T if turned else part), start=1)
    return {value: _moved(box[::-1] if turned else box, outer) for value, box in found if box is not None}


def box_around(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds some boxes."""
    x, y, z = (slice(min(p.start for p in side), max(p.stop for p in side)) for side in zip(*boxes, strict=True))
    return x, y, z


def _moved(box: Box, outer: Box) -> Box:
    x, y, z = (slice(b.start + o.start, b.stop + o.start) for b, o in zip(box, outer, strict=True))
    return x, y, z


def cut(array: Array, start: Size, size: Size, dtype: Any) -> Array:
    """The box at `start` of the last three axes as a new array; what lies outside is `PADDING`."""
    lead = array.shape[:-3]
    shape = array.shape[-3:]
    inner = tuple(slice(max(0, s), max(0, min(n, s + p))) for s, p, n in zip(start, size, shape, strict=True))
    if all(part.stop - part.start == p for part, p in zip(inner, size, strict=True)):
        return np.array(array[..., inner[0], inner[1], inner[2]], dtype=dtype)
    result = np.full((*lead, *size), PADDING, dtype)
    into = tuple(slice(part.start - s, part.stop - s) for part, s in zip(inner, start, strict=True))
    if all(part.start < part.stop for part in inner):
        result[..., into[0], into[1], into[2]] = array[..., inner[0], inner[1], inner[2]]
    return result
