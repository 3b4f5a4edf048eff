"""What came out of a study: scores of the unseen cases by row, over seeds and folds, and what they prove.

A case's score is the mean over structures, then over seeds; in folds every case is held out once. The interval is that
of the mean over cases. Each row is tested against the table's first row, case by case, and p is corrected for their
number (Holm); see evaluate/statistics.py.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veloxseg.evaluate.metrics import PRIMARY
from veloxseg.evaluate.statistics import Comparison, Summary, compare, holm, summarise
from veloxseg.files import read_json
from veloxseg.study.table import Row, Table

__all__ = ["SHOWN", "Findings", "Outcome", "collect", "comparisons", "find_out"]

SHOWN = ("dice", "hd95_mm", "nsd", "precision", "recall")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All trainings of a row that are done."""

    row: Row
    scores: tuple[dict[str, Any], ...]  # scores.json of each
    training: tuple[dict[str, Any], ...]
    external: tuple[dict[str, Any], ...] = ()
    pruned: tuple[dict[str, Any], ...] = ()  # widths.json of each, where the row is pruned

    @property
    def settings(self) -> dict[str, Any]:
        """Those of its first training; a path of this machine becomes one below STUDY."""
        settings = dict(self.training[0]["settings"])
        if settings.get("init"):
            parts = Path(settings["init"]).parts
            settings["init"] = "/".join(("STUDY", *parts[-4:]))  # runs/ROW/seedS/pruned
        return settings

    @property
    def widths(self) -> list[dict[str, float]]:
        """What pruning kept, by depth: the mean over its runs."""
        stages: Iterable[tuple[dict[str, float], ...]] = zip(*(run["widths"] for run in self.pruned), strict=True)
        return [{name: math.fsum(run[name] for run in runs) / len(runs) for name in runs[0]} for runs in stages]

    def values(self, metric: str = PRIMARY, *, external: bool = False) -> dict[str, float]:
        """Case → its score."""
        found: dict[str, list[float]] = {}
        for scores in self.external if external else self.scores:
            for case, structures in scores["cases"].items():
                found.setdefault(case, []).append(_mean(_of(structures, metric)))
        return {case: _mean(values) for case, values in sorted(found.items())}

    def summary(self, metric: str = PRIMARY, *, external: bool = False) -> Summary:
        return summarise(list(self.values(metric, external=external).values()))

    def by_seed(self, metric: str = PRIMARY) -> dict[int, float]:
        """The mean over cases of each seed."""
        found: dict[int, list[float]] = {}
        for scores in self.scores:
            for structures in scores["cases"].values():
                found.setdefault(scores["seed"], []).append(_mean(_of(structures, metric)))
        return {seed: _mean(values) for seed, values in sorted(found.items())}

    def lesions(self) -> list[tuple[float, float]]:
        return [(lesion["volume_ml"], lesion["dice"]) for scores in self.scores for lesion in scores["lesions"]]

    def fact(self, name: str, unit: float = 1.0) -> float | None:
        """A figure of the training (parameters, seconds, …) in some unit, the mean over its runs."""
        values = [run[name] for run in self.training if run.get(name) is not None]
        return math.fsum(values) / len(values) / unit if values else None


@dataclass(frozen=True, kw_only=True)
class Findings:
    """All that is told of a study."""

    table: Table
    outcomes: list[Outcome]  # the table's first row in front
    tested: dict[str, Comparison]  # row → its test against the first
    external: dict[str, Comparison]
    command: str

    @property
    def has_paper(self) -> bool:
        return any(outcome.row.paper for outcome in self.outcomes)


def find_out(table: Table, study: Path, command: str) -> Findings:
    outcomes = collect(table, study)
    return Findings(
        table=table,
        outcomes=outcomes,
        tested=comparisons(outcomes),
        external=comparisons([outcome for outcome in outcomes if outcome.external], external=True),
        command=command,
    )


def _of(structures: Mapping[str, Mapping[str, float | None]], metric: str) -> list[float]:
    return [math.nan if (value := metrics[metric]) is None else value for metrics in structures.values()]


def _mean(values: Sequence[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return math.fsum(defined) / len(defined) if defined else math.nan


def collect(table: Table, study: Path) -> list[Outcome]:
    """Every row of the table of which something is done, the first one in front."""
    rows = sorted(table.rows, key=lambda row: row.name != table.first)
    outcomes = []
    for row in rows:
        runs = [path.parent for path in sorted((study / "runs" / row.name).glob("seed*/scores.json"))]
        if runs:
            outcomes.append(
                Outcome(
                    row=row,
                    scores=tuple(read_json(run / "scores.json") for run in runs),
                    training=tuple(read_json(run / "training.json") for run in runs),
                    external=_read_those_there(runs, "external.json"),
                    pruned=_read_those_there(runs, "pruned/widths.json"),
                )
            )
    return outcomes


def _read_those_there(runs: Iterable[Path], name: str) -> tuple[dict[str, Any], ...]:
    return tuple(read_json(run / name) for run in runs if (run / name).is_file())


def comparisons(outcomes: Sequence[Outcome], *, external: bool = False) -> dict[str, Comparison]:
    """Row → its test against the first one, on the cases that both have."""
    if not outcomes:
        return {}
    first, *others = outcomes
    ours, made = first.values(external=external), []
    for other in others:
        theirs = other.values(external=external)
        cases = [case for case in ours if case in theirs]
        made.append(
            compare(
                [ours[case] for case in cases],
                [theirs[case] for case in cases],
                names=(first.row.title, other.row.title),
                structure="all",
                metric=PRIMARY,
            )
        )
    return {outcome.row.name: comparison for outcome, comparison in zip(others, holm(made), strict=True)}
