"""Interleaved timing, on a clock that we hold."""

import pytest

from veloxseg.benchmark.timing import ROUNDS, interleave, spread


class Clock:
    """Time passes only while a contender runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.visits: list[str] = []

    def __call__(self) -> float:
        return self.now

    def contender(self, name: str, seconds: float):
        def run() -> None:
            self.now += seconds
            self.visits.append(name)

        return run


def test_contenders_take_turns_and_nobody_always_goes_first() -> None:
    clock = Clock()
    interleave([clock.contender("a", 1.0), clock.contender("b", 1.0)], clock=clock)
    assert "".join(clock.visits) == "ab" + ("ab" + "ba") * (ROUNDS // 2) + "ab"


def test_the_warm_up_is_not_counted() -> None:
    clock = Clock()
    cold = [10.0]

    def run() -> None:
        clock.now += cold.pop() if cold else 1.0

    (result,) = interleave([run], clock=clock)
    assert result.high == 1.0


def test_fast_contenders_run_more_often_and_slow_ones_skip_rounds() -> None:
    clock = Clock()
    fast, slow = interleave([clock.contender("f", 0.01), clock.contender("s", 19.0)], clock=clock)
    assert fast.runs == 5 * ROUNDS
    assert slow.runs == (ROUNDS + 1) // 2
    assert (fast.median, slow.median) == pytest.approx((0.01, 19.0))


def test_one_hiccup_does_not_move_the_median() -> None:
    result = spread([1.0, 1.0, 1.1, 0.9, 60.0])
    assert result.median == 1.0
    assert result.low <= result.median <= result.high < 60
