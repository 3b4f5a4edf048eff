"""The sections of the report: its tables, and the words that say how every figure came about, and from which files."""

import math
from collections.abc import Iterable, Iterator, Sequence

from veloxseg.dataset.seen import SEEN
from veloxseg.evaluate.evaluation import Evaluation, Row
from veloxseg.evaluate.lesions import DEFINITION
from veloxseg.evaluate.metrics import METRICS, PRIMARY, Metric, policy
from veloxseg.evaluate.report.html import Html, element, join, table
from veloxseg.evaluate.statistics import RESAMPLES, Comparison, Summary

__all__ = [
    "cards",
    "case_table",
    "comparison_table",
    "counted",
    "lesion_table",
    "method_words",
    "number",
    "provenance_words",
    "summary_table",
]


def number(value: float, digits: int, *, sign: bool = False) -> str:
    """A figure as it is printed; "–" for an undefined one.

    >>> number(0.8766, 2), number(float("nan"), 2)
    ('0.88', '–')
    """
    return "–" if math.isnan(value) else f"{value:{'+' if sign else ''}.{digits}f}"


def counted(count: int, thing: str) -> str:
    """A number of things, in English.

    >>> counted(1, "case"), counted(2, "case")
    ('1 case', '2 cases')
    """
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _in_tables() -> dict[str, Metric]:
    return {name: metric for name, metric in METRICS.items() if metric.report}


def cards(evaluation: Evaluation, method: str) -> Html:
    """The figures that everyone looks for first."""
    many = len(evaluation.structures) > 1
    lesions = [evaluation.lesions(method, structure) for structure in evaluation.structures]
    found = f"{sum(part.found for part in lesions)} of {sum(part.lesions for part in lesions)}"
    cases = len(evaluation.cases)
    missing = len(evaluation.missing[method])
    dice_note = f"mean of {len(evaluation.structures)} structures" if many else _interval_words(evaluation, method)
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
        "div", element("span", name, class_="soft"), element("b", value), element("small", note), class_="card"
    )


def _interval_words(evaluation: Evaluation, method: str) -> str:
    summary = evaluation.summary(method, next(iter(evaluation.structures)), PRIMARY)
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
    head += [*(metric.heading for metric in _in_tables().values()), *_text_heads("Cases")]
    rows = []
    for structure in evaluation.structures:
        for method in evaluation.methods:
            row = [_text(structure), *[_text(method)] * several]
            row += [_summary_cell(evaluation.summary(method, structure, m), t.digits) for m, t in _in_tables().items()]
            counts = evaluation.outcomes(method, structure).items()
            lines = (element("small", f"{count} {outcome}") for outcome, count in counts if count)
            rows.append([*row, element("td", str(len(evaluation.cases)), *lines, class_="text")])
    if len(evaluation.structures) > 1:
        for method in evaluation.methods:
            means = (number(evaluation.mean(name, method), metric.digits) for name, metric in _in_tables().items())
            cells = (element("td", mean) for mean in means)
            rows.append([_text("mean of structures"), *[_text(method)] * several, *cells, _text("")])
    return table(head, rows)


def _summary_cell(summary: Summary, digits: int) -> Html:
    interval = "" if math.isnan(summary.low) else f"{summary.low:.{digits}f} to {summary.high:.{digits}f}"
    median = f"median {number(summary.median, digits)}" if summary.count > 1 else ""
    lines = (interval, median, counted(summary.count, "case"))
    return element("td", number(summary.mean, digits), *(element("small", line) for line in lines if line))


def comparison_table(comparisons: Sequence[Comparison]) -> Html:
    """Who is ahead in what, and whether it could be chance."""
    p = "p (Holm)" if any(comparison.primary for comparison in comparisons) else "p, not corrected"
    head = [*_text_heads("Metric", "Verdict"), "Mean difference", "Cases better", p]
    return table(head, (_comparison_row(comparison) for comparison in comparisons))


def _comparison_row(comparison: Comparison) -> Iterator[str]:
    metric = METRICS[comparison.metric]
    absolute = ", size" if metric.better == "nearer to zero" else ""
    yield element("td", metric.heading + absolute, element("small", comparison.structure), class_="text")
    ahead = "" if comparison.significant or not comparison.ahead else f"{comparison.ahead} is ahead"
    style = "text good" if comparison.significant and comparison.primary else "text"
    yield element("td", comparison.sentence, element("small", ahead), class_=style)
    difference, low, high = (
        number(value, metric.digits, sign=True) for value in (comparison.difference, comparison.low, comparison.high)
    )
    yield element("td", difference, element("small", f"{low} to {high}"))
    first = f"{comparison.first} {comparison.first_better}"
    second = f"{comparison.second} {comparison.second_better}"
    yield element("td", f"{first} : {second}", element("small", f"of {comparison.count}"))
    yield element("td", _p(comparison.p_holm if comparison.primary else comparison.p))


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
            row += [*map(str, counts), *(number(rate, 3) for rate in rates), *(number(ml, 2) for ml in volumes)]
            rows.append(row)
    return table(head, rows)


