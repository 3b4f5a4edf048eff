"""The tables of the report, and the words that explain them."""

import math
from collections.abc import Iterable, Iterator

from veloxseg.evaluate.evaluation import Evaluation, Row
from veloxseg.evaluate.markup import Html, element, join, table
from veloxseg.evaluate.metrics import METRICS, POLICY
from veloxseg.evaluate.statistics import RESAMPLES, Comparison, Summary

__all__ = [
    "cards",
    "case_table",
    "comparison_table",
    "lesion_table",
    "number",
    "policy",
    "provenance",
    "summary_table",
    "warning_lines",
]

SUMMARISED = ("dice", "hd95_mm", "nsd", "precision", "recall", "volume_error_percent")


def number(value: float, digits: int) -> str:
    """A figure as it is printed; "–" for an undefined one.

    >>> number(0.8766, 2), number(float("nan"), 2)
    ('0.88', '–')
    """
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def title(metric: str) -> str:
    known = METRICS[metric]
    return f"{known.title} ({known.unit})" if known.unit else known.title


def cards(evaluation: Evaluation) -> Html:
    """The figures that everyone looks for first, of the first method."""
    method = evaluation.methods[0]
    many = len(evaluation.structures) > 1
    found = sum(evaluation.lesions(method, s).found for s in evaluation.structures)
    lesions = sum(evaluation.lesions(method, s).lesions for s in evaluation.structures)
    false = sum(evaluation.lesions(method, s).false for s in evaluation.structures)
    scored = len(evaluation.cases) - len(evaluation.missing[method])
    note = f"mean of {len(evaluation.structures)} structures" if many else _interval_words(evaluation, method)
    hd95 = "mean of their medians" if many else "median"
    contents = [
        ("Dice", number(evaluation.mean("dice", method), 3), note),
        ("HD95", f"{number(_median_hd95(evaluation, method), 1)} mm", hd95),
        ("Lesions found", f"{found} of {lesions}", f"{false} false"),
        ("Cases predicted", f"{scored} of {len(evaluation.cases)}", _first_of(evaluation)),
    ]
    return element("div", *(_card(*content) for content in contents), class_="cards")


def _card(name: str, value: str, note: str) -> Html:
    return element("div", element("span", name, class_="soft"), element("b", value), element("small", note), class_="card")


def _interval_words(evaluation: Evaluation, method: str) -> str:
    summary = evaluation.summary(method, next(iter(evaluation.structures)), "dice")
    interval = "" if math.isnan(summary.low) else f"95 % CI {summary.low:.3f}–{summary.high:.3f}, "
    return f"{interval}{summary.count} cases"


def _median_hd95(evaluation: Evaluation, method: str) -> float:
    medians = [evaluation.summary(method, s, "hd95_mm").median for s in evaluation.structures]
    defined = [median for median in medians if not math.isnan(median)]
    return sum(defined) / len(defined) if defined else math.nan


def _first_of(evaluation: Evaluation) -> str:
    return f"figures of {evaluation.methods[0]}" if len(evaluation.methods) > 1 else "missing ones count as failures"


def summary_table(evaluation: Evaluation) -> Html:
    """Mean with interval, median and number of cases, for every method and structure."""
    several = len(evaluation.methods) > 1
    outcomes = ("missed", "false alarm", "no prediction", "correctly empty")
    head = [_text_head("Structure")] + ([_text_head("Method")] if several else [])
    head += [element("th", title(metric), scope="col") for metric in SUMMARISED]
    head += [element("th", name, scope="col") for name in outcomes]
    rows = []
    for structure in evaluation.structures:
        for method in evaluation.methods:
            counts = evaluation.outcomes(method, structure)
            row = [_text(structure)] + ([_text(method)] if several else [])
            row += [_summary_cell(evaluation.summary(method, structure, m), METRICS[m].digits) for m in SUMMARISED]
            rows.append(row + [element("td", str(counts[name])) for name in outcomes])
    return table(head, rows)


def _summary_cell(summary: Summary, digits: int) -> Html:
    interval = "" if math.isnan(summary.low) else f"{summary.low:.{digits}f} to {summary.high:.{digits}f}"
    lines = (interval, f"median {number(summary.median, digits)}", f"{summary.count} cases")
    return element("td", number(summary.mean, digits), *(element("small", line) for line in lines if line))


def comparison_table(evaluation: Evaluation) -> Html:
    """Who is ahead in what, and whether it could be chance."""
    names = ("Structure", "Metric", "Ahead", "Mean difference", "Cases better", "p", "p (Holm)", "Verdict")
    head = [_text_head(name) if name in ("Structure", "Metric", "Ahead", "Verdict") else name for name in names]
    return table(head, (_comparison_row(comparison) for comparison in evaluation.comparisons))


def _comparison_row(comparison: Comparison) -> Iterator[str]:
    digits = METRICS[comparison.metric].digits
    yield _text(comparison.structure)
    absolute = ", size" if METRICS[comparison.metric].better == "nearer to zero" else ""
    yield _text(title(comparison.metric) + absolute)
    yield _text(comparison.ahead or "–")
    interval = "" if math.isnan(comparison.low) else f"{comparison.low:+.{digits}f} to {comparison.high:+.{digits}f}"
    difference = "–" if math.isnan(comparison.difference) else f"{comparison.difference:+.{digits}f}"
    yield element("td", difference, element("small", interval))
    better = f"{comparison.first_better} : {comparison.second_better}"
    yield element("td", better, element("small", f"of {comparison.count}"))
    yield element("td", _p(comparison.p))
    yield element("td", _p(comparison.p_holm))
    yield element("td", comparison.verdict, class_="text good" if comparison.significant else "text")


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"


