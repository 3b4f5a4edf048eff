"""What a set of cases can say: means with their uncertainty, and whether one method beats another.

- Confidence intervals are percentiles of means of cases drawn again with replacement (bootstrap).
- Two methods are compared case by case with Wilcoxon's signed-rank test (two-sided; equal cases say nothing and
  are left out, as Wilcoxon did).
- One metric is primary (`PRIMARY`), and its p-values are corrected by Holm's rule for the structures and methods that
  are compared. The other metrics are secondary: they describe the same masks again, so they are told with their
  intervals and plain p-values, and do not weaken the test of the primary one.
- A method is called better only if p < 0.05 and the interval of the difference excludes 0.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.evaluate.metrics import METRICS, PRIMARY

__all__ = ["Comparison", "Summary", "bootstrap_interval", "compare", "holm", "summarise"]

RESAMPLES = 2000
SIGNIFICANT = 0.05
FEWEST_CASES = 6  # with 5 differing cases the smallest possible two-sided p is 2/2^5 = 0.0625

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A metric over cases; `count` is how many cases the figures rest on, `left_out` how many were undefined."""

    count: int
    left_out: int
    mean: float
    median: float
    deviation: float
    low: float  # lower end of the 95 % confidence interval of the mean
    high: float

    def to_json(self) -> dict[str, Any]:
        return {key: None if isinstance(v, float) and math.isnan(v) else v for key, v in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One metric of one structure: the second method against the first, case by case."""

    first: str
    second: str
    structure: str
    metric: str
    count: int  # cases where both are defined
    difference: float  # mean of second - first; for volume errors, of their sizes
    low: float
    high: float
    p: float
    p_holm: float = math.nan  # p corrected for the number of tests; NaN for a secondary metric
    first_better: int = 0
    second_better: int = 0

    @property
    def primary(self) -> bool:
        return self.metric == PRIMARY

    @property
    def significant(self) -> bool:
        """Whether chance is an unlikely reason: by the corrected p where there is one, and by the interval."""
        p = self.p if math.isnan(self.p_holm) else self.p_holm
        return p < SIGNIFICANT and (self.low > 0 or self.high < 0)

    @property
    def ahead(self) -> str:
        """The method with the better mean; "" if they are equal."""
        better = self.difference if METRICS[self.metric].better == "higher" else -self.difference
        return self.second if better > 0 else self.first if better < 0 else ""

    @property
    def verdict(self) -> str:
        if self.count < FEWEST_CASES:
            return f"too few cases to tell ({self.count})"
        if not self.ahead:
            return "equal"
        return f"{self.ahead} is better" if self.significant else "within noise"

    @property
    def sentence(self) -> str:
        """The verdict with the size of the difference, for a clear difference may be too small to matter."""
        if not self.verdict.endswith("is better"):
            return self.verdict
        metric = METRICS[self.metric]
        least = 10**-metric.digits
        size = f"{abs(self.difference):.{metric.digits}f}" if abs(self.difference) >= least else f"less than {least:g}"
        return f"{self.verdict}, by {size} {metric.unit}".rstrip()

    def to_json(self) -> dict[str, Any]:
        values = {**asdict(self), "primary": self.primary, "ahead": self.ahead, "verdict": self.verdict}
        return {key: None if isinstance(v, float) and math.isnan(v) else v for key, v in values.items()}


def summarise(values: Sequence[float], seed: int = 0) -> Summary:
    """Mean, median, spread and interval of the values that are defined (not NaN)."""
    given = np.asarray(values, dtype=np.float64)
    defined = given[~np.isnan(given)]
    low, high = bootstrap_interval(defined, seed)
    some = len(defined) > 0
    return Summary(
        count=len(defined),
        left_out=len(given) - len(defined),
        mean=float(defined.mean()) if some else math.nan,
        median=float(np.median(defined)) if some else math.nan,
        deviation=float(defined.std(ddof=1)) if len(defined) > 1 else math.nan,
        low=low,
        high=high,
    )


def bootstrap_interval(values: Values, seed: int = 0) -> tuple[float, float]:
    """95 % confidence interval of the mean; NaN for fewer than 2 values."""
    if len(values) < 2:
        return math.nan, math.nan
    random = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    for start in range(0, RESAMPLES, 500):  # in blocks, so that thousands of cases stay within a few MB
        means[start : start + 500] = values[random.integers(0, len(values), (500, len(values)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def compare(
    first: Sequence[float],
    second: Sequence[float],
    *,
    names: tuple[str, str],
    structure: str,
    metric: str,
    seed: int = 0,
) -> Comparison:
    """Tests one metric of two methods; both sequences hold the same cases in the same order."""
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if METRICS[metric].better == "nearer to zero":
        ours, theirs = np.abs(ours), np.abs(theirs)
    differences = theirs - ours
    differences = differences[~np.isnan(differences)]
    low, high = bootstrap_interval(differences, seed)
    sign = 1 if METRICS[metric].better == "higher" else -1
    return Comparison(
        first=names[0],
        second=names[1],
        structure=structure,
        metric=metric,
        count=len(differences),
        difference=float(differences.mean()) if len(differences) else math.nan,
        low=low,
        high=high,
        p=signed_rank_p(differences),
        first_better=int(np.count_nonzero(sign * differences < 0)),
        second_better=int(np.count_nonzero(sign * differences > 0)),
    )


def signed_rank_p(differences: Values) -> float:
    """Two-sided p of Wilcoxon's signed-rank test: exact for few cases, normal approximation for many or with ties."""
    from scipy import stats

    differences = differences[differences != 0]
    if len(differences) == 0:
        return 1.0
    sizes = np.abs(differences)
    exact = len(differences) <= 50 and len(np.unique(sizes)) == len(sizes)
    return float(stats.wilcoxon(differences, method="exact" if exact else "asymptotic", correction=not exact).pvalue)


def holm(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
    """The same comparisons with p-values that allow for how many were made (Holm 1979).

    A comparison without a case was not made, and does not count.
    """
    made = [index for index, comparison in enumerate(comparisons) if comparison.count]
    order = sorted(made, key=lambda index: comparisons[index].p)
    result = list(comparisons)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, comparisons[index].p * (len(order) - rank)))
        result[index] = replace(comparisons[index], p_holm=running)
    return tuple(result)
