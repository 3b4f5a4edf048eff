"""Time and memory of a prediction, before it starts.

Memory is what is held at the same time at the worst moment, on top of the program itself, which is measured: it has
opened the model and computed one window by then. The moments are

    reading      all scans as float32 (or one, with --max-ram), and a slab of the one that is being read
    resampling   the scans, the network input, and one modality on its way there
    windows      the network input, a slab of a strip's scores, the mask, probabilities if asked for, a chunk on its
                 way back, and with several threads the results of two windows more than there are threads
    finishing    the mask, and what counting and post-processing need
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veloxseg.image import Geometry
from veloxseg.predict.pipelines import PIPELINES, strips_of
from veloxseg.predict.restore import chunk_voxels
from veloxseg.predict.sliding import count_windows
from veloxseg.runtimes.decoding import Decoding
from veloxseg.types import Size

__all__ = ["Estimate", "WindowCost", "estimate"]

GIB = 1 << 30
SLAB = 64 << 20  # in which scans are read and interpolated
LATER = 22 << 20  # scipy.ndimage, which is imported after the program was measured


@dataclass(frozen=True, kw_only=True)
class WindowCost:
    """What one window took when it was tried."""

    seconds: float
    bytes: float  # that computing it has added to the program
    program: float  # bytes of the program after it


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An upper bound: the body, to which the network's grid is cropped, is only found later."""

    network_shape: Size
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
    window: WindowCost,
    windows_at_once: int,
    probabilities: bool,
) -> Estimate:
    plan = decoding.plan
    pipeline = PIPELINES[plan.pipeline]
    shape = pipeline.network_shape(grids[reference], plan)
    voxels, scan_voxels = float(np.prod(shape)), float(np.prod(grids[reference].shape))
    network = 4.0 * len(plan.modalities) * voxels
    scans = [4.0 * float(np.prod(grid.shape)) for grid in grids.values()]
    strips = strips_of(shape, grids[reference], decoding)
    width = strips[0].stop if len(strips) > 1 else max(shape[1], plan.patch[1])
    # the accumulator of a row of windows, and what of it waits for the way back
    row = min(plan.patch[0], shape[0]) * width * max(shape[2], plan.patch[2])
    slab = 4.0 * decoding.channels * row * pipeline.slabs_held
    waiting = 4.0 * decoding.channels * float(np.prod(plan.patch)) * (2 if windows_at_once > 1 else 0)
    kept = scan_voxels * np.dtype(decoding.dtype).itemsize + (scan_voxels * len(plan.outputs) if probabilities else 0)
    # a chunk on its way back is joined, interpolated, stacked and decoded; soft-max takes two more copies
    copies = 6 if probabilities else 4
    row_voxels = scan_voxels * min(1.0, plan.patch[0] / shape[0])  # what a row of windows is on the scan's grid
    back = 4.0 * copies * decoding.channels * min(chunk_voxels(decoding.channels), row_voxels)
    program = window.program + LATER * ("scipy.ndimage" not in sys.modules) + (windows_at_once - 1) * window.bytes
    computing = network + slab + kept + back + waiting
    working = max(pipeline.working_bytes(grid, shape, plan) for grid in grids.values())
    resampling = network + working + min(SLAB, max(scans))
    windows = count_windows(shape, plan.patch, overlap, strips)
    return Estimate(
        network_shape=shape,
        windows=windows,
        seconds=windows * window.seconds / windows_at_once + scan_voxels * 5e-8,
        bytes=program + max(sum(scans) + resampling, computing),
        frugal_bytes=program + max(max(scans) + resampling, computing),
    )
