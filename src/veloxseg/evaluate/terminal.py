"""The small tables at the end of `veloxseg evaluate`: drawn on a terminal, plain columns elsewhere."""

import sys
from collections.abc import Sequence

from veloxseg.console import say
from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.evaluate.metrics import METRICS
from veloxseg.evaluate.sections import SUMMARISED, number, title
from veloxseg.evaluate.statistics import Comparison

__all__ = ["print_policy", "print_tables"]

COUNTED = ("missed", "false alarm", "no prediction", "correctly empty")


def print_tables(evaluation: Evaluation) -> None:
    """Means over cases; with more than one method, also who is ahead and whether it is noise."""
    head = [
        "structure",
        "method",
        "cases",
        *(title(metric) for metric in SUMMARISED),
        "HD95 median",
        "lesions found",
    ]
    rows = []
    for structure in evaluation.structures:
        for method in evaluation.methods:
            means = (evaluation.summary(method, structure, m) for m in SUMMARISED)
            figures = [number(s.mean, METRICS[m].digits) for m, s in zip(SUMMARISED, means, strict=True)]
            figures.append(number(evaluation.summary(method, structure, "hd95_mm").median, 2))
            lesions = evaluation.lesions(method, structure)
            count = str(evaluation.summary(method, structure, "dice").count)
            rows.append([structure, method, count, *figures, f"{lesions.found}/{lesions.lesions}"])
    _print(head, rows)
    if len(evaluation.methods) > 1:
        head = ["structure", "metric", "ahead", "difference", "p", "p (Holm)", "verdict"]
        _print(head, [_comparison(comparison) for comparison in evaluation.comparisons])


def print_policy(evaluation: Evaluation) -> None:
    """What the means rest on: how many cases ended in which way, and what that counts."""
    for structure in evaluation.structures:
        for method in evaluation.methods:
            counts = evaluation.outcomes(method, structure)
            parts = [f"{counts[name]} {name}" for name in COUNTED if counts[name]]
            if parts:
                say(f"{structure}, {method}: of {len(evaluation.cases)} cases, {', '.join(parts)}")
    say(
        "policy: missed, false alarm and no prediction count as Dice 0 and HD95 = diagonal of the image; "
        "correctly empty cases are undefined and in no mean"
    )


def _comparison(comparison: Comparison) -> list[str]:
    difference = number(comparison.difference, METRICS[comparison.metric].digits + 1)
    ps = [number(comparison.p, 4), number(comparison.p_holm, 4)]
    return [
        comparison.structure,
        title(comparison.metric),
        comparison.ahead or "–",
        difference,
        *ps,
        comparison.verdict,
    ]


def _print(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if sys.stdout.isatty():
        say(_drawn(head, rows))
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        say("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    say()


def _drawn(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for index, name in enumerate(head):
        table.add_column(Text(name), justify="left" if index < 2 else "right")
    for row in rows:
        table.add_row(*(Text(text) for text in row))  # as text, for a name may hold rich's markup
    console = Console(file=sys.stdout)
    with console.capture() as capture:
        console.print(table)
    return capture.get()
