"""nnU-Net's pipeline, step by step as it does it, so that a model that was trained there gives the mask it gives there.

    scan as stored (z, y, x) → the plan's axes → crop to what is not 0 → normalise → splines to the plan's spacing
    → windows (Gaussian around n // 2, sums with weights in half precision) → logits resampled → labels → crop undone

Nothing is turned to the patient's axes: nnU-Net learns and predicts along the axes of the file. Where one axis is more
than three times as coarse as another, slices are resampled one by one and the nearest one is taken between them.
Memory is bounded as in our own pipeline: scores come slab by slab, and logits never exist at the scan's full size.

Legend: C channel, S score, abc the network's axes (ABC on the scan's side of the crop).
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from veloxseg.console import warn
from veloxseg.image.regions import bounding_box
from veloxseg.image.resample import resample_image
from veloxseg.image.spline import CHUNK_BYTES, planes_zoomed, spline_matrix, zoom
from veloxseg.image.volume import Geometry, Volume
from veloxseg.modality import KINDS
from veloxseg.predict.restore import Restoration, chunk_voxels
from veloxseg.predict.sliding import Slab
from veloxseg.prepare.plan import ModalityPlan, NnunetSteps, Normalisation, Plan, Resampling
from veloxseg.runtimes.decoding import Decoding
from veloxseg.types import Array, Box, Floats, Mask, Size

__all__ = [
    "CropPlacement",
    "network_shape",
    "restore",
    "shared_columns",
    "to_network",
    "window_weights",
    "working_bytes",
]

ANISOTROPY = 3.0  # beyond this ratio of spacings, slices are resampled one by one
EPSILON = 1e-8
PEAK = 10  # the weight in the middle of a window
SPLINE_REACH = (
    32  # voxels on each side; further ones have weights below 1e-14 in splines of order 3, and more below that
)
SLABS_HELD = 4.0  # scores, sums of weights, and rows that wait for the way back, joined with those before


@dataclass(frozen=True, kw_only=True)
class CropPlacement:
    """Where the network's grid lies in the scan: the box of what is not 0, along the network's axes."""

    scan: Geometry
    steps: NnunetSteps
    spacing: tuple[float, float, float]  # of the network's grid
    box: Box
    network_shape: Size

    @property
    def crop(self) -> Size:
        a, b, c = (side.stop - side.start for side in self.box)
        return a, b, c

    @cached_property
    def network(self) -> Geometry:
        """The network's grid in the patient; both grids cover the same box."""
        axes = [2 - axis for axis in self.steps.axes]  # of the scan's array, which is (x, y, z)
        scale = np.array(self.crop) / self.network_shape
        start = [side.start for side in self.box] + (scale - 1) / 2
        to_scan = np.zeros((4, 4))
        to_scan[axes, range(3)] = scale
        to_scan[axes, 3] = start
        to_scan[3, 3] = 1
        return Geometry(shape=self.network_shape, affine=self.scan.affine @ to_scan)


def to_network(volumes: Mapping[str, Volume], plan: Plan) -> tuple[Floats, CropPlacement]:
    """Network input (C, a, b, c) in the plan's channel order, and where it lies."""
    assert plan.nnunet is not None
    steps, first = plan.nnunet, plan.names[0]
    scan = volumes[first].geometry
    for name in plan.names[1:]:
        if not volumes[name].geometry.same_grid(scan):
            warn(f"{name} is resampled to the grid of {first}; nnU-Net itself takes scans on one grid only")
    box, mask = _content(volumes, plan)
    crop = tuple(side.stop - side.start for side in box)
    spacing = _along(steps, scan.spacing)
    shape = _resampled_shape(crop, spacing, plan.spacing)
    orders, axis = _orders(steps.image, spacing, plan.spacing)
    image = np.empty((len(plan.modalities), *shape), np.float32)
    for channel, modality in enumerate(plan.modalities):
        values = _as_stored(_on_grid(volumes, plan, modality), steps)[box]
        _normalise(values, modality.normalisation, mask)
        image[channel] = _zoomed(values, shape, orders, axis)
    placement = CropPlacement(scan=scan, steps=steps, spacing=plan.spacing, box=box, network_shape=shape)
    return image, placement


def network_shape(scan: Geometry, plan: Plan) -> Size:
    """The network's grid of a whole scan; the crop makes it smaller."""
    assert plan.nnunet is not None
    shape = tuple(int(n) for n in _along(plan.nnunet, scan.shape))
    return _resampled_shape(shape, _along(plan.nnunet, scan.spacing), plan.spacing)


def working_bytes(scan: Geometry, shape: Size, plan: Plan) -> float:
    """What making one modality's input takes: a copy of the scan and a mask, and then moments or a zoom of it."""
    assert plan.nnunet is not None
    voxels = float(np.prod(scan.shape))
    halfway = _along(plan.nnunet, scan.shape)[0] * shape[1] * shape[2]
    return 6 * voxels + max(5 * voxels, 4.0 * (halfway + float(np.prod(shape)))) + 3.0 * CHUNK_BYTES


