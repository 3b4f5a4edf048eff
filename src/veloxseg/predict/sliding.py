"""The sliding window, in bounded memory: scores leave slab by slab, as soon as no further window can change them.

Windows overlap and are added with Gaussian weights, w(x, y, z) = g(x) g(y) g(z), sigma an eighth of the window.
Going along x, the slowest axis, only the rows of the present windows are held: the accumulator has the size of one
slab, whatever the length of the scan. The windows lie on a regular grid, so the sum of weights is a product of
three sums along axes and needs no volume of its own.

A runtime may take several windows at a time, from as many threads; they are added in order all the same, so the
result does not depend on it.

What a window gives is checked: logits of another shape, or that are not finite, end the prediction with an error that
names the window. They would be a wrong mask otherwise: NaN is not above 0, so it reads as background.

A window without content (the range of every channel is below a thousandth of the image's) is not computed:
instance norm would blow up rounding noise there. It adds a score of 0, which decodes to background.

Legend: C channel, S score (see decoding.py), XYZ space.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ConfigError, ModelError
from veloxseg.image.regions import cut
from veloxseg.prepare.plan import Plan
from veloxseg.runtimes.decoding import Decoding
from veloxseg.runtimes.native.adding import add_weighted
from veloxseg.runtimes.runtime import Runtime, logits_of
from veloxseg.types import Array, Floats, Size

__all__ = ["Slab", "count_windows", "predict_labels", "score_slabs", "window_starts"]

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int, int], None]  # windows done, windows in all
CONTENT = 1e-3  # this part of a channel's range: air differs by less within a window, tissue never does


class Slab(NamedTuple):
    """Final scores of the rows [start, start + n) along x. The array is reused: copy what must stay."""

    start: int
    scores_SXYZ: Floats


def window_starts(size: int, patch: int, overlap: float) -> tuple[int, ...]:
    """First voxels of the windows along one axis: evenly spread, at least `overlap` in common.

    An image smaller than the patch gets one window around it, which starts before it.

    >>> window_starts(200, 96, 0.5)
    (0, 35, 69, 104)
    """
    if size <= patch:
        return (-((patch - size) // 2),)
    count = int(np.ceil((size - patch) / max(1.0, patch * (1 - overlap)))) + 1
    return tuple(int(start) for start in np.rint(np.linspace(0, size - patch, count)))


def count_windows(shape: Size, patch: Size, overlap: float) -> int:
    return int(np.prod([len(window_starts(n, p, overlap)) for n, p in zip(shape, patch, strict=True)]))


def predict_labels(
    image_CXYZ: Array, runtime: Runtime, plan: Plan, *, overlap: float = 0.5, progress: Progress | None = None
) -> Array:
    """Labels of a whole image on the network's grid (X, Y, Z)."""
    decoding = Decoding(plan)
    labels = np.empty(image_CXYZ.shape[1:], decoding.dtype)
    for slab in score_slabs(image_CXYZ, runtime, plan, overlap=overlap, progress=progress):
        labels[slab.start : slab.start + slab.scores_SXYZ.shape[1]] = decoding.labels(slab.scores_SXYZ)
    return labels


def score_slabs(
    image_CXYZ: Array,
    runtime: Runtime,
    plan: Plan,
    *,
    overlap: float = 0.5,
    progress: Progress | None = None,
    own_weights: Floats | None = None,
) -> Iterator[Slab]:
    """The weighted mean of all windows' scores, in slabs along x. `image_CXYZ` may be memory-mapped.

    A pipeline with weights of its own computes every window, also one without content.
    """
    if not 0 <= overlap < 1:
        raise ConfigError(f"overlap is {overlap}; it must lie in [0, 1), usually 0.5")
    decoding, patch, shape = Decoding(plan), plan.patch, image_CXYZ.shape[1:]
    axes = [window_starts(n, p, overlap) for n, p in zip(shape, patch, strict=True)]
    weights = _gaussian(patch) if own_weights is None else own_weights
    sums = _ProductSums(axes, patch, shape) if own_weights is None else _CountedSums(axes, own_weights, shape)
    least = _least_range(image_CXYZ) if own_weights is None else None
    held = np.zeros((decoding.channels, min(patch[0], shape[0]), *shape[1:]), np.float32)
    workers = runtime.windows_at_once
    total, done = int(np.prod([len(starts) for starts in axes])), 0

    def computed(start: Size) -> tuple[Size, Floats | None]:
        window = _window(image_CXYZ, start, patch)
        if least is not None and not _has_content(window, least):
            return start, None
        return start, decoding.scores(_logits(runtime, window, start))

    for index, x in enumerate(axes[0]):
        first = max(0, x)  # the row that held[:, 0] stands for
        for start, scores in _in_order(computed, itertools.product([x], axes[1], axes[2]), workers):
            if scores is not None:
                (rows, *columns), inner = _overlap(start, patch, shape)
                place = slice(rows.start - first, rows.stop - first), *columns
                for channel, score in zip(held, scores, strict=True):
                    if not add_weighted(channel[place], score[*inner], weights[*inner]):
                        raise _not_finite(runtime, start)
            done += 1
            if progress is not None:
                progress(done, total)
        following = axes[0][index + 1] if index + 1 < len(axes[0]) else shape[0]
        final = held[:, : following - first]
        sums.divide(final, index, first)
        yield Slab(first, final)
        _shift(held, following - first)


