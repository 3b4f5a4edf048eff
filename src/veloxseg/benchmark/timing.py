"""Interleaved timing: every contender in turn, round after round, so that what disturbs one disturbs all.

A shared or throttled machine changes its speed over minutes. Measured one after the other, contenders would meet
different machines; in turn, they meet the same one, and their ratios hold though absolute rates drift. Medians
and quartiles are reported, never means: one hiccup does not move them.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Spread", "interleave", "spread"]

ROUNDS = 5
VISIT_SECONDS = 0.4  # a fast contender is run again within its visit until so much time has gone
RUNS_PER_VISIT = 5
SLOW_SECONDS = 10.0  # a contender that takes longer skips every second round; the yardstick does not


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Seconds of one run: median and quartiles over `runs` of them."""

    median: float
    low: float
    high: float
    runs: int


def spread(seconds: Sequence[float]) -> Spread:
    low, median, high = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 3
    return Spread(median=median, low=low, high=high, runs=len(seconds))


def interleave(
    contenders: Sequence[Callable[[], object]],
    *,
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
    on_round: Callable[[int], object] = lambda number: None,
) -> list[Spread]:
    """Times each contender in turn for several rounds, after one warm-up visit that is not counted."""
    warm = [_visit(run, clock) for run in contenders]
    seconds: list[list[float]] = [[] for _ in contenders]
    for number in range(rounds):
        on_round(number)
        order = range(len(contenders))
        for index in order if number % 2 == 0 else reversed(order):
            if min(warm[index]) < SLOW_SECONDS or number % 2 == 0:
                seconds[index] += _visit(contenders[index], clock)
    return [spread(values) for values in seconds]


def _visit(run: Callable[[], object], clock: Callable[[], float]) -> list[float]:
    seconds: list[float] = []
    while not seconds or (sum(seconds) < VISIT_SECONDS and len(seconds) < RUNS_PER_VISIT):
        start = clock()
        run()
        seconds.append(clock() - start)
    return seconds