def _along(steps: NnunetSteps, values: tuple[float, ...]) -> tuple[float, ...]:
    """What is known along (x, y, z), along the network's axes."""
    return tuple(values[2 - axis] for axis in steps.axes)


def _as_stored(volume: Volume, steps: NnunetSteps) -> Floats:
    """A new float32 array along the network's axes; in memory it lies as in the file, since sums depend on that."""
    stored = np.array(volume.array.T, np.float32, order="C")
    return stored.transpose(steps.axes)


def _on_grid(volumes: Mapping[str, Volume], plan: Plan, modality: ModalityPlan) -> Volume:
    """A scan on the grid of the first one, where it lies in the patient."""
    volume, kind = volumes[modality.name], KINDS[modality.kind]
    if modality.name == plan.names[0]:
        return volume
    reference = volumes[plan.names[0]].geometry
    if volume.geometry.same_grid(reference):
        return volume
    return Volume(array=resample_image(volume, reference, kind.kernel, kind.air), geometry=reference)


def _content(volumes: Mapping[str, Volume], plan: Plan) -> tuple[Box, Mask | None]:
    """The box of what is not 0 in any modality, and the mask in it with its holes filled if a z-score asks for it."""
    assert plan.nnunet is not None
    inside: Mask | None = None
    for modality in plan.modalities:
        found = _on_grid(volumes, plan, modality).array.T.transpose(plan.nnunet.axes) != 0
        inside = found if inside is None else inside | found
    assert inside is not None
    a, b, c = bounding_box(inside) if inside.any() else (slice(0, n) for n in inside.shape)
    box = (a, b, c)
    if all(modality.normalisation.scheme != "zscore_nonzero" for modality in plan.modalities):
        return box, None
    from scipy.ndimage import binary_fill_holes

    return box, binary_fill_holes(inside)[box]


def _normalise(values: Floats, scheme: Normalisation, mask: Mask | None) -> None:
    """In place, in single precision as nnU-Net does it."""
    if scheme.scheme == "clip_zscore":
        assert scheme.mean is not None
        assert scheme.std is not None
        np.clip(values, scheme.low, scheme.high, out=values)
        values -= np.float32(scheme.mean)
        values /= np.float32(max(scheme.std, EPSILON))
    elif scheme.scheme == "zscore_crop":
        mean, std = values.mean(), values.std()
        values -= mean
        values /= max(std, EPSILON)
    elif scheme.scheme == "zscore_nonzero":
        found = values[mask]
        values[mask] = (found - found.mean()) / max(found.std(), EPSILON)
    elif scheme.scheme == "range_01":
        values -= values.min()
        values /= max(values.max(), EPSILON)
    elif scheme.scheme == "bytes_01":
        values /= np.float32(255)


# -- resampling ------------------------------------------------------------------------------------------------------


def _resampled_shape(shape: tuple[int, ...], spacing: tuple[float, ...], wanted: tuple[float, ...]) -> Size:
    a, b, c = (round(s / w * n) for n, s, w in zip(shape, spacing, wanted, strict=True))
    return max(1, a), max(1, b), max(1, c)


def _orders(
    resampling: Resampling, spacing: tuple[float, ...], wanted: tuple[float, ...]
) -> tuple[tuple[int, int, int], int | None]:
    """The order of the spline along each axis, and the axis across slices if they are resampled one by one."""
    axis = _slice_axis(resampling, spacing, wanted)
    a, b, c = (resampling.slice_order if axis == number else resampling.order for number in range(3))
    return (a, b, c), axis


def _slice_axis(resampling: Resampling, spacing: tuple[float, ...], wanted: tuple[float, ...]) -> int | None:
    if resampling.by_slices is False:
        return None
    deciding = spacing
    if resampling.by_slices is None:
        uneven = [s for s in (spacing, wanted) if max(s) / min(s) > ANISOTROPY]
        if not uneven:
            return None
        deciding = uneven[0]
    coarsest = [axis for axis, value in enumerate(deciding) if max(deciding) / value == 1]
    return coarsest[0] if len(coarsest) == 1 else None


def _zoomed(values: Floats, shape: Size, orders: tuple[int, int, int], axis: int | None) -> Floats:
    """One modality at its new size; a spline overshoots at edges, and is kept in the range of the volume or slice."""
    if values.shape == shape:
        return values
    if axis is None:
        result = zoom(values, shape, orders)
        return np.clip(result, values.min(), values.max(), out=result)
    between = tuple(values.shape[n] if n == axis else shape[n] for n in range(3))
    result = zoom(values, (between[0], between[1], between[2]), orders)
    plane = tuple(n for n in range(3) if n != axis)
    np.clip(result, values.min(axis=plane, keepdims=True), values.max(axis=plane, keepdims=True), out=result)
    return zoom(result, shape, orders)


