"""From slabs of scores on the network's grid to labels on the scan's own grid, never all classes at full size.

Scores are interpolated linearly to the scan's voxels and decoded there, which follows boundaries between voxels
better than interpolating labels. Rows of the scan are made as soon as the slabs they depend on have come. Linear
interpolation between background voxels is background, so only boxes with something in them are computed.

Scores may come in strips (sliding.py). Of each those columns of the scan are made that read nothing outside of it;
neighbours have so many columns in common that each column of the scan is among them (`shared_columns`).

Legend: S score, XYZ space (axes of the network's grid).
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from veloxseg.image.resample import AxisMap, axis_maps, interpolate
from veloxseg.image.volume import Geometry
from veloxseg.predict.sliding import Slab
from veloxseg.prepare.network_input import Placement
from veloxseg.prepare.plan import Plan
from veloxseg.runtimes.decoding import Decoding
from veloxseg.types import Array, Floats, Size

__all__ = ["Restoration", "chunk_voxels", "restore", "shared_columns"]

CHUNK_BYTES = 64 << 20  # of scores on the scan's grid that are made at a time


class Restoration(NamedTuple):
    """On the scan's own grid (X, Y, Z)."""

    labels: npt.NDArray[Any]
    probabilities: dict[str, npt.NDArray[np.uint8]]  # 0..255 for 0..1, by output; empty unless asked for


def restore(
    slabs: Iterable[Slab], placement: Placement, decoding: Decoding, *, probabilities: bool = False
) -> Restoration:
    """Labels, and if asked for probabilities, of every voxel of the scan; outside the network's grid all is 0."""
    maps, along_network = _to_scan(placement)
    labels = np.zeros(placement.reference_shape, decoding.dtype, order="F")  # as files store them
    names = decoding.foreground_outputs if probabilities else ()
    kept = {name: np.zeros(placement.reference_shape, np.uint8, "F") for name in names}
    labels_view, views = along_network(labels), {name: along_network(array) for name, array in kept.items()}

    def write(rows: npt.NDArray[np.intp], into: tuple[slice, slice], scores_SXYZ: Floats) -> None:
        labels_view[rows, into[0], into[1]] = decoding.labels(scores_SXYZ)
        if probabilities:
            for name, values in decoding.probabilities(scores_SXYZ).items():
                views[name][rows, into[0], into[1]] = np.rint(values * 255)

    for _, strip in itertools.groupby(slabs, key=lambda slab: slab.column):
        for block in _blocks(_thin(strip), maps[0], placement.network_shape[0]):
            _interpolate_block(block, maps, placement.network_shape, decoding, write, everywhere=probabilities)
    return Restoration(labels, kept)


def shared_columns(scan: Geometry, plan: Plan) -> int:
    """How many columns strips must have in common: what a voxel of the scan reads, wherever it lies between two."""
    reach = max(1.0, max(scan.spacing) / min(plan.spacing))
    return math.ceil(2 * reach) + 3


def _to_scan(placement: Placement) -> tuple[tuple[AxisMap, AxisMap, AxisMap], Callable[[Array], Array]]:
    """Where the scan's voxels lie on the network's grid, and a view of the scan's array along the network's axes.

    Both grids are seen along the patient's axes, so that the numbers do not depend on how the scan is stored.
    """
    scan = placement.reference.in_ras()
    order = [int(axis) for axis in np.abs(np.linalg.inv(scan.affine) @ placement.network.affine)[:3, :3].argmax(axis=0)]
    x, y, z = (scan.shape[axis] for axis in order)
    maps = axis_maps(placement.network, Geometry(shape=(x, y, z), affine=scan.affine[:, [*order, 3]]))
    assert maps is not None, "a network grid runs along the axes of its scan"
    turn = placement.reference.orientation
    return maps, lambda array: turn.apply(array).transpose(order)


def chunk_voxels(channels: int) -> int:
    """How many voxels of the scan are made at a time, so that memory does not grow with the number of classes."""
    return CHUNK_BYTES // (4 * channels)


