"""Figures of a study as text, and the words that a reader must know to judge them."""

import math
from collections.abc import Sequence

from veloxseg.evaluate.statistics import Comparison, Summary
from veloxseg.study.results import Findings, Outcome

__all__ = [
    "between",
    "difference",
    "head",
    "how_words",
    "mean_text",
    "number",
    "number_text",
    "p_text",
    "paper_lines",
    "steps_text",
    "widths_rows",
]


def head(findings: Findings, *, external: bool = False) -> list[str]:
    """The columns of a table; the paper's only where it has something."""
    costs = () if external else ("precision", "recall", "parameters M", "MACs G", "training MB", "minutes", "steps")
    paper = ("paper",) if findings.has_paper else ()
    return ["row", "Dice [95 % interval]", "against the first", "p (Holm)", "HD95 mm", *costs, *paper]


def cells(findings: Findings, outcome: Outcome, *, external: bool = False) -> list[str]:
    """One line of a table."""
    comparison = (findings.external if external else findings.tested).get(outcome.row.name)
    paper = [", ".join(paper_lines(outcome))] if findings.has_paper else []
    return [
        outcome.row.title,
        mean_text(outcome.summary(external=external)) + between(outcome.summary(external=external), " [", "]"),
        "the first" if comparison is None else difference(comparison) + between(comparison, " [", "]", sign=True),
        "" if comparison is None else p_text(comparison.p_holm),
        number_text(outcome.summary("hd95_mm", external=external).median, 1),
        *([] if external else cost_cells(outcome)),
        *paper,
    ]


def cost_cells(outcome: Outcome) -> list[str]:
    published = number_text(outcome.fact("macs_as_published", 1e9), 3)
    return [
        number_text(outcome.summary("precision").mean, 3),
        number_text(outcome.summary("recall").mean, 3),
        number_text(outcome.fact("parameters", 1e6), 3),
        f"{number_text(outcome.fact('macs', 1e9), 3)} ({published})",
        number_text(outcome.fact("peak_rss_mb"), 0),
        number_text(outcome.fact("seconds", 60), 1),
        steps_text(outcome),
    ]


def paper_lines(outcome: Outcome) -> list[str]:
    return [f"{name} {value:g}" for name, value in outcome.row.paper.items()]


def steps_text(outcome: Outcome) -> str:
    """A pruned row has learnt before it was pruned, too."""
    before, steps = outcome.fact("steps_before"), number_text(outcome.fact("steps"), 0)
    return steps if before is None else f"{steps} after {number_text(before, 0)}"


def widths_rows(findings: Findings, outcome: Outcome) -> tuple[list[str], list[list[str]]]:
    """Head and rows of what pruning kept, by depth; in brackets what the paper prints."""
    widths = outcome.widths
    names = list(dict.fromkeys(name for row in widths for name in row))
    printed = {row["depth"]: row for row in findings.table.widths}
    rows = []
    for row in widths:
        paper = printed.get(row["depth"], {})
        rows.append([_width(row.get(name), paper.get(name) if name != "depth" else None) for name in names])
    return names, rows


def _width(value: float | None, printed: float | None) -> str:
    text = "–" if value is None else f"{value:.2f}".removesuffix(".00")
    return text if printed is None else f"{text} ({printed:g})"


def how_words(findings: Findings) -> list[str]:
    """What a reader must know to judge the figures."""
    outcomes: Sequence[Outcome] = findings.outcomes
    if not outcomes:
        return ["No training is done yet."]
    counts = sorted({len(outcome.values()) for outcome in outcomes})
    seeds = sorted({len({scores["seed"] for scores in outcome.scores}) for outcome in outcomes})
    cases = f"{'–'.join(map(str, counts))} unseen case{'' if counts == [1] else 's'}"
    words = [
        f"Dice is the mean over {cases} (of each case over structures and {'–'.join(map(str, seeds))} "
        f"seed{'' if seeds == [1] else 's'}), on the grid that they were prepared on.",
        "The interval is the bootstrap's of that mean; p is Wilcoxon's signed-rank test against the first row, case by "
        "case, corrected by Holm for the number of rows. HD95 is the median.",
        "MACs are real work; in brackets as the paper's counter has them. Memory is the peak of the training process, "
        f"time that of a training with 1 thread on {outcomes[0].training[0]['machine']['cpu']}.",
    ]
    if findings.has_paper:
        words.append(
            "The paper's values are of its own data, recipe and GPU: they say which way a difference goes, not how "
            "high a score should be here."
        )
    return words


# -- numbers as text -------------------------------------------------------------------------------------------------


def number(value: float) -> float | None:
    return None if math.isnan(value) else value


def number_text(value: float | None, digits: int) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def mean_text(summary: Summary) -> str:
    return number_text(summary.mean, 3)


def difference(comparison: Comparison) -> str:
    return "–" if math.isnan(comparison.difference) else f"{comparison.difference:+.3f}"


def between(value: Summary | Comparison, before: str = "", after: str = "", *, sign: bool = False) -> str:
    """The interval; nothing where there is none."""
    if math.isnan(value.low):
        return ""
    style = "+.3f" if sign else ".3f"
    return f"{before}{value.low:{style}}, {value.high:{style}}{after}"


def p_text(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"
