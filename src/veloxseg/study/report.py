"""The study as one page: picture, tables, tests, lesions by volume, every case, and the command of every row."""

from collections.abc import Iterator, Sequence
from importlib import resources

from veloxseg.evaluate.report.html import Html, data_uri, element
from veloxseg.evaluate.report.html import table as html_table
from veloxseg.evaluate.report.plots import volume_boxes
from veloxseg.machine import NOTICE, software
from veloxseg.study.cells import (
    between,
    difference,
    how_words,
    mean_text,
    number_text,
    p_text,
    paper_lines,
    steps_text,
    widths_rows,
)
from veloxseg.study.results import Findings, Outcome
from veloxseg.train.settings import train_command

__all__ = ["as_page"]

MOST_BOXES = 6  # rows in the plot of lesions by volume; with more it cannot be read
RULES = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def as_page(findings: Findings, picture: bytes | None) -> str:
    table = findings.table
    style = resources.files("veloxseg.evaluate.report").joinpath("page.css").read_text(encoding="utf-8")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=RULES),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"Study: {table.title}"),
        element("style", Html(style)),
    )
    place = f"In the paper: {table.place}. " if table.place else ""
    header = element(
        "header",
        element("h1", table.title),
        element("p", place + table.note, class_="soft"),
        element("span", NOTICE.capitalize(), class_="notice"),
    )
    main = element("main", *_sections(findings, picture))
    foot = element("footer", f"{NOTICE.capitalize()}. Made by veloxseg {software()['veloxseg']}.")
    return "<!DOCTYPE html>\n" + element("html", head, element("body", header, main, foot), lang="en") + "\n"


def _sections(findings: Findings, picture: bytes | None) -> Iterator[Html]:
    outcomes = findings.outcomes
    if picture is not None:
        yield _section("At a glance", _image(picture, "Dice of every row"))
    yield _section("Rows", _score_table(findings, outcomes, external=False), _list(how_words(findings)))
    if external := [outcome for outcome in outcomes if outcome.external]:
        table = _score_table(findings, external, external=True)
        yield _section("External cases, which no training has seen", table)
    for outcome in outcomes:
        if outcome.widths:
            names, rows = widths_rows(findings, outcome)
            note = "Hidden units divided by the width of their block, by depth and stream"
            note += "; in brackets the paper's." if findings.table.widths else "."
            yield _section(
                f"Widths: {outcome.row.title}", html_table(names, rows), element("p", element("small", note))
            )
    titles = {outcome.row.name: outcome.row.title for outcome in outcomes}
    if findings.tested:
        yield _section("What the tests say", _list([f"{titles[n]}: {c.sentence}" for n, c in findings.tested.items()]))
    if 1 < len(outcomes) <= MOST_BOXES and (boxes := volume_boxes({o.row.name: o.lesions() for o in outcomes})):
        yield _section("Dice of single lesions by their volume", _image(boxes, "box plots by lesion volume"))
    yield _section("Case by case (Dice)", _case_table(outcomes))
    yield _section(
        "How each row is trained", _settings_table(outcomes), element("p", element("code", findings.command))
    )


def _score_table(findings: Findings, outcomes: Sequence[Outcome], *, external: bool) -> Html:
    """Rows with intervals and tests below their figures, so that all columns are seen at once."""
    costs = () if external else ("Precision", "Recall", "Parameters M", "MACs G", "Memory MB", "Minutes")
    heads = ["Dice", "Against the first", "HD95 mm", *costs]
    paper = [element("th", "Paper", scope="col", class_="text")] if findings.has_paper else []
    rows = (_score_row(findings, outcome, external=external) for outcome in outcomes)
    return html_table([element("th", "Row", scope="col", class_="text"), *heads, *paper], rows)


def _score_row(findings: Findings, outcome: Outcome, *, external: bool) -> Iterator[str]:
    summary = outcome.summary(external=external)
    comparison = (findings.external if external else findings.tested).get(outcome.row.name)
    yield _text(outcome.row.title)
    yield _lines(mean_text(summary), between(summary))
    if comparison is None:
        yield _lines("the first")
    else:
        p = f"p {p_text(comparison.p_holm)} (Holm)"
        yield _lines(difference(comparison), between(comparison, sign=True), p)
    yield number_text(outcome.summary("hd95_mm", external=external).median, 1)
    if not external:
        yield number_text(outcome.summary("precision").mean, 3)
        yield number_text(outcome.summary("recall").mean, 3)
        yield number_text(outcome.fact("parameters", 1e6), 3)
        published = number_text(outcome.fact("macs_as_published", 1e9), 3)
        yield _lines(number_text(outcome.fact("macs", 1e9), 3), f"({published})")
        yield number_text(outcome.fact("peak_rss_mb"), 0)
        yield _lines(number_text(outcome.fact("seconds", 60), 1), f"{steps_text(outcome)} steps")
    if findings.has_paper:
        yield element("td", *(element("small", line) for line in paper_lines(outcome)), class_="text")


def _lines(first: str, *others: str) -> Html:
    return element("td", first, *(element("small", line) for line in others if line))


def _text(value: str) -> Html:
    return element("td", value, class_="text")


def _case_table(outcomes: Sequence[Outcome]) -> Html:
    cases = sorted({case for outcome in outcomes for case in outcome.values()})
    values = [outcome.values() for outcome in outcomes]
    rows = [[_text(case), *(number_text(found.get(case), 3) for found in values)] for case in cases]
    heads = [element("th", "case", scope="col", class_="text"), *(outcome.row.title for outcome in outcomes)]
    return html_table(heads, rows, box="scroll tall")


def _settings_table(outcomes: Sequence[Outcome]) -> Html:
    rows = [[_text(o.row.title), _text(element("code", train_command(o.settings)))] for o in outcomes]
    return html_table([element("th", name, scope="col", class_="text") for name in ("row", "command")], rows)


def _section(title: str, *content: Html) -> Html:
    return element("section", element("h2", title), *content)


def _list(lines: Sequence[str]) -> Html:
    return element("ul", *(element("li", line) for line in lines))


def _image(png: bytes, caption: str) -> Html:
    return element("figure", element("img", src=data_uri(png), alt=caption), class_="plot wide")