def _thin(slabs: Iterable[Slab]) -> Iterator[Slab]:
    """The same rows in slabs so thin that joining and comparing them takes little memory, however many classes."""
    for slab in slabs:
        channels, rows, y, z = slab.scores_SXYZ.shape
        thickness = max(1, chunk_voxels(channels) // (y * z))
        for begin in range(0, rows, thickness):
            yield Slab(slab.start + begin, slab.scores_SXYZ[:, begin : begin + thickness], slab.column)


class _Block(NamedTuple):
    """Rows of the scan that can be made, and the rows of scores that they depend on."""

    rows: npt.NDArray[np.intp]  # indices into the scan
    coordinates: npt.NDArray[np.float64]  # of these rows, in the scores below
    scores_SXYZ: Floats
    column: int  # the first of the scores along y


def _blocks(slabs: Iterable[Slab], along: AxisMap, size: int) -> Iterator[_Block]:
    """Joins each slab with the last rows before it, so that every row of the scan finds its neighbours."""
    coordinates = along.coordinates
    rows = np.flatnonzero(_inside(coordinates, size))
    rows = rows[np.argsort(coordinates[rows], kind="stable")]
    where = coordinates[rows]
    reach = max(1.0, abs(along.step))
    made, tail, tail_start = 0, None, 0
    for slab in slabs:
        scores = slab.scores_SXYZ
        start = tail_start if tail is not None else slab.start
        joined = scores if tail is None else np.concatenate([tail, scores], axis=1)
        end = slab.start + scores.shape[1]
        ready = len(where) if end == size else int(np.searchsorted(where, end - 1 - reach, side="right"))
        if ready > made:
            yield _Block(rows[made:ready], where[made:ready] - start, joined, slab.column)
        made = max(made, ready)
        tail_start = end if made == len(where) else max(start, min(end, int(where[made] - reach)))
        tail = joined[:, tail_start - start :].copy()


def _inside(coordinates: npt.NDArray[np.float64], size: int) -> npt.NDArray[np.bool_]:
    """Voxels whose centre lies in the network's grid, half a voxel around the outermost centres included."""
    return np.asarray((coordinates >= -0.5 - 1e-3) & (coordinates <= size - 0.5 + 1e-3))


def _interpolate_block(
    block: _Block,
    maps: tuple[AxisMap, AxisMap, AxisMap],
    network: Size,
    decoding: Decoding,
    write: Callable[[npt.NDArray[np.intp], tuple[slice, slice], Floats], None],
    *,
    everywhere: bool,
) -> None:
    """Makes the block's rows, in chunks; if not everywhere, then in the box around the foreground."""
    _, rows, columns, depth = block.scores_SXYZ.shape
    box = [(0, rows), (0, columns), (0, depth)] if everywhere else _box(decoding.foreground(block.scores_SXYZ))
    if box is None:
        return
    first, last = _affected(block.coordinates, abs(maps[0].step), box[0])
    y_map, y_into, y_from = _part(maps[1], box[1], block.column, columns, network[1])
    z_map, z_into, z_from = _part(maps[2], box[2], 0, depth, network[2])
    step = max(1, chunk_voxels(len(block.scores_SXYZ)) // max(1, y_map.size * z_map.size))
    for begin in range(first, last, step):
        where = block.coordinates[begin : min(begin + step, last)]
        x_from = _support(where, abs(maps[0].step), block.scores_SXYZ.shape[1])
        x_map = AxisMap(0, len(where), abs(maps[0].step), float(where[0]) - x_from.start)
        scores = np.stack(
            [interpolate(s[x_from, y_from, z_from], (x_map, y_map, z_map), "linear") for s in block.scores_SXYZ]
        )
        write(block.rows[begin : begin + len(where)], (y_into, z_into), scores)


def _box(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]] | None:
    """First and last + 1 voxel along each axis."""
    box = []
    for axis in range(3):
        hit = np.flatnonzero(mask.any(axis=tuple(a for a in range(3) if a != axis)))
        if not len(hit):
            return None
        box.append((int(hit[0]), int(hit[-1]) + 1))
    return box


def _affected(where: npt.NDArray[np.float64], step: float, box: tuple[int, int]) -> tuple[int, int]:
    """The range of ascending coordinates whose interpolation can see voxels [box[0], box[1])."""
    reach = max(1.0, step)
    low = int(np.searchsorted(where, box[0] - reach))
    return low, max(low, int(np.searchsorted(where, box[1] - 1 + reach, side="right")))


def _support(where: npt.NDArray[np.float64], step: float, size: int) -> slice:
    """The voxels that interpolation at `where` reads."""
    reach = max(1.0, step)
    begin = min(max(0, int(np.floor(where.min() - reach))), size - 1)
    return slice(begin, max(begin + 1, min(size, int(np.ceil(where.max() + reach)) + 1)))


def _part(along: AxisMap, box: tuple[int, int], start: int, count: int, size: int) -> tuple[AxisMap, slice, slice]:
    """The map of those scan voxels along an axis that see the box, their place in the scan, and what they read.

    There are scores of the voxels [start, start + count) of an axis of that size; the box and what is read count from
    `start` on.
    """
    coordinates = along.coordinates
    inside = np.flatnonzero(_inside(coordinates, size) & _readable(coordinates, abs(along.step), start, count, size))
    if along.step < 0:
        inside = inside[::-1]
    low, high = _affected(coordinates[inside], abs(along.step), (box[0] + start, box[1] + start))
    chosen = np.sort(inside[low:high])
    if not len(chosen):
        return AxisMap(along.source_axis, 0, along.step, 0.0), slice(0, 0), slice(0, 1)
    into = slice(int(chosen[0]), int(chosen[-1]) + 1)
    source = _support(coordinates[into], abs(along.step), size)
    part = AxisMap(along.source_axis, len(chosen), along.step, coordinates[into.start] - source.start)
    return part, into, slice(source.start - start, source.stop - start)


def _readable(
    coordinates: npt.NDArray[np.float64], step: float, start: int, count: int, size: int
) -> npt.NDArray[np.bool_]:
    """Whether what interpolation reads (`_support`) lies in [start, start + count) of an axis of that size."""
    reach = max(1.0, step)
    first, last = np.floor(coordinates - reach), np.ceil(coordinates + reach)
    return np.asarray((np.clip(first, 0, size - 1) >= start) & (np.minimum(last + 1, size) <= start + count))
