"""`Evaluation`: all scores of one or more methods on a set of cases, and every figure that follows from them."""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from veloxseg.evaluate.lesions import Detection
from veloxseg.evaluate.metrics import METRICS, POLICY, Scores
from veloxseg.evaluate.statistics import Comparison, Summary, compare, holm, summarise

__all__ = ["COMPARED", "Evaluation", "LesionSummary", "Row"]

COMPARED = ("dice", "hd95_mm", "nsd", "precision", "recall", "volume_error_ml")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One structure of one case, by one method."""

    method: str
    case: str
    structure: str
    scores: Scores
    detection: Detection


@dataclass(frozen=True, kw_only=True)
class LesionSummary:
    """Lesions of all cases together; volumes are means per case, of false negatives over the cases with lesions."""

    lesions: int
    found: int
    false: int
    false_negative_ml: float
    false_positive_ml: float

    @property
    def recall(self) -> float:
        return self.found / self.lesions if self.lesions else math.nan

    @property
    def precision(self) -> float:
        return self.found / (self.found + self.false) if self.found + self.false else math.nan

    @property
    def f1(self) -> float:
        total = self.lesions + self.found + self.false  # = 2TP + FN + FP
        return 2 * self.found / total if total else math.nan

    def to_json(self) -> dict[str, Any]:
        values = {
            "lesions": self.lesions,
            "found": self.found,
            "missed": self.lesions - self.found,
            "false": self.false,
            "recall": self.recall,
            "precision": self.precision,
            "f1": self.f1,
            "mean_false_negative_volume_ml": self.false_negative_ml,
            "mean_false_positive_volume_ml": self.false_positive_ml,
        }
        return {key: None if math.isnan(value) else value for key, value in values.items()}


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

    def outcomes(self, method: str, structure: str) -> dict[str, int]:
        """How many cases ended in each way that `POLICY` names."""
        found = [row.scores.outcome for row in self.select(method, structure)]
        return {outcome: found.count(outcome) for outcome in POLICY}

    def lesions(self, method: str, structure: str) -> LesionSummary:
        detections = [row.detection for row in self.select(method, structure)]
        ill = [detection for detection in detections if detection.lesions]
        return LesionSummary(
            lesions=sum(len(d.lesions) for d in detections),
            found=sum(d.true_positives for d in detections),
            false=sum(d.false_positives for d in detections),
            false_negative_ml=math.fsum(d.false_negative_ml for d in ill) / len(ill) if ill else math.nan,
            false_positive_ml=math.fsum(d.false_positive_ml for d in detections) / len(detections),
        )

    def mean(self, metric: str = "dice", method: str | None = None) -> float:
        """Mean over the structures of their means over cases; NaN if no structure has one."""
        means = [
            self.summary(method or self.methods[0], structure, metric).mean for structure in self.structures
        ]
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
        """Every other method against the first, corrected for their number."""
        return holm(
            [
                compare(
                    self.values(self.methods[0], structure, metric),
                    self.values(other, structure, metric),
                    names=(self.methods[0], other),
                    structure=structure,
                    metric=metric,
                    seed=self.seed,
                )
                for other in self.methods[1:]
                for structure in self.structures
                for metric in COMPARED
            ]
        )

    def warning_lines(self) -> list[str]:
        """What a reader must know before the figures."""
        lines = list(self.warnings)
        for method, cases in self.missing.items():
            if cases:
                part = f"{len(cases)} of {len(self.cases)} cases"
                hint = "; if they were left out on purpose, give a folder of labels without them"
                most = hint if len(cases) * 2 > len(self.cases) else ""
                lines.append(f"{method}: no prediction for {part}, counted as failures: {_some(cases)}{most}")
        for method, cases in self.extra.items():
            if cases:
                lines.append(
                    f"{method}: {len(cases)} predictions have no label and are not scored: {_some(cases)}"
                )
        return lines

    def to_json(self) -> dict[str, Any]:
        """All of it, for `metrics.json`."""
        return {
            "notice": "research use only, not a medical device",
            "settings": {"nsd_tolerance_mm": self.tolerance_mm, "bootstrap_seed": self.seed},
            "policy": POLICY,
            "structures": {name: list(values) for name, values in self.structures.items()},
            "warnings": list(self.warnings),
            "missing_predictions": {m: list(cases) for m, cases in self.missing.items()},
            "predictions_without_label": {m: list(cases) for m, cases in self.extra.items()},
            "summary": {m: {s: self._summary_json(m, s) for s in self.structures} for m in self.methods},
            "mean_of_structures": {m: self._means_json(m) for m in self.methods},
            "comparisons": [comparison.to_json() for comparison in self.comparisons],
            "cases": [
                {"method": row.method, "case": row.case, "structure": row.structure}
                | row.scores.to_json()
                | row.detection.to_json()
                for row in self.rows
            ],
            "provenance": self.provenance,
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


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
