"""The study's table as Markdown, JSON, picture and page, from what lies in its folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veloxseg.evaluate.statistics import Comparison
from veloxseg.files import atomic_path, write_json
from veloxseg.machine import software
from veloxseg.study.cells import cells, head, how_words, number, widths_rows
from veloxseg.study.plots import draw_table
from veloxseg.study.report import as_page
from veloxseg.study.results import SHOWN, Findings, Outcome, find_out
from veloxseg.study.table import Table
from veloxseg.train.settings import train_command

__all__ = ["write_pages"]


def write_pages(table: Table, study: Path, *, command: str) -> Path:
    """Writes table.json, table.md, figure.png and report.html; returns the path of the last."""
    findings = find_out(table, study, command)
    write_json(study / "table.json", as_value(findings))
    write_text(study / "table.md", as_markdown(findings))
    picture = draw_table(table, findings.outcomes) if findings.outcomes else None
    if picture is not None:
        with atomic_path(study / "figure.png") as temporary:
            temporary.write_bytes(picture)
    write_text(study / "report.html", as_page(findings, picture))
    return study / "report.html"


def as_value(findings: Findings) -> dict[str, Any]:
    """The table as JSON: all figures of every row, and every case."""
    table, outcomes = findings.table, findings.outcomes
    return {
        "study": table.name,
        "title": table.title,
        "place": table.place,
        "note": table.note,
        "command": findings.command,
        "first": outcomes[0].row.name if outcomes else table.first,
        "rows": [_row_value(findings, outcome) for outcome in outcomes],
        "software": software(),
        "machine": outcomes[0].training[0]["machine"] if outcomes else None,
    }


def _row_value(findings: Findings, outcome: Outcome) -> dict[str, Any]:
    run = outcome.training[0]
    return {
        "name": outcome.row.name,
        "title": outcome.row.title,
        "paper": outcome.row.paper,
        "settings": outcome.settings,
        "train": train_command(outcome.settings),
        "runs": [{"seed": s["seed"], "fold": s["fold"]} for s in outcome.scores],
        "dice_by_seed": {str(seed): number(value) for seed, value in outcome.by_seed().items()},
        **_scores(outcome, findings.tested, external=False),
        **{fact: outcome.fact(fact) for fact in ("steps", "steps_before", "seconds", "peak_rss_mb")},
        **{fact: run[fact] for fact in run if fact.startswith(("parameters", "macs"))},
        "widths": outcome.widths or None,
        "external": _scores(outcome, findings.external, external=True) if outcome.external else None,
    }


def _scores(outcome: Outcome, tested: Mapping[str, Comparison], *, external: bool) -> dict[str, Any]:
    name = outcome.row.name
    return {
        **{metric: outcome.summary(metric, external=external).to_json() for metric in SHOWN},
        "against_first": tested[name].to_json() if name in tested else None,
        "cases": {case: number(value) for case, value in outcome.values(external=external).items()},
    }


def as_markdown(findings: Findings) -> str:
    table, outcomes = findings.table, findings.outcomes
    lines = [f"# {table.title}", "", f"`{findings.command}`", ""]
    lines += [line + "\n" for line in (table.place and f"In the paper: {table.place}.", table.note) if line]
    lines += _grid(head(findings), [cells(findings, outcome) for outcome in outcomes])
    if external := [outcome for outcome in outcomes if outcome.external]:
        lines += ["", "## External cases", ""]
        lines += _grid(head(findings, external=True), [cells(findings, o, external=True) for o in external])
    for outcome in outcomes:
        if outcome.widths:
            lines += ["", f"## Widths: {outcome.row.title}", "", *_grid(*widths_rows(findings, outcome))]
    lines += ["", *(f"- {line}" for line in how_words(findings))]
    return "\n".join(lines) + "\n"


def _grid(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (names, ["---"] * len(names), *rows)]


def write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
