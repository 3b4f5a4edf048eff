"""Label values: the same voxels under other numbers, and regions found by their names."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

import numpy as np

from veloxseg.types import Labels

__all__ = ["matching", "renumbered"]


def renumbered(array: Labels, numbers: Mapping[int, int]) -> Labels:
    """Every value of `numbers` becomes the one that it maps to; other values stay, and 0 is background."""
    if all(one == other for one, other in numbers.items()):
        return array
    table = np.arange(max(int(array.max(initial=0)), *numbers) + 1, dtype=np.uint16)
    table[list(numbers)] = list(numbers.values())
    changed = np.empty_like(array, np.uint16, order="F")
    for z in range(array.shape[2]):
        changed[:, :, z] = table[array[:, :, z]]
    return changed


def matching(patterns: str, names: Iterable[str]) -> list[str]:
    """The names that are meant: one that is the very text, else those that fit a pattern, in any case of letters.

    >>> matching("GTV*|tumour", ["gtv-1", "GTV-2", "heart"]), matching("Tumour", ["tumour", "Tumour"])
    (['gtv-1', 'GTV-2'], ['Tumour'])
    """
    names = list(names)
    if patterns in names:
        return [patterns]
    wanted = [pattern.strip().casefold() for pattern in patterns.split("|")]
    return [name for name in names if any(fnmatchcase(name.casefold(), pattern) for pattern in wanted)]
