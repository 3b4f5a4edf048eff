"""Where the patient is in a scan: thresholds by kind, on a coarse copy, with holes (lungs, bowel gas) filled.

The mask serves two purposes, cropping away air and taking a case's own mean and standard deviation, and is
the same in training and prediction because it never looks at a label.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.modality import KINDS
from veloxseg.types import Mask

__all__ = ["body_box", "body_mask", "threshold"]

COARSE_VOXELS = 48  # a coarse copy has about this many voxels along an axis


def threshold(array: npt.NDArray[Any], kind: str) -> float:
    """The value that separates air from tissue."""
    facts = KINDS[kind]
    if facts.body_above is not None:
        return facts.body_above
    low, high = np.percentile(array, [2, 98])
    return float(low + facts.body_share * (high - low))


def body_mask(array: npt.NDArray[Any], kind: str, fill_axis: int) -> Mask:
    """Tissue in `array`, holes filled slice by slice, without specks smaller than a tenth of the body."""
    from scipy import ndimage

    mask: Mask = np.asarray(array > threshold(array, kind))
    mask |= _holes(mask, fill_axis)
    pieces, count = ndimage.label(mask)
    if count > 1:
        sizes = np.bincount(pieces.ravel())
        sizes[0] = 0
        mask = (sizes >= 0.1 * sizes.max())[pieces]
    return mask


def _holes(mask: Mask, fill_axis: int) -> Mask:
    """Air that is enclosed within its slice: pieces of air, joined in plane only, that touch no border."""
    from scipy import ndimage

    cross = ndimage.generate_binary_structure(3, 1)
    cross[(slice(None),) * fill_axis + ([0, 2],)] = False
    pieces, count = ndimage.label(~mask, cross)
    enclosed = np.ones(count + 1, bool)
    enclosed[0] = False
    for axis in (axis for axis in range(3) if axis != fill_axis):
        for end in (0, -1):
            enclosed[pieces[(slice(None),) * axis + (end,)]] = False
    return enclosed[pieces]


def coarse_steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(max(1, round(n / COARSE_VOXELS)) for n in shape)


def body_box(array: npt.NDArray[Any], kind: str, fill_axis: int) -> tuple[slice, slice, slice] | None:
    """The box around the body, two coarse voxels wider; None if there is nothing but air."""
    steps = coarse_steps(array.shape)
    mask = body_mask(array[tuple(slice(None, None, step) for step in steps)], kind, fill_axis)
    if not mask.any():
        return None
    box = []
    for axis, (step, size) in enumerate(zip(steps, array.shape, strict=True)):
        hit = np.flatnonzero(mask.any(axis=tuple(a for a in range(3) if a != axis)))
        box.append(slice(max(0, int(hit[0] - 2) * step), min(size, int(hit[-1] + 3) * step)))
    return box[0], box[1], box[2]


def upsampled(mask: Mask, steps: tuple[int, ...], shape: tuple[int, ...]) -> Mask:
    """A coarse mask on the full grid."""
    for axis, step in enumerate(steps):
        mask = mask.repeat(step, axis=axis) if step > 1 else mask
    return mask[tuple(slice(0, n) for n in shape)]
