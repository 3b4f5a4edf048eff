"""The small tables at the end of `veloxseg evaluate`: drawn on a terminal, plain columns elsewhere."""

import sys
from collections.abc import Sequence

from veloxseg.console import say
from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.evaluate.metrics import METRICS
from veloxseg.evaluate.sections import number
from veloxseg.evaluate.statistics import Comparison

__all__ = ["print_policy", "print_tables"]

SHOWN = {"Dice": "dice", "NSD": "nsd", "precis.": "precision", "recall": "recall", "HD95": "hd95_mm"}
COUNTED = ("missed", "false alarm", "no prediction", "correctly empty")


def print_tables(evaluation: Evaluation) -> None:
    """Means over cases; with more than one method, also who is ahead and whether it is noise."""
    several = len(evaluation.methods) > 1
    rows = []
    for structure in evaluation.structures:
        for method in evaluation.methods:
            lesions = evaluation.lesions(method, structure)
            hd95 = evaluation.summary(method, structure, "hd95_mm")
            figures = {
                "cases": str(evaluation.summary(method, structure, "dice").count),
                **{name: _mean(evaluation, method, structure, metric) for name, metric in SHOWN.items()},
                "(median)": number(hd95.median, 2),
                "lesions": f"{lesions.found}/{lesions.lesions}",
            }
            rows.append([structure, *[method] * several, *figures.values()])
    if len(evaluation.structures) > 1:
        for method in evaluation.methods:
            means = [number(evaluation.mean(m, method), METRICS[m].digits) for m in SHOWN.values()]
            rows.append(["mean", *[method] * several, "", *means, "", ""])
    _print(["structure", *["method"] * several, *figures], rows)
    if several:
        head = ["structure", "metric", "difference", "p (Holm)", "verdict"]
        _print(head, [_comparison(comparison) for comparison in evaluation.comparisons])


def _mean(evaluation: Evaluation, method: str, structure: str, metric: str) -> str:
    return number(evaluation.summary(method, structure, metric).mean, METRICS[metric].digits)


def print_policy(evaluation: Evaluation) -> None:
    """What the means rest on: how many cases ended in which way, and what that counts."""
    for structure in evaluation.structures:
        for method in evaluation.methods:
            counts = evaluation.outcomes(method, structure)
            parts = [f"{counts[name]} {name}" for name in COUNTED if counts[name]]
            if parts:
                say(f"{structure}, {method}: of {len(evaluation.cases)} cases, {', '.join(parts)}")
    say("policy: missed, false alarm and no prediction count as Dice 0 and HD95 = diagonal of the image;")
    say(
        f"        correctly empty is in no mean of Dice or HD95; tolerance of NSD {evaluation.tolerance_mm:g} mm"
    )


def _comparison(comparison: Comparison) -> list[str]:
    difference = number(comparison.difference, METRICS[comparison.metric].digits)
    p = number(comparison.p_holm, 3)
    return [comparison.structure, METRICS[comparison.metric].title, difference, p, comparison.verdict]


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

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for index, name in enumerate(head):
        words = index == 0 or name in ("method", "metric", "verdict")
        table.add_column(Text(name), justify="left" if words else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(text) for text in row))  # as text, for a name may hold rich's markup
    console = Console(file=sys.stdout)
    with console.capture() as capture:
        console.print(table)
    return capture.get()
