"""Edits of a mask: a list that is applied (editing.py) to the model's mask, which itself is never changed.

    {"op": "erase", "voxel": [x, y, z]}                       the lesion at this voxel becomes background
    {"op": "restore", "voxel": [x, y, z]}                     the model's lesion at this voxel comes back
    {"op": "brush", "label": 1, "radius_mm": 6, "voxels": …}  spheres around these voxels get the label; 0 rubs out

Voxels are indices of the mask file. A lesion is an 18-connected component of one label, as everywhere. Undo is the list
without its last entry, and revert the empty list.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from veloxseg.errors import ConfigError
from veloxseg.schema import OneOf, Range, build

__all__ = ["MOST_EDITS", "Edit", "check_edits"]

MOST_EDITS = 2000
Index = Annotated[int, Range(0, 100_000)]


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One entry of the list."""

    op: Annotated[str, OneOf("erase", "restore", "brush")]
    voxel: tuple[Index, Index, Index] | None = None
    voxels: tuple[tuple[Index, Index, Index], ...] = ()
    label: Annotated[int, Range(0, 65535)] = 1
    radius_mm: Annotated[float, Range(0.1, 100)] = 5.0


def check_edits(value: Any) -> list[Edit]:
    """The list as it came from outside."""
    if not isinstance(value, list) or len(value) > MOST_EDITS:
        raise ConfigError(f"edits are not a list of at most {MOST_EDITS} entries; send a list")
    edits: list[Edit] = [build(Edit, entry, f"edit {number}") for number, entry in enumerate(value)]
    for number, edit in enumerate(edits):
        if edit.op == "brush" and not 0 < len(edit.voxels) <= 5000:
            raise ConfigError(f"edit {number}: a brush has {len(edit.voxels)} voxels, expected 1 to 5000; send them")
        if edit.op != "brush" and edit.voxel is None:
            raise ConfigError(f"edit {number}: {edit.op} has no voxel; say where")
    return edits
