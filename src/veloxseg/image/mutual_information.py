"""How much one scan tells about another, whatever the two measure: normalised mutual information,

    I(a, b) = (H(a) + H(b) - H(a, b)) / H(a, b)      0: nothing, 1: everything

of grey levels in bins, less the bias (K_ab - K_a - K_b + 1) / 2N that N voxels in K filled bins bring by chance.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.modality import KINDS
from veloxseg.types import Floats, Mask, Spacing

__all__ = ["Likeness", "information", "levels", "likeness"]

LEVELS = 24
PROBES_MM = (16.0, 32.0, 48.0, 64.0)
FEWEST_VOXELS = 2000  # below, even the corrected figure is mostly chance
LEAST_OVERLAP = 0.3  # of the voxels at rest that a probe must keep

Levels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Likeness:
    """What the scans tell about each other where they lie, and where they do not."""

    here: float
    elsewhere: float  # the most at any of the probed shifts
    elsewhere_mm: tuple[float, float, float]  # the shift of the moving scan that gives it, along the grid's axes
    mirrored: float  # with the moving scan mirrored along the first axis


def likeness(fixed: Floats, moving: Floats, kinds: tuple[str, str], spacing: Spacing) -> Likeness | None:
    """Compares two scans on one grid; NaN lies outside a field of view. None if too little is in common."""
    inside = np.isfinite(fixed) & np.isfinite(moving)
    if np.count_nonzero(inside) < FEWEST_VOXELS:
        return None
    a, b = levels(fixed, kinds[0], inside), levels(moving, kinds[1], inside)
    found = {shift: _at(a, b, inside, shift) for shift in _shifts(a.shape, spacing)}
    here, count = found.pop((0, 0, 0))
    kept = {shift: value for shift, (value, voxels) in found.items() if voxels >= LEAST_OVERLAP * count}
    best = max(kept, key=kept.__getitem__, default=(0, 0, 0))
    mirrored = inside & inside[::-1]
    x, y, z = (-step * mm for step, mm in zip(best, spacing, strict=True))
    return Likeness(
        here=here,
        elsewhere=kept.get(best, 0.0),
        elsewhere_mm=(x, y, z),
        mirrored=information(a[mirrored], b[::-1][mirrored]) if mirrored.any() else 0.0,
    )


def levels(image: Floats, kind: str, inside: Mask) -> Levels:
    """Grey levels in bins: fixed ones for CT, else between percentiles of what is inside."""
    facts = KINDS.get(kind, KINDS["other"])
    low, high = facts.grey_window or np.percentile(image[inside], (1, 99))
    low = facts.air if facts.starts_at_air else low
    scaled = (np.nan_to_num(image, nan=low) - low) * (LEVELS / max(high - low, 1e-6))
    return np.clip(scaled, 0, LEVELS - 1).astype(np.int64)


def information(a: Levels, b: Levels) -> float:
    """I of two lists of levels; 0 if either is constant."""
    counts = np.bincount(a * LEVELS + b, minlength=LEVELS * LEVELS).reshape(LEVELS, LEVELS)
    joint, one, other = counts.ravel(), counts.sum(axis=1), counts.sum(axis=0)
    whole = _entropy(joint)
    if whole == 0:
        return 0.0
    filled = [int(np.count_nonzero(part)) for part in (joint, one, other)]
    bias = (filled[0] - filled[1] - filled[2] + 1) / (2 * len(a))
    return max(0.0, (_entropy(one) + _entropy(other) - whole - bias) / whole)


def _entropy(counts: npt.NDArray[Any]) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def _shifts(shape: tuple[int, ...], spacing: Spacing) -> Iterator[tuple[int, int, int]]:
    """Rest, and the probed shifts along each axis in voxels, as far as they leave two fifths of the axis."""
    yield 0, 0, 0
    for axis, mm, sign in product(range(3), PROBES_MM, (1, -1)):
        step = max(1, round(mm / spacing[axis]))
        if step <= 0.6 * shape[axis]:
            x, y, z = (sign * step if axis == other else 0 for other in range(3))
            yield x, y, z


def _at(a: Levels, b: Levels, inside: Mask, shift: tuple[int, int, int]) -> tuple[float, int]:
    """I of a(v) and b(v + shift), and of how many voxels."""
    ours = tuple(slice(max(0, -s), min(n, n - s)) for s, n in zip(shift, a.shape, strict=True))
    theirs = tuple(slice(max(0, s), min(n, n + s)) for s, n in zip(shift, a.shape, strict=True))
    both = inside[theirs]
    count = int(np.count_nonzero(both))
    return (information(a[ours][both], b[theirs][both]), count) if count else (0.0, 0)
