"""`Evaluation`: all scores of one or more methods on a set of cases, and every figure that follows from them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from veloxseg.dataset.seen import SEEN, STATUSES, UNKNOWN, UNSEEN
from veloxseg.errors import some
from veloxseg.evaluate.lesions import DEFINITION, Detection, LesionSummary, summarise_lesions
from veloxseg.evaluate.masks import Masks
from veloxseg.evaluate.metrics import METRICS, POLICY, PRIMARY, TOLERANCE_RULE, Outcome, Scores, policy
from veloxseg.evaluate.statistics import Comparison, Summary, compare, holm, summarise
from veloxseg.image.regions import CONNECTIVITY
from veloxseg.machine import NOTICE

__all__ = ["Evaluation", "Row"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One structure of one case, by one method."""

    method: str
    case: str
    structure: str
    scores: Scores
    detection: Detection


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    methods: tuple[str, ...]
    cases: tuple[str, ...]
    structures: dict[str, tuple[int, ...]]  # name -> label values
    rows: tuple[Row, ...]  # every method, case and structure, none left out
    tolerance_mm: float
    seed: int
    missing: dict[str, tuple[str, ...]]  # method -> cases without a prediction
    extra: dict[str, tuple[str, ...]]  # method -> predictions without a label
    warnings: tuple[str, ...]
    label_files: dict[str, Path]
    image_files: dict[str, dict[str, Path]]  # case -> modality -> file, where the labels came as a data set
    prediction_files: dict[str, dict[str, Path]]
    provenance: dict[str, Any]
    masks: Masks  # reads labels and predictions again, for pictures
    learning: dict[str, dict[str, str]] = field(default_factory=dict)  # method -> case -> trained on, unseen, ...
    apart: "Evaluation | None" = None  # the cases that a model has learnt from, where others are left

    def status(self, case: str, method: str | None = None) -> str:
        """How a case was seen by the model of a method, or by any of them."""
        methods = self.methods if method is None else (method,)
        return min((self.learning.get(m, {}).get(case, UNKNOWN) for m in methods), key=STATUSES.index)

    @property
    def all_seen(self) -> bool:
        """Whether every case here is one that a model has learnt from."""
        return all(self.status(case) in SEEN for case in self.cases)

    @property
    def rests_on(self) -> str:
        """Which cases the figures are of, in a few words."""
        if self.all_seen:
            return "cases seen in training"
        known = all(self.status(case) == UNSEEN for case in self.cases)
        return "unseen cases" if known or self.apart is not None else "cases"

    @property
    def counted_cases(self) -> str:
        words = f"{len(self.cases)} {self.rests_on}"
        return words.replace("cases", "case") if len(self.cases) == 1 else words

    @property
    def every_row(self) -> tuple[Row, ...]:
        """All rows, those of the seen cases last."""
        return self.rows + (self.apart.rows if self.apart is not None else ())

    @cached_property
    def _index(self) -> dict[tuple[str, str], list[Row]]:
        index: dict[tuple[str, str], list[Row]] = {(m, s): [] for m in self.methods for s in self.structures}
        for row in self.rows:
            index[row.method, row.structure].append(row)
        return index

    def select(self, method: str, structure: str) -> list[Row]:
        """One row per case, in the order of `cases`."""
        return self._index[method, structure]

    def values(self, method: str, structure: str, metric: str) -> list[float]:
        return [row.scores.value(metric) for row in self.select(method, structure)]

    @cache  # noqa: B019 - one evaluation per program; it is asked for again by every writer
    def summary(self, method: str, structure: str, metric: str) -> Summary:
        return summarise(self.values(method, structure, metric), self.seed)

    def outcomes(self, method: str, structure: str) -> dict[Outcome, int]:
        """How many cases ended in each way that the policy names."""
        found = [row.scores.outcome for row in self.select(method, structure)]
        return {outcome: found.count(outcome) for outcome in POLICY}

    def lesions(self, method: str, structure: str) -> LesionSummary:
        return summarise_lesions([row.detection for row in self.select(method, structure)])

    def mean(self, metric: str = PRIMARY, method: str | None = None) -> float:
        """Mean over the structures of their means over cases; NaN if no structure has one."""
        means = [self.summary(method or self.methods[0], structure, metric).mean for structure in self.structures]
        defined = [value for value in means if not math.isnan(value)]
        return math.fsum(defined) / len(defined) if defined else math.nan

    def case_dice(self, method: str) -> dict[str, float]:
        """Mean Dice over the structures of each case; cases without a defined one are left out."""
        result = {}
        for index, case in enumerate(self.cases):
            found = [self.select(method, structure)[index].scores.dice for structure in self.structures]
            defined = [value for value in found if not math.isnan(value)]
            if defined:
                result[case] = math.fsum(defined) / len(defined)
        return result

    @cached_property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Every other method against the first: by the primary metric, corrected for their number, then by the others.

        The correction counts structures and methods only. To count the secondary metrics too would let them hide a
        clear difference of the primary one.
        """
        secondary = [name for name, metric in METRICS.items() if metric.compared and name != PRIMARY]
        return (*holm(self._compared([PRIMARY])), *self._compared(secondary))

    def _compared(self, metrics: Sequence[str]) -> list[Comparison]:
        first = self.methods[0]
        return [
            compare(
                self.values(first, structure, metric),
                self.values(other, structure, metric),
                names=(first, other),
                structure=structure,
                metric=metric,
                seed=self.seed,
            )
            for metric in metrics
            for other in self.methods[1:]
            for structure in self.structures
        ]

    def warning_lines(self) -> list[str]:
        """What a reader must know before the figures."""
        lines = list(self.warnings)
        for method, cases in self.missing.items():
            if cases:
                part = f"{len(cases)} of {len(self.cases)} cases"
                hint = "; if they were left out on purpose, give a folder of labels without them"
                most = hint if len(cases) * 2 > len(self.cases) else ""
                lines.append(f"{method}: no prediction for {part}, counted as failures: {some(cases)}{most}")
        for method, cases in self.extra.items():
            if cases:
                lines.append(f"{method}: {len(cases)} predictions have no label and are not scored: {some(cases)}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """The whole evaluation as it stands in `metrics.json`."""
        return {
            "notice": NOTICE,
            "settings": {
                "nsd_tolerance_mm": self.tolerance_mm,
                "nsd_tolerance_rule": TOLERANCE_RULE,
                "lesion_connectivity": CONNECTIVITY,
                "lesion": DEFINITION,
                "primary_metric": PRIMARY,
                "bootstrap_seed": self.seed,
            },
            "policy": policy(),
            "structures": {name: list(values) for name, values in self.structures.items()},
            "warnings": list(self.warnings),
            "learning": self._learning_json(),
            "missing_predictions": {m: list(cases) for m, cases in self.missing.items()},
            "predictions_without_label": {m: list(cases) for m, cases in self.extra.items()},
            **self._figures_json(),
            **({} if self.apart is None else {"seen_in_training": self.apart._figures_json()}),
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
            "cases": [
                {"method": row.method, "case": row.case, "structure": row.structure}
                | row.scores.to_json()
                | row.detection.to_json()
                | {"learning": self.status(row.case, row.method)}
                for row in self.every_row
            ],
            "provenance": self.provenance,
        }

    def _learning_json(self) -> dict[str, Any]:
        """Which cases the summary is of, and how each case was seen."""
        seen = self.apart.cases if self.apart is not None else self.cases if self.all_seen else ()
        return {
            "summary_is_of": self.rests_on,
            "every_case_was_seen": self.all_seen,
            "seen_in_training": {case: self.status(case) for case in seen},
        }

    def _figures_json(self) -> dict[str, Any]:
        return {
            "summary": {m: {s: self._summary_json(m, s) for s in self.structures} for m in self.methods},
            "mean_of_structures": {m: self._means_json(m) for m in self.methods},
        }

    def _means_json(self, method: str) -> dict[str, float | None]:
        means = {metric: self.mean(metric, method) for metric in METRICS}
        return {metric: None if math.isnan(value) else value for metric, value in means.items()}

    def _summary_json(self, method: str, structure: str) -> dict[str, Any]:
        return {
            "outcomes": self.outcomes(method, structure),
            "metrics": {metric: self.summary(method, structure, metric).to_json() for metric in METRICS},
            "lesions": self.lesions(method, structure).to_json(),
        }
