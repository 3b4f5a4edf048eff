"""The study's table as Markdown, JSON, picture and page, from what lies in its folder."""

import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from veloxseg.evaluate.report.html import Html, data_uri, element
from veloxseg.evaluate.report.html import table as html_table
from veloxseg.evaluate.report.plots import volume_boxes
from veloxseg.evaluate.statistics import Comparison, Summary
from veloxseg.files import atomic_path, write_json
from veloxseg.machine import NOTICE, software
from veloxseg.study.plots import draw_table
from veloxseg.study.results import SHOWN, Outcome, collect, comparisons
from veloxseg.study.table import Table
from veloxseg.train.settings import train_command

__all__ = ["write_pages"]

MOST_BOXES = 6  # rows in the plot of lesions by volume; with more it cannot be read
HEAD = (
    "row", "Dice [95 % interval]", "against the first", "p (Holm)", "HD95 mm", "precision", "recall",
    "parameters M", "MACs G", "training MB", "minutes", "steps", "paper",
)  # fmt: skip


def write_pages(table: Table, study: Path, *, command: str) -> Path:
    """Writes table.json, table.md, figure.png and report.html; returns the path of the last."""
    outcomes = collect(table, study)
    tested, external = comparisons(outcomes), comparisons(outcomes, external=True)
    value = as_value(table, outcomes, tested, external, command)
    write_json(study / "table.json", value)
    write_text(study / "table.md", as_markdown(table, outcomes, tested, external, command))
    picture = draw_table(table, outcomes) if outcomes else None
    if picture is not None:
        (study / "figure.png").write_bytes(picture)
    write_text(study / "report.html", as_page(table, outcomes, tested, external, command, picture))
    return study / "report.html"


def as_value(
    table: Table,
    outcomes: Sequence[Outcome],
    tested: Mapping[str, Comparison],
    external: Mapping[str, Comparison],
    command: str,
) -> dict[str, Any]:
    """The table as JSON: all figures of every row, and every case."""
    rows = []
    for outcome in outcomes:
        name, run = outcome.row.name, outcome.training[0]
        rows.append(
            {
                "name": name,
                "title": outcome.row.title,
                "paper": outcome.row.paper,
                "settings": run["settings"],
                "train": train_command(run["settings"]),
                "runs": [{"seed": s["seed"], "fold": s["fold"]} for s in outcome.scores],
                **{metric: outcome.summary(metric).to_json() for metric in SHOWN},
                "dice_by_seed": {str(seed): _number(value) for seed, value in outcome.by_seed().items()},
                "against_first": tested[name].to_json() if name in tested else None,
                "cases": {case: _number(value) for case, value in outcome.values().items()},
                **{fact: outcome.fact(fact) for fact in ("steps", "seconds", "peak_rss_mb")},
                **{fact: run[fact] for fact in run if fact.startswith(("parameters", "macs"))},
                "external": None
                if not outcome.external
                else {
                    **{metric: outcome.summary(metric, external=True).to_json() for metric in SHOWN},
                    "against_first": external[name].to_json() if name in external else None,
                    "cases": {case: _number(value) for case, value in outcome.values(external=True).items()},
                },
            }
        )
    return {
        "study": table.name,
        "title": table.title,
        "place": table.place,
        "note": table.note,
        "command": command,
        "first": outcomes[0].row.name if outcomes else table.first,
        "rows": rows,
        "software": software(),
        "machine": outcomes[0].training[0]["machine"] if outcomes else None,
    }


def as_markdown(
    table: Table,
    outcomes: Sequence[Outcome],
    tested: Mapping[str, Comparison],
    external: Mapping[str, Comparison],
    command: str,
) -> str:
    lines = [f"# {table.title}", "", f"`{command}`", ""]
    lines += [line + "\n" for line in (table.place and f"In the paper: {table.place}.", table.note) if line]
    lines += _grid(HEAD, [cells(outcome, tested) for outcome in outcomes])
    if any(outcome.external for outcome in outcomes):
        lines += ["", "## External cases", ""]
        lines += _grid(EXTERNAL_HEAD, [external_cells(o, external) for o in outcomes if o.external])
    lines += ["", *(f"- {line}" for line in how_words(outcomes))]
    return "\n".join(lines) + "\n"


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def cells(outcome: Outcome, tested: Mapping[str, Comparison]) -> list[str]:
    """One line of the table."""
    comparison = tested.get(outcome.row.name)
    seconds = outcome.fact("seconds")
    return [
        outcome.row.title,
        _interval(outcome.summary()),
        "the first" if comparison is None else _difference(comparison),
        "" if comparison is None else _p(comparison.p_holm),
        _text(outcome.summary("hd95_mm").median, 1),
        _text(outcome.summary("precision").mean, 3),
        _text(outcome.summary("recall").mean, 3),
        _text(_scaled(outcome.fact("parameters"), 1e6), 3),
        f"{_text(_scaled(outcome.fact('macs'), 1e9), 3)} ({_text(_scaled(outcome.fact('macs_as_published'), 1e9), 3)})",
        _text(outcome.fact("peak_rss_mb"), 0),
        _text(_scaled(seconds, 60), 1),
        _text(outcome.fact("steps"), 0),
        ", ".join(f"{name} {value:g}" for name, value in outcome.row.paper.items()),
    ]


EXTERNAL_HEAD = ("row", "Dice [95 % interval]", "against the first", "p (Holm)", "HD95 mm", "paper")


