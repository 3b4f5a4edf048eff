"""Warm-up, cosine, and a training that ends in time."""

from itertools import pairwise

import pytest

from veloxseg.train.recipe import Recipe
from veloxseg.train.schedule import Pace, learning_rate


def test_the_papers_schedule() -> None:
    pace = Pace(Recipe(), steps_per_epoch=100)
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


def test_the_time_of_steps_does_not_touch_a_training_of_so_many_epochs() -> None:
    quick, slow = Pace(Recipe(), 10), Pace(Recipe(), 10, elapsed=1e6, step_seconds=99.0)
    assert quick.learning_rate(77) == slow.learning_rate(77)
    assert not slow.finished(299)
    assert slow.finished(300)


@pytest.mark.parametrize("slow_down", [0.1, 1.0, 20.0])
def test_a_timed_training_ends_in_time_though_the_machine_changes(slow_down: float) -> None:
    pace = Pace(Recipe(max_minutes=10.0), steps_per_epoch=20)
    clock, steps, epoch, validations, rates = 0.0, 0, 0, 0, []
    while not pace.finished(epoch):
        while not pace.time_is_up():
            rates.append(pace.learning_rate(steps))
            clock += 1.0 if clock < 200 else slow_down
            steps, pace.elapsed = steps + 1, clock
            if steps % 20 == 0:
                break
        epoch += 1
        if pace.validates(epoch, validations):
            clock, validations, pace.validation_seconds = clock + 5, validations + 1, 5.0
    assert 595 <= clock <= 605 + slow_down
    assert rates[-1] < 0.03 * max(rates) if slow_down <= 1 else rates[-1] < 0.1 * max(rates)
    assert 1 <= validations <= 5
    assert all(a >= b for a, b in pairwise(rates[60:]))


def test_slow_validations_are_left_out_of_a_timed_training_but_for_the_last() -> None:
    pace = Pace(Recipe(max_minutes=6.0), steps_per_epoch=10, elapsed=200.0, validation_seconds=45.0)
    assert not pace.validates(9, 0)
    pace.elapsed = 360 - 45
    assert pace.finished(10)
    assert pace.validates(10, 0)


def test_validation_is_regular_and_last() -> None:
    pace = Pace(Recipe(epochs=12, validate_every=5), steps_per_epoch=1)
    assert [epoch for epoch in range(1, 13) if pace.validates(epoch, 0)] == [5, 10, 12]
