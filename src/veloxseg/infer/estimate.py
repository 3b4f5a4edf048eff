"""Time and memory of a prediction, before it starts.

Memory is what is held at the same time at the worst moment. Either the scans are being brought to the network's
grid (scans + network input), or windows are being computed (network input + slab of scores + labels).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veloxseg.infer.decoding import Decoding
from veloxseg.infer.sliding import count_windows
from veloxseg.io import Geometry

__all__ = ["Estimate", "estimate"]

GIB = 1 << 30
PROGRAM = 0.25 * GIB  # Python, libraries and one compiled network with its buffers
FURTHER = 0.1 * GIB  # each further network, of an ensemble or for windows at the same time
TORCH = 0.45 * GIB  # what torch adds to that
INTERPOLATION = 5 * (64 << 20)  # slabs in which scans and scores are interpolated


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An upper bound: the body, to which the network's grid is cropped, is only found later."""

    network_shape: tuple[int, int, int]
    windows: int
    seconds: float
    bytes: float  # with all scans held at a time
    frugal_bytes: float  # with one scan held at a time

    @property
    def gib(self) -> float:
        return self.bytes / GIB

    @property
    def frugal_gib(self) -> float:
        return self.frugal_bytes / GIB


def estimate(
    grids: Mapping[str, Geometry],
    reference: str,
    decoding: Decoding,
    *,
    overlap: float,
    seconds_per_window: float,
    windows_at_once: int,
    members: int,
    probabilities: bool,
    torch: bool,
) -> Estimate:
    plan = decoding.plan
    shape = _network_shape(grids[reference], plan.spacing)
    voxels = float(np.prod(shape))
    network = 4.0 * len(plan.modalities) * voxels
    scans = [4.0 * np.prod(grid.shape) for grid in grids.values()]
    reference_voxels = float(np.prod(grids[reference].shape))
    x, y, z = (max(n, p) for n, p in zip(shape, plan.patch, strict=True))
    slab = 4.0 * decoding.channels * 1.75 * min(plan.patch[0], x) * y * z
    kept = reference_voxels * np.dtype(decoding.dtype).itemsize
    kept += reference_voxels * len(plan.outputs) if probabilities else 0.0
    program = PROGRAM + (TORCH if torch else 0.0) + (members * windows_at_once - 1) * FURTHER
    windows = count_windows(shape, plan.patch, overlap)
    computing = network + slab + kept + INTERPOLATION
    resampling = (
        network + 4.0 * voxels + INTERPOLATION
    )  # one modality is resampled, then copied to its channel
    return Estimate(
        network_shape=shape,
        windows=windows,
        seconds=windows * seconds_per_window / windows_at_once + reference_voxels * 5e-8,
        bytes=program + max(sum(scans) + resampling, computing),
        frugal_bytes=program + max(max(scans) + resampling, computing),
    )


def _network_shape(grid: Geometry, spacing: tuple[float, float, float]) -> tuple[int, int, int]:
    """The whole scan at the plan's spacing, its axes in the order of the network's."""
    order = np.abs(grid.direction).argmax(axis=1)
    extent = np.asarray(grid.shape)[order] * np.asarray(grid.spacing)[order]
    x, y, z = np.maximum(1, np.ceil(extent / np.asarray(spacing) - 0.01)).astype(int)
    return int(x), int(y), int(z)
