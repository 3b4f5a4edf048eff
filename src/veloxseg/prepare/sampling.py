"""Which patch of which case: a pure function of (seed, epoch, index), whoever computes it.

Philox is a counter-based generator: the random numbers of sample `index` in `epoch` are addressed, not consumed
in turn, so they do not depend on how many workers there are or where a resumed training starts. Samples come
in groups of `crops` from one case (the paper: 2 volumes × 2 crops = a batch of 4), every other one is centred on
a labelled voxel (1:1), and an epoch goes through permutations of the cases.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PADDING", "case_of", "cut", "draw_centre", "generator"]

PADDING = 0.0  # beyond the image: the mean of normalised intensities, in training and prediction alike
TRIES = 10  # to find an unlabelled centre for a negative patch


def generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The random numbers of one sample."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, index, epoch]))


def case_of(names: Sequence[str], seed: int, epoch: int, index: int, crops: int) -> str:
    """The case of sample `index`: group g of an epoch takes the g-th entry of repeated permutations."""
    group = index // crops
    turn, place = divmod(group, len(names))
    order = generator(seed, epoch, (1 << 40) + turn).permutation(len(names))
    return names[int(order[place])]


def draw_centre(
    random: np.random.Generator,
    label_XYZ: npt.NDArray[Any],
    foreground: Mapping[int, npt.NDArray[np.uint16]],
    patch: tuple[int, int, int],
    positive: bool,
) -> tuple[int, int, int]:
    """The patch's first voxel: around a labelled voxel, each label as likely, or anywhere unlabelled."""
    shape = label_XYZ.shape
    if positive and foreground:
        values = sorted(foreground)
        points = foreground[values[random.integers(len(values))]]
        centre = points[random.integers(len(points))].astype(int)
    else:
        for _ in range(TRIES):
            centre = random.integers(0, shape)
            if not label_XYZ[tuple(centre)]:
                break
    x, y, z = (
        # stay inside the image; where it is smaller than the patch, centre it
        int(np.clip(c - p // 2, 0, n - p)) if n >= p else -((p - n) // 2)
        for c, p, n in zip(centre, patch, shape, strict=True)
    )
    return x, y, z


def cut(
    array: npt.NDArray[Any], start: tuple[int, int, int], size: tuple[int, int, int], dtype: Any
) -> npt.NDArray[Any]:
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