# -- windows ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def window_weights(patch: Size) -> Floats:
    """A Gaussian around n // 2 with a sigma of n / 8, rounded to half precision; what rounds to 0 gets the least."""
    a, b, c = (np.exp(-0.5 * ((np.arange(n) - n // 2) / (n / 8)) ** 2) for n in patch)
    weights = (PEAK * (a[:, None, None] * b[:, None] * c)).astype(np.float16)
    weights[weights == 0] = weights[weights > 0].min()
    return weights.astype(np.float32)


# -- the way back ----------------------------------------------------------------------------------------------------


def restore(
    slabs: Iterable[Slab], placement: CropPlacement, decoding: Decoding, *, probabilities: bool = False
) -> Restoration:
    """Labels, and if asked for probabilities, of every voxel of the scan; outside the crop all is 0."""
    labels = np.zeros(placement.scan.shape, decoding.dtype, order="F")  # as files store them
    names = decoding.foreground_outputs if probabilities else ()
    kept = {name: np.zeros(placement.scan.shape, np.uint8, "F") for name in names}
    inside, insides = _crop_of(labels, placement), {name: _crop_of(kept[name], placement) for name in names}
    for _, strip in itertools.groupby(slabs, key=lambda slab: slab.column):
        for place, scores_SABC in _rows_of_scan(strip, placement, decoding.channels):
            inside[place] = decoding.labels(scores_SABC)
            if probabilities:
                for name, values in decoding.probabilities(scores_SABC).items():
                    insides[name][place] = np.rint(values * 255)
    return Restoration(labels, kept)


def shared_columns(scan: Geometry, plan: Plan) -> int:
    """How many columns strips must have in common: as many as a voxel of the scan depends on."""
    assert plan.nnunet is not None
    scores = plan.nnunet.scores
    return 2 * SPLINE_REACH if max(scores.order, scores.slice_order) > 1 else 4


def _crop_of(array: Array, placement: CropPlacement) -> Array:
    """The part of a scan's array that the network saw, as a view along the network's axes."""
    return array.T.transpose(placement.steps.axes)[placement.box]


def _rows_of_scan(
    slabs: Iterable[Slab], placement: CropPlacement, channels: int
) -> Iterator[tuple[tuple[slice, slice], Floats]]:
    """Scores of a strip on the scan's grid, a few rows of the crop at a time, as soon as what they depend on has come.

    Of the columns those are made that depend on nothing outside of the strip.
    """
    size, crop = placement.network_shape, placement.crop
    orders, _ = _orders(placement.steps.scores, placement.spacing, _along(placement.steps, placement.scan.spacing))
    first, second, third = (spline_matrix(n, m, order) for n, m, order in zip(size, crop, orders, strict=True))
    along = np.eye(size[0]) if first is None else first
    lowest, highest = _dependence(along)
    step = max(1, chunk_voxels(channels) // (4 * crop[1] * crop[2]))  # a quarter, as sums are in float64
    made, held, start = 0, None, 0
    for slab in slabs:
        if held is None:
            held = slab.scores_SXYZ[:, :0]
            columns, second = _columns(second, size[1], slice(slab.column, slab.column + held.shape[2]))
        held = np.concatenate([held, slab.scores_SXYZ], axis=1)
        ready = int(np.searchsorted(highest, start + held.shape[1]))
        for begin in range(made, ready, step):
            rows = slice(begin, min(begin + step, ready))
            used = slice(int(lowest[rows].min()) - start, int(highest[rows].max()) + 1 - start)
            weights = along[rows, used.start + start : used.stop + start].astype(np.float32)
            yield (rows, columns), np.stack([_scores(weights, scores[used], second, third) for scores in held])
        made = ready
        end = start + held.shape[1]
        kept = min(int(lowest[made]), end) if made < len(lowest) else end
        held, start = held[:, kept - start :].copy(), kept


def _dependence(weights: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The first voxel that a row (target, source) and those after it need, and the last that it and those before need.

    A row that falls on a voxel needs that one alone, between rows of a spline that need many.
    """
    used = weights != 0
    first, last = used.argmax(axis=1), used.shape[1] - 1 - used[:, ::-1].argmax(axis=1)
    return np.minimum.accumulate(first[::-1])[::-1], np.maximum.accumulate(last)


def _columns(
    matrix: npt.NDArray[np.float64] | None, size: int, strip: slice
) -> tuple[slice, npt.NDArray[np.float64] | None]:
    """The columns of the crop that depend on a strip alone, and their weights for its columns."""
    if matrix is None:
        return strip, None
    if strip == slice(0, size):
        return slice(0, len(matrix)), matrix
    lowest, highest = _dependence(matrix)
    made = np.flatnonzero((lowest >= strip.start) & (highest < strip.stop))
    assert len(made), "strips share as many columns as a voxel depends on"
    columns = slice(int(made[0]), int(made[-1]) + 1)
    return columns, matrix[columns, strip]


def _scores(
    weights: Floats, scores_abc: Floats, second: npt.NDArray[np.float64] | None, third: npt.NDArray[np.float64] | None
) -> Floats:
    """One score of some rows of the scan."""
    rows = (weights @ scores_abc.reshape(len(scores_abc), -1)).reshape(-1, *scores_abc.shape[1:])
    return planes_zoomed(rows, second, third).astype(np.float32)
