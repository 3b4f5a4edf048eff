"""How tensors lie in memory for the kernels: channels-last, borders of zeros, weights in panels.

A place is told with the buffer that it lies in, so that bounds.py can see where the buffer ends; an address comes last.

Legend: N voxel, C channel, K output, XYZ space.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from veloxseg.types import Floats, Size

__all__ = [
    "FLOAT",
    "Feature",
    "Floats",
    "Grid",
    "Job",
    "Results",
    "Span",
    "Vectors",
    "aligned",
    "along_z",
    "pack",
    "rows",
]

FLOAT = 4  # bytes


class Vectors(NamedTuple):
    """What the loaded library computes with, see vectors.h; buffers and packed weights follow it."""

    lanes: int  # numbers of a vector
    panel: int  # outputs that are computed together, some vectors of them

    def whole(self, count: int) -> int:
        """A count in whole vectors."""
        return -(-count // self.lanes) * self.lanes


class Span(NamedTuple):
    """A place in a buffer, so many floats from its beginning."""

    array: Floats
    first: int = 0

    @property
    def address(self) -> int:
        return int(self.array.ctypes.data) + FLOAT * self.first

    def further(self, floats: int) -> "Span":
        return Span(self.array, self.first + floats)


class Grid(NamedTuple):
    """Voxels in memory: where the first is, and how many floats further the next is along x, y and z."""

    place: Span
    steps: Size

    def further(self, floats: int) -> "Grid":
        return Grid(self.place.further(floats), self.steps)


class Job(NamedTuple):
    """What to multiply, as kernels.h has it."""

    x: Grid
    weight: Floats  # in panels, see `pack`
    bias: Floats | None  # for all lanes of the panels
    residual: Grid | None
    out: Grid
    offsets: npt.NDArray[np.int64]  # where each segment of a voxel's inputs begins
    run: int
    outputs: int
    size: Size
    factor: float
    activate: bool


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
        sx, sy = self.lines
        first = (self.border - before) * (sx + sy + self.channels)
        return Grid(Span(self.array, first), (stride * sx, stride * sy, stride * self.channels))


def rows(x_NC: Floats) -> Grid:
    return Grid(Span(x_NC), (0, 0, x_NC.shape[1]))


def along_z(weight_KCXYZ: Floats) -> Floats:
    """Rows in the order in which a channels-last feature has them: kx, ky, kz, C."""
    return weight_KCXYZ.transpose(0, 2, 3, 4, 1).reshape(len(weight_KCXYZ), -1)


def pack(weight_KC: Floats, vectors: Vectors) -> Floats:
    """Panels of outputs, each (C, panel); the last one has as many whole vectors as its outputs need."""
    panels = []
    for first in range(0, len(weight_KC), vectors.panel):
        part = weight_KC[first : first + vectors.panel]
        panels.append(np.pad(part.T, ((0, 0), (0, vectors.whole(len(part)) - len(part)))).ravel())
    return aligned(np.concatenate(panels))


def aligned(array: Floats) -> Floats:
    """A copy that starts at a multiple of 64 bytes, so that no vector crosses a line of the cache."""
    room = np.zeros(array.size + 16, np.float32)
    first = -room.ctypes.data // FLOAT % 16
    copy = room[first : first + array.size].reshape(array.shape)
    copy[...] = array
    return copy


class Results:
    """Buffers of one shape that results are written to. One serves again as soon as no array shows it any more.

    So nobody copies a result, and nobody finds it overwritten. At most `spare` buffers wait for their use.
    """

    def __init__(self, spare: int = 1) -> None:
        self.spare = spare
        self._free: list[Floats] = []  # taking from its end and appending to it are safe in any thread

    def add(self, buffer: Floats) -> None:
        if len(self._free) < self.spare:
            self._free.append(buffer)

    def take(self, shape: tuple[int, ...]) -> Floats:
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = aligned(np.empty(shape, np.float32))
        return np.asarray(_Lent(buffer, self))


class _Lent:
    """What an array and all views of it have as their base, so that it goes when the last of them goes."""

    def __init__(self, buffer: Floats, owner: Results) -> None:
        self.buffer, self.owner = buffer, owner
        self.__array_interface__: dict[str, Any] = buffer.__array_interface__

    def __del__(self) -> None:
        self.owner.add(self.buffer)
