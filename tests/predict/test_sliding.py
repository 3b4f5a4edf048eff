"""The streamed sliding window gives what a plain accumulation over the whole volume gives."""

import itertools

import numpy as np
import pytest

from veloxseg.errors import ConfigError, ModelError
from veloxseg.image.regions import cut
from veloxseg.predict import sliding
from veloxseg.predict.sliding import count_windows, predict_labels, score_slabs, strips_within, window_starts
from veloxseg.runtimes.decoding import Decoding
from veloxseg.runtimes.runtime import Ensemble, Mirrored

PATCH = (16, 12, 8)


def naive_scores(image, runtime, plan, overlap):
    """Everything in memory, float64, weights and all."""
    decoding, shape = Decoding(plan), image.shape[1:]
    axes = [np.exp(-0.5 * ((np.arange(p) - (p - 1) / 2) / (p / 8)) ** 2) for p in plan.patch]
    weight = axes[0][:, None, None] * axes[1][:, None] * axes[2]
    total, sums = np.zeros((decoding.channels, *shape)), np.zeros(shape)
    for x in window_starts(shape[0], plan.patch[0], overlap):
        for y in window_starts(shape[1], plan.patch[1], overlap):
            for z in window_starts(shape[2], plan.patch[2], overlap):
                start = (x, y, z)
                window = cut(image, start, plan.patch, np.float32)
                scores = decoding.scores(runtime(window[None])[0])
                into = tuple(slice(max(0, s), s + p) for s, p in zip(start, plan.patch, strict=True))
                inner = tuple(slice(max(0, -s), max(0, -s) + total[0][into].shape[a]) for a, s in enumerate(start))
                total[(slice(None), *into)] += (scores * weight)[(slice(None), *inner)]
                sums[into] += weight[inner]
    return total / sums


@pytest.mark.parametrize("shape", [(40, 30, 20), (16, 12, 8), (17, 5, 30), (9, 9, 5)])
@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize("overlap", [0.0, 0.5, 0.7])
def test_streamed_equals_naive(shape, outputs, overlap, make_plan, arithmetic):
    plan = make_plan(outputs, patch=PATCH)
    image = np.random.default_rng(1).standard_normal((2, *shape)).astype(np.float32)
    expected = naive_scores(image, arithmetic(outputs), plan, overlap)
    rows = 0
    for slab in score_slabs(image, arithmetic(outputs), plan, overlap=overlap):
        assert slab.start == rows
        rows += slab.scores_SXYZ.shape[1]
        np.testing.assert_allclose(slab.scores_SXYZ, expected[:, slab.start : rows], rtol=1e-4, atol=1e-4)
    assert rows == shape[0]
    labels = predict_labels(image, arithmetic(outputs), plan, overlap=overlap)
    sure = np.abs(expected[0]) > 1e-3 if outputs == 2 else np.diff(np.sort(expected, 0), axis=0)[-1] > 1e-3
    assert labels.dtype == np.uint8
    assert (labels == Decoding(plan).labels(expected.astype(np.float32)))[sure].all()


def test_a_difference_head_gives_the_labels_of_two_logits(make_plan, arithmetic):
    plan = make_plan(2, patch=PATCH)
    image = np.random.default_rng(2).standard_normal((2, 30, 20, 20)).astype(np.float32)
    two = arithmetic(2)

    class Difference(arithmetic):
        def __call__(self, window):
            logits = two(window)
            return logits[:, 1:] - logits[:, :1]

    assert (predict_labels(image, two, plan) == predict_labels(image, Difference(1), plan)).all()


def test_windows_without_content_are_skipped_and_give_background(make_plan, arithmetic):
    plan = make_plan(2, patch=PATCH)
    image = np.full((2, 64, 12, 8), -1.5, np.float32)
    image[:, 50:60] += np.random.default_rng(3).random((2, 10, 12, 8), np.float32)
    runtime = arithmetic(2)
    labels = predict_labels(image, runtime, plan)
    assert 0 < runtime.calls < count_windows((64, 12, 8), PATCH, 0.5)
    assert not labels[:32].any()


def test_starts_cover_every_voxel_with_the_overlap_asked_for():
    for size in (5, 16, 17, 100, 333):
        for overlap in (0.0, 0.25, 0.5, 0.9):
            starts = window_starts(size, 16, overlap)
            if size <= 16:
                assert len(starts) == 1
                assert starts[0] <= 0
                assert starts[0] + 16 >= size
                continue
            assert starts[0] == 0
            assert starts[-1] == size - 16
            assert max(np.diff(starts)) <= max(1, np.ceil(16 * (1 - overlap)))
    assert count_windows((400, 400, 326), (96, 96, 96), 0.5) == 384


def test_progress_counts_every_window_and_overlap_is_checked(make_plan, arithmetic):
    plan, seen = make_plan(2, patch=PATCH), []
    image = np.random.default_rng(0).standard_normal((2, 20, 20, 20)).astype(np.float32)
    predict_labels(image, arithmetic(2), plan, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(i + 1, len(seen)) for i in range(count_windows((20, 20, 20), PATCH, 0.5))]
    with pytest.raises(ConfigError, match="overlap"):
        predict_labels(image, arithmetic(2), plan, overlap=1.0)
    with pytest.raises(ModelError, match="5 outputs"):
        predict_labels(image, arithmetic(5), plan)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_scores_that_are_not_finite_end_the_prediction(bad, outputs, make_plan, arithmetic):
    """NaN is not above 0, so it would be a mask without a lesion."""
    plan = make_plan(max(outputs, 2), patch=PATCH)
    image = np.random.default_rng(0).standard_normal((2, 20, 12, 8)).astype(np.float32)

    class Damaged(arithmetic):
        def __call__(self, window):
            logits = super().__call__(window)
            if self.calls == 2:
                logits[0, -1, 3, 4, 5] = bad
            return logits

    with pytest.raises(ModelError, match=r"window at \(4, 0, 0\) .* arithmetic gave NaN or infinite"):
        predict_labels(image, Damaged(outputs), plan)


