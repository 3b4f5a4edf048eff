"""Applying a list of edits (edits.py) to the model's mask."""

from collections.abc import Callable, Sequence

import numpy as np

from veloxseg.errors import ConfigError
from veloxseg.image.regions import components
from veloxseg.image.volume import Geometry
from veloxseg.serve.edits import Edit
from veloxseg.types import Labels

__all__ = ["apply"]


def apply(model: Labels, edits: Sequence[Edit], geometry: Geometry, labels: Sequence[int]) -> Labels:
    """The model's mask after all edits, in order."""
    mask = np.array(model, order="F")
    for number, edit in enumerate(edits):
        for voxel in (*edit.voxels, *([edit.voxel] if edit.voxel else [])):
            if any(index >= size for index, size in zip(voxel, mask.shape, strict=True)):
                size = " × ".join(map(str, mask.shape))
                raise ConfigError(f"edit {number}: voxel {list(voxel)} is outside the mask of {size}; correct it")
        if edit.op == "brush" and edit.label not in (0, *labels):
            raise ConfigError(
                f"edit {number}: label {edit.label} is unknown; the model has {', '.join(map(str, labels))}"
            )
        OPERATIONS[edit.op](mask, model, edit, geometry)
    return mask


def _erase(mask: Labels, model: Labels, edit: Edit, geometry: Geometry) -> None:
    assert edit.voxel is not None
    if (value := mask[edit.voxel]) != 0:
        numbered, _ = components(mask == value)
        mask[numbered == numbered[edit.voxel]] = 0


def _restore(mask: Labels, model: Labels, edit: Edit, geometry: Geometry) -> None:
    assert edit.voxel is not None
    if (value := model[edit.voxel]) != 0:
        numbered, _ = components(model == value)
        mask[numbered == numbered[edit.voxel]] = value


def _brush(mask: Labels, model: Labels, edit: Edit, geometry: Geometry) -> None:
    """A sphere in millimetres around each voxel: the patient's, whatever the slices' thickness."""
    steps = geometry.affine[:3, :3]
    reach = [int(edit.radius_mm / spacing) for spacing in geometry.spacing]
    offsets = np.stack(np.meshgrid(*[np.arange(-r, r + 1) for r in reach], indexing="ij")).reshape(3, -1)
    inside = offsets[:, ((steps @ offsets) ** 2).sum(axis=0) <= edit.radius_mm**2]
    for voxel in edit.voxels:
        there = inside + np.array(voxel)[:, None]
        kept = there[:, ((there >= 0) & (there < np.array(mask.shape)[:, None])).all(axis=0)]
        mask[tuple(kept)] = edit.label


OPERATIONS: dict[str, Callable[[Labels, Labels, Edit, Geometry], None]] = {
    "erase": _erase,
    "restore": _restore,
    "brush": _brush,
}
