"""The sliding window, in bounded memory: scores leave slab by slab, as soon as no further window can change them.

Windows overlap and are added with weights (accumulator.py). Going along x, the slowest axis, only the rows of the
present windows are held: the accumulator has the size of one slab, whatever the length of the scan.

With many classes one slab is large too: 120 of them in a cross-section of 512 x 512 are 12 GB. Beyond STRIP_BYTES the
cross-section is worked off in strips along y, each from the first row to the last. Windows lie on the same grid and
are added in the same order whatever the strips are, so scores do not depend on them. What that costs: a window that
reaches over the border of two strips is computed for both, so strips as wide as a window take twice the time.

A runtime may take several windows at a time, from as many threads; they are added in order all the same, so the
result does not depend on it. The threads go on to the next row of windows while a slab is on its way out.

What a window gives is checked: logits of another shape, or that are not finite, end the prediction with an error that
names the window. They would be a wrong mask otherwise: NaN is not above 0, so it reads as background.

A window without content (the range of every channel is below a thousandth of the image's) is not computed:
instance norm would blow up rounding noise there. It adds a score of 0, which decodes to background.

Legend: C channel, S score (see decoding.py), XYZ space.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import NamedTuple, TypeVar

import numpy as np

from veloxseg.errors import ConfigError, ModelError
from veloxseg.image.regions import cut
from veloxseg.predict.accumulator import Accumulator, Windows
from veloxseg.prepare.plan import Plan
from veloxseg.runtimes.decoding import Decoding
from veloxseg.runtimes.runtime import Runtime, logits_of
from veloxseg.types import Array, Floats, Size

__all__ = ["STRIP_BYTES", "Slab", "count_windows", "predict_labels", "score_slabs", "strips_within", "window_starts"]

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int, int], None]  # windows done, windows in all
CONTENT = 1e-3  # this part of a channel's range: air differs by less within a window, tissue never does
STRIP_BYTES = 1 << 30  # of scores: 45 columns of 120 classes by 512, for which a window of 96 is computed thrice


class Slab(NamedTuple):
    """Final scores of the rows from `start` on along x, of a strip that begins at `column` along y.

    Slabs come strip by strip, and in each from the first row to the last. The array is reused: copy what must stay.
    """

    start: int
    scores_SXYZ: Floats
    column: int = 0


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


def strips_within(memory: float, shape: Size, patch: Size, channels: int, shared: int = 0) -> tuple[slice, ...]:
    """Strips along y, evenly spread, whose slabs of scores have no more bytes than that.

    Neighbours have at least `shared` columns in common: a voxel of the scan that lies between two strips needs scores
    on both sides of it, and finds them all in one of the strips. A strip has twice that at the least.

    >>> strips_within(4 * 96 * 40 * 60, shape=(200, 100, 60), patch=(96, 96, 96), channels=1, shared=4)
    (slice(0, 40, None), slice(30, 70, None), slice(60, 100, None))
    """
    column = 4 * channels * min(patch[0], shape[0]) * shape[2]
    width = max(int(memory // column), 2 * shared, 1)
    if width >= shape[1]:
        return (slice(0, shape[1]),)
    count = -(-(shape[1] - width) // (width - shared)) + 1
    return tuple(slice(int(a), int(a) + width) for a in np.rint(np.linspace(0, shape[1] - width, count)))


def count_windows(shape: Size, patch: Size, overlap: float, strips: Sequence[slice] | None = None) -> int:
    """How many windows are computed; those on the border of two strips count for both."""
    windows = _windows(shape, patch, overlap)
    parts = [windows.touching(strip) for strip in strips or (slice(0, shape[1]),)]
    return sum(math.prod(map(len, part.axes)) for part in parts)


def predict_labels(
    image_CXYZ: Array, runtime: Runtime, plan: Plan, *, overlap: float = 0.5, progress: Progress | None = None
) -> Array:
    """Labels of a whole image on the network's grid (X, Y, Z)."""
    decoding = Decoding(plan)
    _, x, y, z = image_CXYZ.shape
    labels = np.empty((x, y, z), decoding.dtype)
    strips = strips_within(STRIP_BYTES, (x, y, z), plan.patch, decoding.channels)
    for slab in score_slabs(image_CXYZ, runtime, plan, overlap=overlap, progress=progress, strips=strips):
        _, rows, columns, _ = slab.scores_SXYZ.shape
        into = labels[slab.start : slab.start + rows, slab.column : slab.column + columns]
        into[...] = decoding.labels(slab.scores_SXYZ)
    return labels


def score_slabs(
    image_CXYZ: Array,
    runtime: Runtime,
    plan: Plan,
    *,
    overlap: float = 0.5,
    progress: Progress | None = None,
    own_weights: Floats | None = None,
    strips: Sequence[slice] | None = None,
) -> Iterator[Slab]:
    """The weighted mean of all windows' scores, in slabs along x, strip by strip. `image_CXYZ` may be memory-mapped.

    A pipeline with weights of its own computes every window, also one without content. Without `strips` there is one.
    """
    if not 0 <= overlap < 1:
        raise ConfigError(f"overlap is {overlap}; it must lie in [0, 1), usually 0.5")
    decoding, patch, windows = Decoding(plan), plan.patch, _windows(image_CXYZ.shape[1:], plan.patch, overlap)
    least = _least_range(image_CXYZ) if own_weights is None else None
    strips = strips or (slice(0, windows.shape[1]),)
    total, done = count_windows(windows.shape, patch, overlap, strips), itertools.count(1)

    def computed(start: Size) -> tuple[Size, Floats | None]:
        window = _window(image_CXYZ, start, patch)
        if least is not None and not _has_content(window, least):
            return start, None
        return start, decoding.scores(_logits(runtime, window, start))

    room = Accumulator.room(decoding.channels, windows, strips)
    for strip in strips:
        own = windows.touching(strip)
        accumulator = Accumulator(room, own, strip, own_weights)
        x, y, z = own.axes
        with closing(_in_order(computed, itertools.product(x, y, z), runtime.windows_at_once)) as results:
            for row, following in zip(x, (*x[1:], own.shape[0]), strict=True):
                for start, scores in itertools.islice(results, len(y) * len(z)):
                    if scores is not None and not accumulator.add(start, scores):
                        raise _not_finite(runtime, start)
                    del scores  # its memory serves the next window
                    if progress is not None:
                        progress(next(done), total)
                yield Slab(accumulator.first, accumulator.final(row, following), strip.start)
                accumulator.go_on(following)


def _windows(shape: tuple[int, ...], patch: Size, overlap: float) -> Windows:
    x, y, z = (window_starts(n, p, overlap) for n, p in zip(shape, patch, strict=True))
    return Windows((x, y, z), patch, (shape[0], shape[1], shape[2]))


def _in_order(function: Callable[[T], R], items: Iterable[T], workers: int) -> Generator[R, None, None]:
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