def test_infinities_that_cancel_are_seen_and_large_scores_are_none(make_plan, arithmetic):
    plan = make_plan(2, patch=PATCH)
    image = np.random.default_rng(0).standard_normal((2, *PATCH)).astype(np.float32)

    class Opposite(arithmetic):
        def __call__(self, window):
            logits = super().__call__(window)
            logits[0, 0, 0, 0, :2] = np.inf, -np.inf
            return logits

    class Large(arithmetic):
        def __call__(self, window):
            return np.where(super().__call__(window) > 0, np.float32(3e38), np.float32(1e38))  # their sum is infinite

    with pytest.raises(ModelError, match="NaN or infinite"):
        predict_labels(image, Opposite(1), plan)
    assert predict_labels(image, Large(1), plan).all()


@pytest.mark.parametrize(
    "shape", [(1, 2, 1, 1, 1), (1, 2, 16, 12, 1), (2, 2, 16, 12, 8), (2, 16, 12, 8), (1, 2, 8, 12, 16), (), (1, 2)]
)
@pytest.mark.parametrize("wrap", [lambda runtime: runtime, Mirrored, lambda runtime: Ensemble([runtime, runtime])])
def test_logits_of_another_shape_are_not_spread_over_the_window(shape, wrap, make_plan, arithmetic):
    plan = make_plan(2, patch=PATCH)
    image = np.random.default_rng(0).standard_normal((2, 20, 12, 8)).astype(np.float32)

    class Other(arithmetic):
        def __call__(self, window):
            return np.ones(shape, np.float32)

    with pytest.raises(ModelError, match=r"window at \(0, 0, 0\) .* arithmetic gave float32"):
        predict_labels(image, wrap(Other(2)), plan)


def test_members_of_an_ensemble_have_the_same_outputs(make_plan, arithmetic):
    image = np.random.default_rng(0).standard_normal((2, 20, 12, 8)).astype(np.float32)
    with pytest.raises(ModelError, match="2 and 1 outputs"):
        predict_labels(image, Ensemble([arithmetic(2), arithmetic(1)]), make_plan(2, patch=PATCH))


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 5, 12, 13, 29])
def test_scores_do_not_depend_on_strips_to_the_bit(columns, own, make_plan, arithmetic):
    """Neither with our weights nor with those of a pipeline; every window that reaches into a strip is counted."""
    plan, shape = make_plan(4, patch=PATCH), (40, 30, 20)
    image = np.random.default_rng(1).standard_normal((2, *shape)).astype(np.float32)
    weights = np.random.default_rng(2).random(PATCH, np.float32) if own else None
    strips = strips_within(4 * 4 * 16 * 20 * columns, shape, PATCH, 4)
    assert strips[0].stop == columns
    seen: list[int] = []
    runtime = arithmetic(4)
    found, whole = np.full((4, *shape), np.nan, np.float32), np.empty((4, *shape), np.float32)
    for slab in score_slabs(
        image, runtime, plan, own_weights=weights, strips=strips, progress=lambda n, _: seen.append(n)
    ):
        _, rows, width, _ = slab.scores_SXYZ.shape
        assert width == columns
        found[:, slab.start : slab.start + rows, slab.column : slab.column + width] = slab.scores_SXYZ
    for slab in score_slabs(image, arithmetic(4), plan, own_weights=weights):
        whole[:, slab.start : slab.start + slab.scores_SXYZ.shape[1]] = slab.scores_SXYZ
    assert (found == whole).all()
    assert seen == list(range(1, count_windows(shape, PATCH, 0.5, strips) + 1))
    assert runtime.calls == seen[-1]


def test_strips_cover_every_column_and_share_what_is_asked_for():
    for size, width, shared in itertools.product((12, 30, 31, 97), (1, 7, 12, 20), (0, 3, 5)):
        strips = strips_within(4 * 16 * 8 * width, (40, size, 8), PATCH, 1, shared)
        assert (strips[0].start, strips[-1].stop) == (0, size)
        assert all(left.stop - right.start >= shared for left, right in itertools.pairwise(strips))
        assert all(left.start < right.start for left, right in itertools.pairwise(strips))


def test_what_is_held_for_60_classes_does_not_grow_with_the_cross_section(make_plan, arithmetic, monkeypatch):
    """A slab and a strip's share of it: the arrays themselves, from 1 to 16 times as many columns."""
    plan, limit = make_plan(60, patch=PATCH), 4 * 60 * 16 * 500
    monkeypatch.setattr(sliding, "STRIP_BYTES", limit)
    held: list[int] = []
    rooms: set[int] = set()

    class Watched(sliding.Accumulator):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            held.append(self.held.nbytes)
            rooms.add(id(self.held.base))

    monkeypatch.setattr(sliding, "Accumulator", Watched)
    for y, z in ((24, 20), (48, 40), (96, 80)):
        image = np.random.default_rng(0).standard_normal((2, 16, y, z)).astype(np.float32)
        rooms.clear()
        predict_labels(image, arithmetic(60), plan, overlap=0.0)
        assert len(rooms) == 1  # all strips are worked off in the same memory
    assert limit / 2 < max(held) <= limit
    assert len(held) > 10
