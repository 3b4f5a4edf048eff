"""Intervals, tests and their correction, against enumeration and known values."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from veloxseg.evaluate.statistics import Comparison, bootstrap_interval, compare, holm, signed_rank_p, summarise


def test_summary_states_what_it_rests_on() -> None:
    found = summarise([0.5, math.nan, 1.0, 0.0])
    assert (found.count, found.left_out, found.mean, found.median) == (3, 1, 0.5, 0.5)
    assert found.low <= found.mean <= found.high
    nothing = summarise([math.nan])
    assert (nothing.count, nothing.left_out) == (0, 1)
    assert nothing.to_json()["mean"] is None
    assert math.isnan(summarise([0.7]).low)


def test_bootstrap_is_seeded_and_covers_the_mean() -> None:
    random = np.random.default_rng(0)
    values = random.normal(3, 1, 40)
    assert bootstrap_interval(values, 1) == bootstrap_interval(values, 1)
    assert bootstrap_interval(values, 1) != bootstrap_interval(values, 2)
    covered = 0
    for _ in range(100):
        low, high = bootstrap_interval(random.normal(3, 1, 40))
        covered += low <= 3 <= high
    assert 86 <= covered <= 100
    low, high = bootstrap_interval(values)
    half = 1.96 * values.std(ddof=1) / math.sqrt(40)
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_signed_rank_equals_enumeration(seed: int) -> None:
    differences = np.random.default_rng(seed).normal(0.3, 1, 9)
    ranks = np.argsort(np.argsort(np.abs(differences))) + 1
    seen = ranks[differences > 0].sum()
    total = ranks.sum()
    extreme = min(seen, total - seen)
    count = 0
    for signs in itertools.product((False, True), repeat=9):
        positive = ranks[list(signs)].sum()
        count += min(positive, total - positive) <= extreme
    assert signed_rank_p(differences) == pytest.approx(count / 2**9)


def test_signed_rank_edges() -> None:
    assert signed_rank_p(np.zeros(8)) == 1
    assert signed_rank_p(np.array([])) == 1
    assert signed_rank_p(np.ones(30)) < 0.001  # all tied, so by approximation
    assert signed_rank_p(np.array([1.0, -1.0] * 10)) > 0.9


def make(p: float) -> Comparison:
    return Comparison(
        first="a", second="b", structure="s", metric="dice", count=20, difference=0.1, low=0, high=0.2, p=p
    )


def test_holm() -> None:
    corrected = [c.p_holm for c in holm([make(0.04), make(0.01), make(0.03)])]
    assert corrected == pytest.approx([0.06, 0.03, 0.06])
    assert [c.p_holm for c in holm([make(0.9), make(0.8)])] == [1, 1]
    assert holm([]) == ()
    empty = replace(make(1.0), count=0)
    assert holm([make(0.04), empty])[0].p_holm == 0.04  # what could not be tested does not count
    assert math.isnan(holm([empty])[0].p_holm)


def test_who_wins() -> None:
    random = np.random.default_rng(0)
    first = random.uniform(0.5, 0.9, 20)
    clear = compare(first, first + random.uniform(0.01, 0.1, 20), names=("a", "b"), structure="s", metric="dice")
    assert holm([clear])[0].verdict == "b is better"
    assert (clear.first_better, clear.second_better) == (0, 20)
    noise = compare(first, first + random.normal(0, 0.05, 20), names=("a", "b"), structure="s", metric="dice")
    assert holm([noise])[0].verdict == "within noise"
    worse = compare(first, first + random.uniform(1, 2, 20), names=("a", "b"), structure="s", metric="hd95_mm")
    assert holm([worse])[0].verdict == "a is better"  # a larger distance is worse
    same = compare(first, first, names=("a", "b"), structure="s", metric="dice")
    assert holm([same])[0].verdict == "equal"
    few = compare(first[:5], first[:5] + 0.1, names=("a", "b"), structure="s", metric="dice")
    assert holm([few])[0].verdict == "too few cases to tell (5)"


def test_volume_errors_are_compared_by_size() -> None:
    found = compare([-3.0] * 8, [1.0] * 8, names=("a", "b"), structure="s", metric="volume_error_ml")
    assert (found.difference, found.ahead, found.second_better) == (-2, "b", 8)


def test_only_cases_with_both_values_count() -> None:
    found = compare([0.1, math.nan, 0.3], [0.2, 0.5, math.nan], names=("a", "b"), structure="s", metric="dice")
    assert found.count == 1
    nothing = compare([math.nan], [0.5], names=("a", "b"), structure="s", metric="dice")
    assert nothing.count == 0
    assert nothing.to_json()["difference"] is None


def test_a_verdict_needs_an_interval_without_zero_and_tells_its_size() -> None:
    clear = replace(make(0.01), low=-0.336, high=-0.045, difference=-0.173)
    assert holm([clear])[0].sentence == "a is better, by 0.173"
    unsure = replace(make(0.01), low=-0.01, high=0.2)
    assert holm([unsure])[0].verdict == "within noise"
    tiny = replace(make(0.001), low=0.0011, high=0.003, difference=0.002)
    assert holm([tiny])[0].sentence == "b is better, by 0.002"
    tinier = replace(make(0.001), low=0.0001, high=0.0003, difference=0.0002)
    assert holm([tinier])[0].sentence == "b is better, by less than 0.001"
    distance = replace(make(0.001), metric="hd95_mm", low=1, high=3, difference=2)
    assert distance.sentence == "a is better, by 2.00 mm"  # secondary: by its own p