def case_table(evaluation: Evaluation) -> Html:
    """One line per case, structure and method; sorted by a click on a column. The CSV holds more columns."""
    several = len(evaluation.methods) > 1
    head = _text_heads("Case", "Structure", *["Method"] * several)
    head += [*_text_heads("Outcome", "In training"), *(metric.heading for metric in _in_tables().values())]
    head += ["Label (mL)", "Lesions", "False"]
    order = {case: index for index, case in enumerate(evaluation.cases)}
    order |= {case: len(order) + index for index, case in enumerate(evaluation.apart.cases if evaluation.apart else ())}
    rows = sorted(evaluation.every_row, key=lambda row: order[row.case])  # methods side by side, seen cases last
    cells = (_case_row(row, several, evaluation.status(row.case, row.method)) for row in rows)
    return table(head, cells, box="scroll tall", class_="sortable", id="cases")


def _case_row(row: Row, several: bool, status: str) -> Iterator[str]:
    yield _text(row.case)
    yield _text(row.structure)
    if several:
        yield _text(row.method)
    right = row.scores.outcome in ("scored", "correctly empty")
    yield element("td", row.scores.outcome, class_="text soft" if right else "text bad")
    yield element("td", status, class_="text bad" if status in SEEN else "text soft")
    for name, metric in _in_tables().items():
        value = row.scores.value(name)
        sort = "" if math.isnan(value) else f"{value:.6g}"
        yield element("td", number(value, metric.digits), data_value=sort)
    yield element("td", number(row.scores.label_volume_ml, 2))
    found = f"{row.detection.true_positives} of {len(row.detection.lesions)}"
    yield element("td", found, data_value=str(row.detection.true_positives))
    yield element("td", str(row.detection.false_positives))


def _text(value: str) -> Html:
    return element("td", value, class_="text")


def _text_heads(*names: str) -> list[str]:
    return [element("th", name, scope="col", class_="text") for name in names]


def method_words(evaluation: Evaluation) -> Html:
    """Definitions, and the policy for what is empty, missed or missing."""
    definitions = [
        *((metric.heading, metric.definition.format(tolerance=evaluation.tolerance_mm)) for metric in METRICS.values()),
        ("Lesion", f"{DEFINITION}."),
        (
            "Dice of a lesion",
            "against the predicted lesions that touch it, without what these share with other lesions.",
        ),
        ("Interval", f"95 %, bootstrap over cases ({RESAMPLES} resamples, seed {evaluation.seed})."),
        (
            "Comparison",
            f"Wilcoxon's signed-rank test over the same cases, two-sided. {METRICS[PRIMARY].title} is the primary "
            "metric: its p is corrected by Holm for the structures and methods compared. The other metrics are "
            "secondary, and their p is not corrected. A method is called better if p < 0.05 and the interval of the "
            "difference excludes 0.",
        ),
    ]
    outcomes = ((name.capitalize(), text) for name, text in policy().items())
    heading = element("h3", "Empty and missed structures")
    return join((_definitions(definitions), heading, _definitions(outcomes)))


def provenance_words(evaluation: Evaluation) -> Html:
    """Settings, versions, and the hash of every file."""
    record = evaluation.provenance
    structures = (f"{name} = {', '.join(map(str, values))}" for name, values in evaluation.structures.items())
    versions = f"veloxseg {record['veloxseg']}, Python {record['python']}, NumPy {record['numpy']}"
    values = [
        ("Labels", record["labels"]),
        *((f"Predictions, {name}", folder) for name, folder in record["predictions"].items()),
        *(
            (f"Made by, {name}", f"{maker}, {count} of {len(evaluation.cases)} cases")
            for name, makers in record["predicted_by"].items()
            for maker, count in makers.items()
        ),
        ("Structures", "; ".join(structures)),
        ("NSD tolerance", f"{evaluation.tolerance_mm:g} mm"),
        ("Bootstrap seed", str(evaluation.seed)),
        ("Made", f"{record['created']}, in {record['seconds']} s"),
        ("With", f"{versions}, {record['machine']}"),
    ]
    groups = {"label": record["sha256"]["labels"], **record["sha256"]["predictions"]}
    files = (
        (_text(case), _text(group), _text(element("code", value)))
        for group, cases in groups.items()
        for case, value in cases.items()
    )
    hashes = table(_text_heads("Case", "File of", "SHA-256"), files)
    folded = element("details", element("summary", "Hashes of all files"), hashes)
    return join((_definitions(values), folded))


def _definitions(pairs: Iterable[tuple[str, str]]) -> Html:
    return element("dl", *(part for name, text in pairs for part in (element("dt", name), element("dd", text))))
