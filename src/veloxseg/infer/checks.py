"""Do the scans of a case belong together? Asked before anything is computed."""

import numpy as np
import numpy.typing as npt

from veloxseg.errors import DatasetError, GeometryError
from veloxseg.infer.scans import Scans
from veloxseg.prepare.align import alignment_warnings
from veloxseg.prepare.plan import Plan

__all__ = ["check_scans"]

AIR_HU = -500.0  # CT has voxels below, no other kind does


def check_scans(scans: Scans, plan: Plan) -> list[str]:
    """Refuses scans that lie apart or are swapped; returns what the user should know about the rest.

    Looking at voxels needs all scans at a time, so it is left out when memory is short.
    """
    check_place(scans, plan.reference)
    kinds = {modality.name: modality.kind for modality in plan.modalities}
    if len(scans) < 2 or scans.frugal:
        return []
    check_swapped(scans, kinds)
    return alignment_warnings(scans, plan.reference, kinds)[1]


def check_swapped(scans: Scans, kinds: dict[str, str]) -> None:
    """CT shows air as -1000; a CT without it beside another scan with it means that the two were swapped."""
    lowest = {name: float(scans[name].array.min()) for name in scans}
    for ct in (name for name in scans if kinds[name] == "ct" and lowest[name] > AIR_HU):
        for other in (name for name in scans if kinds[name] in ("pet", "mr") and lowest[name] < AIR_HU):
            raise DatasetError(
                f"{ct} has no value below {AIR_HU:g} ({lowest[ct]:g} is the lowest) but {other} has "
                f"({lowest[other]:g}); {ct} and {other} look swapped"
            )


def check_place(scans: Scans, reference: str) -> None:
    """Scans of one case lie in the same place; those that do not even touch were mixed up."""
    grids = scans.grids()
    low, high = bounds(grids[reference].affine, grids[reference].shape)
    for name, grid in grids.items():
        other_low, other_high = bounds(grid.affine, grid.shape)
        gap = float(np.maximum(other_low - high, low - other_high).max())
        if gap > 0:
            raise GeometryError(
                f"{name} and {reference} lie {gap:.0f} mm apart and have no place in common; "
                "are they of the same examination? Register them first"
            )


def bounds(
    affine: npt.NDArray[np.float64], shape: tuple[int, int, int]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    corners = np.array(np.meshgrid(*[(-0.5, n - 0.5) for n in shape])).reshape(3, -1)
    points = affine[:3, :3] @ corners + affine[:3, 3:]
    return points.min(axis=1), points.max(axis=1)
