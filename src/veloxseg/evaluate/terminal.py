"""The small tables at the end of `veloxseg evaluate`, in plain columns."""

from collections.abc import Iterator, Sequence

from veloxseg.console import say
from veloxseg.errors import shown
from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.evaluate.metrics import METRICS, PRIMARY, Outcome
from veloxseg.evaluate.report.sections import number
from veloxseg.evaluate.statistics import Comparison

__all__ = ["print_policy", "print_tables"]

COUNTED: tuple[Outcome, ...] = ("missed", "false alarm", "no prediction", "correctly empty")


def print_tables(evaluation: Evaluation) -> None:
    """Means over cases; with more than one method, also who is ahead and whether it is noise.

    Cases that a model has learnt from come last, in a table of their own.
    """
    if evaluation.all_seen:
        say(f"EVERY CASE ({len(evaluation.cases)}) WAS SEEN IN TRAINING: no figure here holds for new patients\n")
    elif evaluation.apart is not None:
        say(f"{evaluation.counted_cases}:")
    _print_means(evaluation)
    if len(evaluation.methods) > 1:
        _print_comparisons(evaluation)
    if evaluation.apart is not None:
        say(f"NOT in the figures above, because a model has learnt from them: {evaluation.apart.counted_cases}")
        _print_means(evaluation.apart)


def _print_means(evaluation: Evaluation) -> None:
    several = len(evaluation.methods) > 1
    head = ["structure", *["method"] * several, "cases", *_metric_columns(), "lesions"]
    rows = []
    for structure in evaluation.structures:
        for method in evaluation.methods:
            lesions = evaluation.lesions(method, structure)
            cases = str(evaluation.summary(method, structure, PRIMARY).count)
            figures = [cases, *_metric_cells(evaluation, method, structure), f"{lesions.found}/{lesions.lesions}"]
            rows.append([shown(structure), *[shown(method)] * several, *figures])
    if len(evaluation.structures) > 1:
        for method in evaluation.methods:
            rows.append(["mean", *[shown(method)] * several, "", *_mean_cells(evaluation, method), ""])
    _print(head, rows)


def _metric_columns() -> Iterator[str]:
    for metric in METRICS.values():
        if metric.terminal:
            yield metric.column or metric.title
            if metric.outliers:
                yield "(median)"


def _metric_cells(evaluation: Evaluation, method: str, structure: str) -> Iterator[str]:
    for name, metric in METRICS.items():
        if metric.terminal:
            summary = evaluation.summary(method, structure, name)
            yield number(summary.mean, metric.digits)
            if metric.outliers:
                yield number(summary.median, metric.digits)


def _mean_cells(evaluation: Evaluation, method: str) -> Iterator[str]:
    for name, metric in METRICS.items():
        if metric.terminal:
            yield number(evaluation.mean(name, method), metric.digits)
            if metric.outliers:
                yield ""


def _print_comparisons(evaluation: Evaluation) -> None:
    """Who is better by the primary metric, and below it what the secondary ones say."""
    first, *others = map(shown, evaluation.methods)
    say(f"{len(evaluation.methods)} methods: each of {', '.join(others)} is compared with {first}")
    primary = [comparison for comparison in evaluation.comparisons if comparison.primary]
    secondary = [comparison for comparison in evaluation.comparisons if not comparison.primary]
    head = ["structure", "metric", "compared", "difference", "95 % interval"]
    _print([*head, "p (Holm)", "verdict"], [_comparison(comparison, comparison.p_holm) for comparison in primary])
    if secondary:
        say("secondary metrics, p not corrected for their number:")
        _print([*head, "p", "verdict"], [_comparison(comparison, comparison.p) for comparison in secondary])


def _comparison(comparison: Comparison, p: float) -> list[str]:
    metric = METRICS[comparison.metric]
    difference, low, high = (
        number(value, metric.digits, sign=True) for value in (comparison.difference, comparison.low, comparison.high)
    )
    return [
        shown(comparison.structure),
        metric.heading,
        shown(f"{comparison.second} − {comparison.first}"),
        difference,
        f"{low} to {high}",
        number(p, 3),
        shown(comparison.sentence),
    ]


def print_policy(evaluation: Evaluation) -> None:
    """What the means rest on: how many cases ended in which way, and what that counts."""
    for structure in evaluation.structures:
        for method in evaluation.methods:
            counts = evaluation.outcomes(method, structure)
            parts = [f"{counts[name]} {name}" for name in COUNTED if counts[name]]
            if parts:
                say(f"{shown(structure)}, {shown(method)}: of {len(evaluation.cases)} cases, {', '.join(parts)}")
    say("policy: missed, false alarm and no prediction count as Dice 0 and HD95 = diagonal of the image;")
    say(f"        correctly empty is in no mean of Dice or HD95; tolerance of NSD {evaluation.tolerance_mm:g} mm")


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        say("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    say()
