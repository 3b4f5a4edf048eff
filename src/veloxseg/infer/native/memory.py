"""How tensors lie in memory for the kernels: channels-last, borders of zeros, weights in panels.

Legend: N voxel, C channel, K output, XYZ space.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from veloxseg.model.config import Size

__all__ = [
    "FLOAT",
    "LANES",
    "PANEL",
    "Feature",
    "Floats",
    "Grid",
    "aligned",
    "along_z",
    "pack",
    "rows",
]

Floats = npt.NDArray[np.float32]
LANES, PANEL = 8, 16  # numbers of a vector; outputs that are computed together
FLOAT = 4  # bytes


class Grid(NamedTuple):
    """Voxels in memory: where the first is, and how many floats further the next is along x, y and z."""

    address: int
    steps: Size


@dataclass(frozen=True)
class Feature:
    """(X, Y, Z, C) inside a border of zeros."""

    array: Floats
    border: int = 0

    @property
    def size(self) -> Size:
        x, y, z = (side - 2 * self.border for side in self.array.shape[:3])
        return x, y, z

    @property
    def channels(self) -> int:
        return int(self.array.shape[3])

    @property
    def lines(self) -> tuple[int, int]:
        """Steps from one line of voxels to the next, along x and y."""
        return self.array.strides[0] // FLOAT, self.array.strides[1] // FLOAT

    def grid(self, before: int = 0, stride: int = 1) -> Grid:
        """From the voxel that lies `before` the first along each axis, every `stride`-th voxel."""
        first = self.border - before
        sx, sy = self.lines
        address = self.array[first:, first:, first:].ctypes.data
        return Grid(address, (stride * sx, stride * sy, stride * self.channels))


def rows(x_NC: Floats) -> Grid:
    return Grid(x_NC.ctypes.data, (0, 0, x_NC.shape[1]))


def along_z(weight_KCXYZ: Floats) -> Floats:
    """Rows in the order in which a channels-last feature has them: kx, ky, kz, C."""
    return weight_KCXYZ.transpose(0, 2, 3, 4, 1).reshape(len(weight_KCXYZ), -1)


def pack(weight_KC: Floats) -> Floats:
    """Panels of 16 outputs, each (C, 16); a last panel of up to 8 outputs has 8."""
    panels = []
    for first in range(0, len(weight_KC), PANEL):
        part = weight_KC[first : first + PANEL]
        lanes = PANEL if len(part) > LANES else LANES
        panels.append(np.pad(part.T, ((0, 0), (0, lanes - len(part)))).ravel())
    return aligned(np.concatenate(panels))


def aligned(array: Floats) -> Floats:
    """A copy that starts at a multiple of 64 bytes, so that no vector crosses a line of the cache."""
    room = np.zeros(array.size + 16, np.float32)
    first = -room.ctypes.data // FLOAT % 16
    copy = room[first : first + array.size].reshape(array.shape)
    copy[...] = array
    return copy