def _in_order(function: Callable[[T], R], items: Iterable[T], workers: int) -> Iterator[R]:
    """Does what `map` does, by several threads; at most one result more than there are workers waits."""
    if workers == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _window(image_CXYZ: Array, start: Size, patch: Size) -> Floats:
    """A view where the window lies inside the image, else a copy with padding."""
    x, y, z = start
    view = image_CXYZ[:, max(0, x) : x + patch[0], max(0, y) : y + patch[1], max(0, z) : z + patch[2]]
    if view.dtype == np.float32 and view.shape[1:] == patch:
        return view
    return np.asarray(cut(image_CXYZ, start, patch, np.float32))


def _logits(runtime: Runtime, window_CXYZ: Floats, start: Size) -> Floats:
    """(K, X, Y, Z). An error names the window by its first voxel."""
    try:
        return logits_of(runtime, window_CXYZ[None])[0]
    except ModelError as error:
        raise ModelError(f"window at {start} of the network's grid: {error}") from error


def _not_finite(runtime: Runtime, start: Size) -> ModelError:
    return ModelError(
        f"window at {start} of the network's grid: {runtime.name} gave NaN or infinite scores; the weights are "
        "damaged, or the scan's values lie far from those of the training; compare with --runtime torch"
    )


def _shift(held_SXYZ: Floats, rows: int) -> None:
    """Drops the first rows and appends empty ones, row by row so that nothing is copied aside."""
    kept = held_SXYZ.shape[1] - rows
    for row in range(kept):
        held_SXYZ[:, row] = held_SXYZ[:, row + rows]
    held_SXYZ[:, max(kept, 0) :] = 0


def _overlap(start: Size, patch: Size, shape: tuple[int, ...]) -> tuple[list[slice], list[slice]]:
    """The part of a window that lies in the image, in the image's voxels and in the window's."""
    image = [slice(max(0, s), min(n, s + p)) for s, p, n in zip(start, patch, shape, strict=True)]
    return image, [slice(i.start - s, i.stop - s) for i, s in zip(image, start, strict=True)]


def _least_range(image_CXYZ: Array) -> Floats:
    """The range below which a channel of a window counts as air."""
    ranges = [float(channel.max()) - float(channel.min()) for channel in image_CXYZ]
    return np.array(ranges, np.float32) * np.float32(CONTENT)


def _has_content(window_CXYZ: Floats, least_C: Floats) -> bool:
    """Most windows show it in a few voxels already; only air must be looked at in full."""
    for part in (window_CXYZ[:, ::8, ::8, ::8], window_CXYZ):
        if any(float(c.max() - c.min()) > least for c, least in zip(part, least_C, strict=True)):
            return True
    return False


@lru_cache(maxsize=4)
def _gaussian(patch: Size) -> Floats:
    x, y, z = (_gaussian_axis(side) for side in patch)
    return np.asarray(x[:, None, None] * y[:, None] * z, np.float32)


def _gaussian_axis(side: int) -> npt.NDArray[np.float64]:
    offsets = np.arange(side) - (side - 1) / 2
    return np.asarray(np.exp(-0.5 * (offsets / (side / 8)) ** 2))


class _ProductSums:
    """The weights of all windows at each voxel, where a window's weights are a product: three sums along axes."""

    def __init__(self, axes: Sequence[tuple[int, ...]], patch: Size, shape: tuple[int, ...]) -> None:
        self.x, self.y, self.z = (_weight_sum(s, p, n) for s, p, n in zip(axes, patch, shape, strict=True))

    def divide(self, scores_SXYZ: Floats, index: int, first: int) -> None:
        """Divides the rows from `first` on, which are final after row `index` of windows, by their weights."""
        scores_SXYZ /= self.x[first : first + scores_SXYZ.shape[1], None, None]
        scores_SXYZ /= self.y[:, None] * self.z


class _CountedSums:
    """The same for any weights: they are added window by window, as the scores are."""

    def __init__(self, axes: Sequence[tuple[int, ...]], weights: Floats, shape: tuple[int, ...]) -> None:
        self.axes, self.weights, self.shape = axes, weights, shape
        self.held = np.zeros((1, min(weights.shape[0], shape[0]), *shape[1:]), np.float32)

    def divide(self, scores_SXYZ: Floats, index: int, first: int) -> None:
        a, b, c = self.weights.shape
        for start in itertools.product([self.axes[0][index]], self.axes[1], self.axes[2]):
            image, inner = _overlap(start, (a, b, c), self.shape)
            rows = slice(image[0].start - first, image[0].stop - first)
            self.held[0, rows, image[1], image[2]] += self.weights[inner[0], inner[1], inner[2]]
        rows_done = scores_SXYZ.shape[1]
        scores_SXYZ /= self.held[:, :rows_done]
        _shift(self.held, rows_done)


def _weight_sum(starts: tuple[int, ...], patch: int, size: int) -> Floats:
    """The weights of all windows along one axis, summed at each voxel."""
    total, weights = np.zeros(size), _gaussian_axis(patch)
    for start in starts:
        image = slice(max(0, start), min(size, start + patch))
        total[image] += weights[image.start - start : image.stop - start]
    return total.astype(np.float32)
