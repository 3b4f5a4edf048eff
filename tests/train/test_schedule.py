"""Warm-up, cosine, and a plan that ends in time."""

from itertools import pairwise

import pytest

from veloxseg.train.recipe import Recipe
from veloxseg.train.schedule import SHORT_VALIDATIONS, Pace, learning_rate, validates


def test_the_papers_schedule() -> None:
    pace = Pace.start(Recipe(), steps_per_epoch=100)
    assert pace.learning_rate(0) == pytest.approx(2.5e-4 / 1000)
    assert pace.learning_rate(499) == pytest.approx(1.25e-4)
    assert pace.learning_rate(999) == pytest.approx(2.5e-4)
    halfway = 100 * (10 + 145) - 1
    assert pace.learning_rate(halfway) == pytest.approx((2.5e-4 + 6e-6) / 2)
    assert pace.learning_rate(30_000 - 1) == pytest.approx(6e-6)
    rates = [pace.learning_rate(step) for step in range(30_000)]
    assert all(a < b for a, b in pairwise(rates[:1000]))
    assert all(a > b for a, b in pairwise(rates[1000:]))


def test_past_the_end_the_rate_stays_at_its_lowest() -> None:
    assert learning_rate(Recipe(), 1.5, 0.1) == pytest.approx(6e-6)


@pytest.mark.parametrize("slow_down", [0.5, 1.0, 3.0])
def test_a_timed_training_ends_in_time_though_the_machine_changes(slow_down: float) -> None:
    pace = Pace.start(Recipe(max_minutes=10.0), steps_per_epoch=20)
    clock, epoch, validations, rate = 3.0, 0, 0, 0.0
    pace.step_seconds, pace.validation_seconds = 1.0, 0.0
    pace.plan(0, clock, 0)
    assert pace.epochs == 29
    while epoch < pace.epochs:
        seconds = 1.0 if epoch < 8 else slow_down
        clock += pace.steps_per_epoch * seconds
        epoch += 1
        rate = pace.learning_rate(epoch * pace.steps_per_epoch - 1)
        if validates(pace, epoch):
            clock, validations, pace.validation_seconds = clock + 5, validations + 1, 5.0
        pace.observe(pace.steps_per_epoch * seconds, pace.steps_per_epoch)
        pace.plan(epoch, clock, validations)
    assert 500 < clock <= 610
    assert rate < 2e-5  # it has come down
    assert 3 <= validations <= SHORT_VALIDATIONS + 2


def test_an_epoch_longer_than_the_time_is_cut() -> None:
    pace = Pace.start(Recipe(max_minutes=10.0), steps_per_epoch=1000)
    pace.step_seconds = 1.0
    pace.plan(0, 5.0, 0)
    assert pace.steps_per_epoch * pace.epochs <= 600
    assert pace.epochs >= 10


def test_validation_is_regular_and_last() -> None:
    pace = Pace.start(Recipe(epochs=12, validate_every=5), steps_per_epoch=1)
    assert [epoch for epoch in range(1, 13) if validates(pace, epoch)] == [5, 10, 12]


def test_slow_validations_are_left_out_of_a_timed_training() -> None:
    pace = Pace.start(Recipe(max_minutes=6.0), steps_per_epoch=10)
    pace.step_seconds, pace.validation_seconds = 1.0, 45.0
    pace.plan(9, 100.0, 1)
    assert pace.epochs == 9 + (360 - 100 - 45) // 10
    assert [epoch for epoch in range(10, 31) if validates(pace, epoch)] == [30]


def test_a_hiccup_does_not_move_the_rate_much() -> None:
    pace = Pace.start(Recipe(max_minutes=3.0), steps_per_epoch=10)
    pace.observe(0.3, 1)
    pace.plan(0, 3.0, 0)
    before = pace.epochs
    pace.observe(8.0, 10)  # five seconds of a busy machine
    pace.plan(1, 11.0, 0)
    assert 0.6 * before < pace.epochs <= before
