"""Numbers per lesion: volume and, where there is a PET, uptake.

A lesion is a connected component (regions.py). MTV is its volume, TLG = SUVmean · MTV, and SUVpeak the largest mean
over a 1 mL sphere centred in the lesion (radius 6.2 mm), all on the PET's own voxels.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.image import Geometry, Volume
from veloxseg.image.regions import components, label_boxes
from veloxseg.machine import NOTICE
from veloxseg.predict.result import Segmentation
from veloxseg.types import Box

__all__ = ["lesion_statistics"]

SPHERE_ML = 1.0


def lesion_statistics(result: Segmentation, pet: Volume | None) -> dict[str, Any]:
    """All lesions of every label, largest first, and their sums. Uptake is measured on the PET's own voxels."""
    labels = {}
    for value, name in result.names.items():
        if name not in result.volumes_ml:
            continue
        pieces, sizes = components(result.array == value)
        boxes = label_boxes(pieces.view(np.uint32))
        lesions = [_lesion(pieces, index + 1, boxes[index + 1], result, pet) for index in range(len(sizes))]
        lesions.sort(key=lambda lesion: -float(lesion["volume_ml"]))
        labels[name] = {**_total(lesions, pet is not None), "lesions": lesions}
    return {"notice": NOTICE, "uptake": "SUV as given by the PET" if pet is not None else None, "labels": labels}


def _lesion(
    pieces: npt.NDArray[np.int32], number: int, box: Box, result: Segmentation, pet: Volume | None
) -> dict[str, Any]:
    mask = pieces[box] == number
    voxels = np.argwhere(mask)
    start = np.array([part.start for part in box])
    centre = start + voxels.mean(axis=0)
    nearest = start + voxels[((voxels + start - centre) ** 2).sum(axis=1).argmin()]  # a centre may lie outside
    position = result.geometry.affine @ [*centre, 1.0]
    volume = float(mask.sum()) * result.geometry.voxel_ml
    lesion: dict[str, Any] = {
        "volume_ml": round(volume, 4),
        "centre_ras_mm": [round(float(p), 2) for p in position[:3]],
        "voxel": [int(index) for index in nearest],
    }
    if pet is not None:
        there = _on_pet(pieces, number, box, result.geometry, pet.geometry)
        values = pet.array[tuple(there)].astype(np.float64)
        lesion |= {
            "suv_mean": round(float(values.mean()), 4) if values.size else None,
            "suv_max": round(float(values.max()), 4) if values.size else None,
            "suv_peak": round(_peak(pet, there), 4) if values.size else None,
            "mtv_ml": round(volume, 4),
            "tlg": round(float(values.mean()) * volume, 4) if values.size else None,
        }
    return lesion


def _on_pet(
    pieces: npt.NDArray[np.int32], number: int, box: Box, mask_grid: Geometry, pet_grid: Geometry
) -> npt.NDArray[np.intp]:
    """(3, N): the PET's voxels whose centres lie in the lesion; of a lesion between them, those nearest to its voxels.

    Interpolating the PET to the finer grid of a CT would flatten its hottest voxel, so the mask goes to the PET.
    """
    to_pet = np.linalg.inv(pet_grid.affine) @ mask_grid.affine
    corners = np.array(np.meshgrid(*[(part.start - 0.5, part.stop - 0.5) for part in box])).reshape(3, -1)
    ends = to_pet[:3, :3] @ corners + to_pet[:3, 3:]
    low = np.clip(np.floor(ends.min(axis=1)).astype(int), 0, np.array(pet_grid.shape) - 1)
    high = np.clip(np.ceil(ends.max(axis=1)).astype(int) + 1, low + 1, pet_grid.shape)
    index = np.stack(np.meshgrid(*[np.arange(a, b) for a, b in zip(low, high, strict=True)], indexing="ij")).reshape(
        3, -1
    )
    to_mask = np.linalg.inv(to_pet)
    centres = np.rint(to_mask[:3, :3] @ index + to_mask[:3, 3:]).astype(np.intp)
    inside = ((centres >= 0) & (centres < np.array(pieces.shape)[:, None])).all(axis=0)
    inside[inside] = pieces[tuple(centres[:, inside])] == number
    if inside.any():
        return index[:, inside]
    voxels = np.argwhere(pieces[box] == number).T + np.array([[part.start] for part in box])
    nearest = np.rint(to_pet[:3, :3] @ voxels + to_pet[:3, 3:]).astype(np.intp)
    nearest = nearest[:, ((nearest >= 0) & (nearest < np.array(pet_grid.shape)[:, None])).all(axis=0)]
    return np.unique(nearest, axis=1)


def _peak(pet: Volume, there: npt.NDArray[np.intp]) -> float:
    """The largest mean over a sphere of 1 mL around a voxel of the lesion; outside the scan nothing is counted."""
    from scipy.ndimage import convolve

    radius = (SPHERE_ML * 1000 * 3 / (4 * np.pi)) ** (1 / 3)  # mm
    reach = np.floor(radius / np.asarray(pet.geometry.spacing)).astype(int)
    offsets = np.meshgrid(
        *[np.arange(-r, r + 1) * s for r, s in zip(reach, pet.geometry.spacing, strict=True)], indexing="ij"
    )
    sphere = (sum(o**2 for o in offsets) <= radius**2).astype(np.float64)
    low = np.maximum(there.min(axis=1) - reach, 0)
    high = np.minimum(there.max(axis=1) + reach + 1, pet.array.shape)
    values = pet.array[tuple(slice(a, b) for a, b in zip(low, high, strict=True))].astype(np.float64)
    total = convolve(values, sphere, mode="constant")
    count = convolve(np.ones_like(values), sphere, mode="constant")
    return float((total / count)[tuple(there - low[:, None])].max())


def _total(lesions: list[dict[str, Any]], uptake: bool) -> dict[str, Any]:
    total: dict[str, Any] = {
        "count": len(lesions),
        "volume_ml": round(sum(lesion["volume_ml"] for lesion in lesions), 4),
    }
    if uptake:
        total["mtv_ml"] = total["volume_ml"]
        total["tlg"] = round(sum(lesion["tlg"] or 0.0 for lesion in lesions), 4)
        total["suv_max"] = max((v for lesion in lesions if (v := lesion["suv_max"]) is not None), default=None)
    return total
