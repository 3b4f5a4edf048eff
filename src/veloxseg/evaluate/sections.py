"""The tables of the report."""

import math
from collections.abc import Iterator

from veloxseg.evaluate.evaluation import Evaluation, Row
from veloxseg.evaluate.markup import Html, element, table
from veloxseg.evaluate.metrics import METRICS
from veloxseg.evaluate.statistics import Comparison, Summary

__all__ = [
    "SUMMARISED",
    "cards",
    "case_table",
    "comparison_table",
    "counted",
    "lesion_table",
    "number",
    "summary_table",
    "title",
]

SUMMARISED = ("dice", "hd95_mm", "nsd", "precision", "recall", "volume_error_percent")


def number(value: float, digits: int) -> str:
    """A figure as it is printed; "–" for an undefined one.

    >>> number(0.8766, 2), number(float("nan"), 2)
    ('0.88', '–')
    """
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def counted(count: int, thing: str) -> str:
    """A number of things, in English.

    >>> counted(1, "case"), counted(2, "case")
    ('1 case', '2 cases')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def title(metric: str) -> str:
    known = METRICS[metric]
    return f"{known.title} ({known.unit})" if known.unit else known.title


def cards(evaluation: Evaluation, method: str) -> Html:
    """The figures that everyone looks for first."""
    many = len(evaluation.structures) > 1
    lesions = [evaluation.lesions(method, structure) for structure in evaluation.structures]
    found = f"{sum(part.found for part in lesions)} of {sum(part.lesions for part in lesions)}"
    cases = len(evaluation.cases)
    missing = len(evaluation.missing[method])
    dice_note = (
        f"mean of {len(evaluation.structures)} structures" if many else _interval_words(evaluation, method)
    )
    hd95_note = "mean of the structures' medians" if many else "median"
    contents = (
        ("Dice", number(evaluation.mean("dice", method), 3), dice_note),
        ("HD95", f"{number(_median_hd95(evaluation, method), 1)} mm", hd95_note),
        ("Lesions found", found, f"{sum(part.false for part in lesions)} false"),
        (
            "Cases predicted",
            f"{cases - missing} of {cases}",
            f"{missing} count as failures" if missing else "none is missing",
        ),
    )
    return element("div", *(_card(*content) for content in contents), class_="cards")


def _card(name: str, value: str, note: str) -> Html:
    return element(
        "div",
        element("span", name, class_="soft"),
        element("b", value),
        element("small", note),
        class_="card",
    )


def _interval_words(evaluation: Evaluation, method: str) -> str:
    summary = evaluation.summary(method, next(iter(evaluation.structures)), "dice")
    interval = "" if math.isnan(summary.low) else f"95 % CI {summary.low:.3f}–{summary.high:.3f}, "
    return interval + counted(summary.count, "case")


def _median_hd95(evaluation: Evaluation, method: str) -> float:
    medians = [evaluation.summary(method, s, "hd95_mm").median for s in evaluation.structures]
    defined = [median for median in medians if not math.isnan(median)]
    return sum(defined) / len(defined) if defined else math.nan


def summary_table(evaluation: Evaluation) -> Html:
    """Mean with interval, median and number of cases, for every method and structure."""
    several = len(evaluation.methods) > 1
    head = _text_heads("Structure", *["Method"] * several)
    head += [*(title(metric) for metric in SUMMARISED), *_text_heads("Cases")]
    rows = []
    for structure in evaluation.structures:
        for method in evaluation.methods:
            row = [_text(structure), *[_text(method)] * several]
            row += [
                _summary_cell(evaluation.summary(method, structure, m), METRICS[m].digits) for m in SUMMARISED
            ]
            counts = evaluation.outcomes(method, structure).items()
            lines = (element("small", f"{count} {outcome}") for outcome, count in counts if count)
            rows.append([*row, element("td", str(len(evaluation.cases)), *lines, class_="text")])
    if len(evaluation.structures) > 1:
        for method in evaluation.methods:
            means = (number(evaluation.mean(m, method), METRICS[m].digits) for m in SUMMARISED)
            cells = (element("td", mean) for mean in means)
            rows.append([_text("mean of structures"), *[_text(method)] * several, *cells, _text("")])
    return table(head, rows)


def _summary_cell(summary: Summary, digits: int) -> Html:
    interval = "" if math.isnan(summary.low) else f"{summary.low:.{digits}f} to {summary.high:.{digits}f}"
    median = f"median {number(summary.median, digits)}" if summary.count > 1 else ""
    lines = (interval, median, counted(summary.count, "case"))
    return element("td", number(summary.mean, digits), *(element("small", line) for line in lines if line))


def comparison_table(evaluation: Evaluation) -> Html:
    """Who is ahead in what, and whether it could be chance."""
    head = [*_text_heads("Metric", "Verdict"), "Mean difference", "Cases better", "p", "p (Holm)"]
    return table(head, (_comparison_row(comparison) for comparison in evaluation.comparisons))


def _comparison_row(comparison: Comparison) -> Iterator[str]:
    digits = METRICS[comparison.metric].digits
    absolute = ", size" if METRICS[comparison.metric].better == "nearer to zero" else ""
    yield element(
        "td", title(comparison.metric) + absolute, element("small", comparison.structure), class_="text"
    )
    ahead = "" if comparison.significant or not comparison.ahead else f"{comparison.ahead} is ahead"
    style = "text good" if comparison.significant else "text"
    yield element("td", comparison.verdict, element("small", ahead), class_=style)
    interval = (
        "" if math.isnan(comparison.low) else f"{comparison.low:+.{digits}f} to {comparison.high:+.{digits}f}"
    )
    difference = "–" if math.isnan(comparison.difference) else f"{comparison.difference:+.{digits}f}"
    yield element("td", difference, element("small", interval))
    first = f"{comparison.first} {comparison.first_better}"
    second = f"{comparison.second} {comparison.second_better}"
    yield element("td", f"{first} : {second}", element("small", f"of {comparison.count}"))
    yield element("td", _p(comparison.p))
    yield element("td", _p(comparison.p_holm))


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def lesion_table(evaluation: Evaluation) -> Html:
    several = len(evaluation.methods) > 1
    head = _text_heads("Structure", *["Method"] * several)
    head += ["Lesions", "found", "missed", "false", "Recall", "Precision", "F1"]
    head += ["FN volume (mL)", "FP volume (mL)"]
    rows = []
    for structure in evaluation.structures:
        for method in evaluation.methods:
            found = evaluation.lesions(method, structure)
            counts = (found.lesions, found.found, found.lesions - found.found, found.false)
            rates = (found.recall, found.precision, found.f1)
            volumes = (found.false_negative_ml, found.false_positive_ml)
            row: list[str] = [_text(structure), *[_text(method)] * several]
            row += [
                *map(str, counts),
                *(number(rate, 3) for rate in rates),
                *(number(ml, 2) for ml in volumes),
            ]
            rows.append(row)
    return table(head, rows)


def case_table(evaluation: Evaluation) -> Html:
    """One line per case, structure and method; sorted by a click on a column. The CSV holds more columns."""
    several = len(evaluation.methods) > 1
    head = _text_heads("Case", "Structure", *["Method"] * several)
    head += [*_text_heads("Outcome"), *(title(metric) for metric in SUMMARISED)]
    head += ["Label (mL)", "Lesions", "False"]
    order = {case: index for index, case in enumerate(evaluation.cases)}
    rows = sorted(evaluation.rows, key=lambda row: order[row.case])  # methods side by side
    return table(
        head, (_case_row(row, several) for row in rows), box="scroll tall", class_="sortable", id="cases"
    )


def _case_row(row: Row, several: bool) -> Iterator[str]:
    yield _text(row.case)
    yield _text(row.structure)
    if several:
        yield _text(row.method)
    right = row.scores.outcome in ("scored", "correctly empty")
    yield element("td", row.scores.outcome, class_="text soft" if right else "text bad")
    for metric in SUMMARISED:
        value = row.scores.value(metric)
        sort = "" if math.isnan(value) else f"{value:.6g}"
        yield element("td", number(value, METRICS[metric].digits), data_value=sort)
    yield element("td", number(row.scores.label_volume_ml, 2))
    found = f"{row.detection.true_positives} of {len(row.detection.lesions)}"
    yield element("td", found, data_value=str(row.detection.true_positives))
    yield element("td", str(row.detection.false_positives))


def _text(value: str) -> Html:
    return element("td", value, class_="text")


def _text_heads(*names: str) -> list[str]:
    return [element("th", name, scope="col", class_="text") for name in names]