def lesion_table(evaluation: Evaluation) -> Html:
    several = len(evaluation.methods) > 1
    head = [_text_head("Structure")] + ([_text_head("Method")] if several else [])
    head += ["Lesions", "found", "missed", "false", "Recall", "Precision", "F1"]
    head += ["False negative volume (mL per case)", "False positive volume (mL per case)"]
    rows = []
    for structure in evaluation.structures:
        for method in evaluation.methods:
            found = evaluation.lesions(method, structure)
            counts = (found.lesions, found.found, found.lesions - found.found, found.false)
            rates = (found.recall, found.precision, found.f1)
            volumes = (found.false_negative_ml, found.false_positive_ml)
            row: list[str] = [_text(structure)] + ([_text(method)] if several else [])
            row += [*map(str, counts), *(number(rate, 3) for rate in rates), *(number(ml, 2) for ml in volumes)]
            rows.append(row)
    return table(head, rows)


def case_table(evaluation: Evaluation) -> Html:
    """One line per case, structure and method; sorted by a click on a column."""
    several = len(evaluation.methods) > 1
    head = [_text_head("Case"), _text_head("Structure")] + ([_text_head("Method")] if several else [])
    head += [element("th", title(metric), scope="col") for metric in METRICS]
    head += [element("th", name, scope="col") for name in ("Label (mL)", "Lesions found", "False lesions")]
    head += [_text_head("Outcome")]
    return table(head, (_case_row(row, several) for row in evaluation.rows), class_="sortable", id="cases")


def _case_row(row: Row, several: bool) -> Iterator[str]:
    yield _text(row.case)
    yield _text(row.structure)
    if several:
        yield _text(row.method)
    for metric, known in METRICS.items():
        value = row.scores.value(metric)
        sort = "" if math.isnan(value) else f"{value:.6g}"
        yield element("td", number(value, known.digits), data_value=sort)
    yield element("td", number(row.scores.label_volume_ml, 2))
    found = f"{row.detection.true_positives} of {len(row.detection.lesions)}"
    yield element("td", found, data_value=str(row.detection.true_positives))
    yield element("td", str(row.detection.false_positives))
    right = row.scores.outcome in ("scored", "correctly empty")
    yield element("td", row.scores.outcome, class_="text" if right else "text bad")


def warning_lines(evaluation: Evaluation) -> list[str]:
    """What a reader must know before the figures; the command line prints the same."""
    lines = list(evaluation.warnings)
    for method, cases in evaluation.missing.items():
        if cases:
            lines.append(f"{method}: no prediction for {len(cases)} of {len(evaluation.cases)} cases, counted as failures: {_some(cases)}")
    for method, cases in evaluation.extra.items():
        if cases:
            lines.append(f"{method}: {len(cases)} predictions have no label and are not scored: {_some(cases)}")
    return lines


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def policy(evaluation: Evaluation) -> Html:
    """How every figure came about."""
    definitions = (
        ("Dice, precision, recall", "2|P∩L|/(|P|+|L|), |P∩L|/|P|, |P∩L|/|L| over voxels, P predicted and L labelled."),
        ("HD95", "the larger of the two directed 95th percentiles of the distance between surfaces, in mm, as MONAI."),
        ("NSD", f"normalised surface distance: the part of both surfaces within {evaluation.tolerance_mm:g} mm of the other."),
        ("Volume error", "predicted minus labelled."),
        ("Lesion", "a connected component (18 neighbours, as AutoPET); found if the prediction touches it, false if it touches no label."),
        ("Dice of a lesion", "against the predicted lesions that touch it, without what they share with other labelled lesions."),
        ("Interval", f"95 %, bootstrap over cases ({RESAMPLES} resamples, seed {evaluation.seed})."),
        ("Comparison", "Wilcoxon's signed-rank test over the same cases, two-sided, p corrected by Holm for all tests of this report."),
    )
    outcomes = ((name.capitalize(), text) for name, text in POLICY.items())
    return join((_definitions(definitions), element("h3", "Empty and missed structures"), _definitions(outcomes)))


def provenance(evaluation: Evaluation) -> Html:
    record = evaluation.provenance
    values = [
        ("Labels", record["labels"]),
        *((f"Predictions, {method}", folder) for method, folder in record["predictions"].items()),
        ("Structures", "; ".join(f"{n} = {', '.join(map(str, v))}" for n, v in evaluation.structures.items())),
        ("NSD tolerance", f"{evaluation.tolerance_mm:g} mm"),
        ("Bootstrap seed", str(evaluation.seed)),
        ("Made", f"{record['created']}, in {record['seconds']} s"),
        ("With", f"veloxseg {record['veloxseg']}, Python {record['python']}, NumPy {record['numpy']}, {record['machine']}"),
    ]
    files = ((_text(name), element("td", element("code", value), class_="text")) for name, value in record["sha256"].items())
    hashes = table([_text_head("File"), _text_head("SHA-256")], files)
    return join((_definitions(values), element("details", element("summary", "Hashes of all files"), hashes)))


def _definitions(pairs: Iterable[tuple[str, str]]) -> Html:
    return element("dl", *(part for name, text in pairs for part in (element("dt", name), element("dd", text))))


def _text(value: str) -> Html:
    return element("td", value, class_="text")


def _text_head(name: str) -> Html:
    return element("th", name, scope="col", class_="text")
