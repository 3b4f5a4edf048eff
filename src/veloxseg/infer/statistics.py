"""Numbers per lesion: volume and, where there is a PET, uptake.

A lesion is a connected component (18 neighbours). MTV is its volume, TLG = SUVmean · MTV, and SUVpeak the largest mean
over a 1 mL sphere centred in the lesion (radius 6.2 mm).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.infer.provenance import NOTICE
from veloxseg.infer.result import Segmentation
from veloxseg.io import Volume

__all__ = ["lesion_statistics"]

SPHERE_ML = 1.0


def lesion_statistics(result: Segmentation, pet: Volume | None) -> dict[str, Any]:
    """All lesions of every label, largest first, and their sums. `pet` lies on the grid of the mask."""
    from scipy import ndimage

    neighbours = ndimage.generate_binary_structure(3, 2)
    labels = {}
    for value, name in result.names.items():
        if name not in result.volumes_ml:
            continue
        pieces, count = ndimage.label(result.array == value, structure=neighbours)
        boxes = ndimage.find_objects(pieces)
        lesions = [_lesion(pieces, index + 1, boxes[index], result, pet) for index in range(count)]
        lesions.sort(key=lambda lesion: -float(lesion["volume_ml"]))
        labels[name] = {**_total(lesions, pet is not None), "lesions": lesions}
    return {
        "notice": NOTICE,
        "uptake": "SUV as given by the PET" if pet is not None else None,
        "labels": labels,
    }


def _lesion(
    pieces: npt.NDArray[np.int32],
    number: int,
    box: tuple[slice, slice, slice],
    result: Segmentation,
    pet: Volume | None,
) -> dict[str, Any]:
    mask = pieces[box] == number
    centre = np.array([part.start for part in box]) + np.argwhere(mask).mean(axis=0)
    position = result.geometry.affine @ [*centre, 1.0]
    volume = float(mask.sum()) * result.geometry.voxel_ml
    lesion: dict[str, Any] = {
        "volume_ml": round(volume, 4),
        "centre_ras_mm": [round(float(p), 2) for p in position[:3]],
    }
    if pet is not None:
        values = pet.array[box][mask].astype(np.float64)
        lesion |= {
            "suv_mean": round(float(values.mean()), 4),
            "suv_max": round(float(values.max()), 4),
            "suv_peak": round(_peak(pet, box, mask), 4),
            "mtv_ml": round(volume, 4),
            "tlg": round(float(values.mean()) * volume, 4),
        }
    return lesion


def _peak(pet: Volume, box: tuple[slice, slice, slice], mask: npt.NDArray[np.bool_]) -> float:
    """The largest mean over a sphere of 1 mL around a voxel of the lesion; outside the scan nothing is counted."""
    from scipy.ndimage import convolve

    radius = (SPHERE_ML * 1000 * 3 / (4 * np.pi)) ** (1 / 3)  # mm
    reach = np.floor(radius / np.asarray(pet.geometry.spacing)).astype(int)
    offsets = np.meshgrid(
        *[np.arange(-r, r + 1) * s for r, s in zip(reach, pet.geometry.spacing, strict=True)]
    )
    sphere = (sum(o**2 for o in offsets) <= radius**2).transpose(1, 0, 2).astype(np.float64)
    wide = tuple(
        slice(max(0, part.start - r), min(n, part.stop + r))
        for part, r, n in zip(box, reach, pet.array.shape, strict=True)
    )
    values = pet.array[wide].astype(np.float64)
    total = convolve(values, sphere, mode="constant")
    count = convolve(np.ones_like(values), sphere, mode="constant")
    inner = tuple(slice(part.start - w.start, part.stop - w.start) for part, w in zip(box, wide, strict=True))
    return float((total / count)[inner][mask].max())


def _total(lesions: list[dict[str, Any]], uptake: bool) -> dict[str, Any]:
    total: dict[str, Any] = {
        "count": len(lesions),
        "volume_ml": round(sum(lesion["volume_ml"] for lesion in lesions), 4),
    }
    if uptake:
        total["mtv_ml"] = total["volume_ml"]
        total["tlg"] = round(sum(lesion["tlg"] for lesion in lesions), 4)
        total["suv_max"] = max((lesion["suv_max"] for lesion in lesions), default=None)
    return total