def external_cells(outcome: Outcome, tested: Mapping[str, Comparison]) -> list[str]:
    comparison = tested.get(outcome.row.name)
    return [
        outcome.row.title,
        _interval(outcome.summary(external=True)),
        "the first" if comparison is None else _difference(comparison),
        "" if comparison is None else _p(comparison.p_holm),
        _text(outcome.summary("hd95_mm", external=True).median, 1),
        ", ".join(f"{name} {value:g}" for name, value in outcome.row.paper.items()),
    ]


def how_words(outcomes: Sequence[Outcome]) -> list[str]:
    """What a reader must know to judge the figures."""
    if not outcomes:
        return ["No training is done yet."]
    counts = sorted({len(outcome.values()) for outcome in outcomes})
    seeds = sorted({scores["seed"] for outcome in outcomes for scores in outcome.scores})
    machine = outcomes[0].training[0]["machine"]
    return [
        f"Dice is the mean over {'–'.join(map(str, counts))} unseen cases (of each case over structures and "
        f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}), on the grid that they were prepared on.",
        "The interval is the bootstrap's of that mean; p is Wilcoxon's signed-rank test against the first row, case by "
        "case, corrected by Holm for the number of rows. HD95 is the median.",
        "MACs are real work; in brackets as the paper's counter has them. Memory is the peak of the training process, "
        f"time that of a training with {1} thread on {machine['cpu']}.",
        "The paper's values are of its own data, recipe and GPU: they say which way a difference goes, not how high a "
        "score should be here.",
    ]


# -- page ------------------------------------------------------------------------------------------------------------


def as_page(
    table: Table,
    outcomes: Sequence[Outcome],
    tested: Mapping[str, Comparison],
    external: Mapping[str, Comparison],
    command: str,
    picture: bytes | None,
) -> str:
    style = resources.files("veloxseg.evaluate.report").joinpath("page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_RULES),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Study: {table.title}"),
        element("style", Html(style)),
    )
    header = element(
        "header",
        element("h1", table.title),
        element("p", f"In the paper: {table.place}. {table.note}" if table.place else table.note, class_="soft"),
        element("span", NOTICE.capitalize(), class_="notice"),
    )
    main = element("main", *_sections(outcomes, tested, external, command, picture))
    foot = element("footer", f"{NOTICE.capitalize()}. Made by veloxseg {software()['veloxseg']}.")
    return "<!DOCTYPE html>\n" + element("html", head, element("body", header, main, foot), lang="en") + "\n"


_RULES = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def _sections(
    outcomes: Sequence[Outcome],
    tested: Mapping[str, Comparison],
    external: Mapping[str, Comparison],
    command: str,
    picture: bytes | None,
) -> list[Html]:
    found = [_section("Rows", html_table(HEAD, [cells(o, tested) for o in outcomes]), _list(how_words(outcomes)))]
    if picture is not None:
        found.insert(0, _section("At a glance", _image(picture, "Dice of every row")))
    if any(outcome.external for outcome in outcomes):
        rows = [external_cells(outcome, external) for outcome in outcomes if outcome.external]
        found.append(_section("External cases, which no training has seen", html_table(EXTERNAL_HEAD, rows)))
    verdicts = [f"{name}: {comparison.sentence}" for name, comparison in tested.items()]
    if verdicts:
        found.append(_section("What the tests say", _list(verdicts)))
    if 1 < len(outcomes) <= MOST_BOXES and (boxes := volume_boxes({o.row.name: o.lesions() for o in outcomes})):
        found.append(_section("Dice of single lesions by their volume", _image(boxes, "box plots by lesion volume")))
    found.append(_section("Case by case (Dice)", _case_table(outcomes)))
    found.append(_section("How each row is trained", _settings_table(outcomes), element("p", command)))
    return found


def _case_table(outcomes: Sequence[Outcome]) -> Html:
    cases = sorted({case for outcome in outcomes for case in outcome.values()})
    values = [outcome.values() for outcome in outcomes]
    rows = [[case, *(_text(found.get(case, math.nan), 3) for found in values)] for case in cases]
    return html_table(["case", *(outcome.row.title for outcome in outcomes)], rows)


def _settings_table(outcomes: Sequence[Outcome]) -> Html:
    rows = [[o.row.title, element("td", element("code", train_command(o.training[0]["settings"])))] for o in outcomes]
    return html_table(["row", "command"], rows)


def _section(title: str, *content: Html) -> Html:
    return element("section", element("h2", title), *content)


def _list(lines: Sequence[str]) -> Html:
    return element("ul", *(element("li", line) for line in lines))


def _image(png: bytes, caption: str) -> Html:
    return element("figure", element("img", src=data_uri(png), alt=caption), class_="plot wide")


def write_text(path: Path, text: str) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


# -- numbers as text -------------------------------------------------------------------------------------------------


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value


def _text(value: float | None, digits: int) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _interval(summary: Summary) -> str:
    if math.isnan(summary.low):
        return _text(summary.mean, 3)
    return f"{summary.mean:.3f} [{summary.low:.3f}, {summary.high:.3f}]"


def _difference(comparison: Comparison) -> str:
    if math.isnan(comparison.difference):
        return "–"
    if math.isnan(comparison.low):
        return f"{comparison.difference:+.3f}"
    return f"{comparison.difference:+.3f} [{comparison.low:+.3f}, {comparison.high:+.3f}]"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"
