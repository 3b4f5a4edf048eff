"""A problem of a data set, and the list of them as a table and as JSON."""

import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from veloxseg.console import say
from veloxseg.errors import some
from veloxseg.extras import without

__all__ = ["LEVELS", "Problem", "Report", "print_problems"]

LEVELS = ("error", "warning", "note")


@dataclass(frozen=True)
class Problem:
    level: str  # error, warning or note
    kind: str  # a word to filter by: missing, file, grid, label, intensity, duplicate, split, swapped, ...
    case: str
    file: str
    problem: str
    remedy: str


@dataclass(frozen=True)
class Report:
    dataset: str
    cases: int
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(p for p in self.problems if p.level == "error")

    def to_json(self) -> dict[str, Any]:
        counts = Counter(p.level for p in self.problems)
        return {
            "dataset": self.dataset,
            "cases": self.cases,
            "counts": {level: counts[level] for level in LEVELS},
            "problems": [asdict(p) for p in self.problems],
        }


def _alike(problems: list[Problem]) -> list[tuple[Problem, list[str]]]:
    """The same problem of many cases once, with the cases; the JSON lists them one by one."""
    found: dict[tuple[str, ...], tuple[Problem, list[str]]] = {}
    for p in problems:
        found.setdefault((p.level, p.kind, p.problem, p.remedy), (p, []))[1].append(p.case)
    return list(found.values())


def print_problems(report: Report) -> None:
    """A table on a terminal where rich is installed, lines elsewhere.

    The same problem of many cases, and notes of one kind, are one line.
    """
    shown = [p for p in report.problems if p.level != "note"]
    if shown and sys.stdout.isatty() and not without("rich"):
        from rich.console import Console
        from rich.table import Table

        table = Table("", "case", "file", "problem", "remedy")
        for p, cases in _alike(shown):
            style = "red" if p.level == "error" else "yellow"
            file = Path(p.file).name if len(cases) == 1 else f"{len(cases)} times"
            table.add_row(f"[{style}]{p.level}[/]", some(cases), file, p.problem, p.remedy)
        Console().print(table)
    else:
        for p, cases in _alike(shown):
            times = f"{len(cases)} times, " if len(cases) > 1 else ""
            file = f"{p.file}: " if p.file and len(cases) == 1 else ""
            print(f"{p.level}: {times}{some(cases)}: {file}{p.problem}; {p.remedy}")
    for kind, count in Counter(p.kind for p in report.problems if p.level == "note").items():
        example = next(p for p in report.problems if p.level == "note" and p.kind == kind)
        say(f"note: {count} times like {example.case}: {example.problem}; {example.remedy}")
    counts = Counter(p.level for p in report.problems)
    say(f"{report.cases} cases: errors: {counts['error']}, warnings: {counts['warning']}")
