"""The picture of a study: every row's Dice here with its interval and seeds, and beside it the paper's."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from veloxseg.evaluate.statistics import Summary
from veloxseg.study.results import Outcome
from veloxseg.study.table import Table

__all__ = ["draw_table"]

OURS, PAPER, FIRST = "#0072B2", "#777777", "#D55E00"
MARKERS = ("D", "s", "^")  # of the data sets that the paper has a value of


def draw_table(table: Table, outcomes: Sequence[Outcome]) -> bytes:
    """Rows from top to bottom; at the right the printed values, on an axis of their own as they are of other data."""
    from matplotlib.figure import Figure

    printed = sorted({key for outcome in outcomes for key in outcome.row.paper if key.startswith("Dice")})
    figure = Figure(figsize=(9.5 if printed else 7.5, max(2.6, 1.3 + 0.42 * len(outcomes))), layout="constrained")
    if printed:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.5, 1))
        _draw_paper(right, outcomes, printed)
    else:
        left = figure.subplots()
    _draw_ours(left, outcomes)
    left.set_yticks(range(len(outcomes)), [fill(outcome.row.title, 34) for outcome in outcomes], fontsize=8)
    left.set_ylim(len(outcomes) - 0.5, -0.5)
    figure.suptitle(table.title, x=0.01, ha="left", fontsize=11)
    return _png(figure)


def _draw_ours(axes: Any, outcomes: Sequence[Outcome]) -> None:
    for place, outcome in enumerate(outcomes):
        summary = outcome.summary()
        colour = FIRST if place == 0 else OURS
        axes.plot([summary.low, summary.high], [place, place], color=colour, lw=2.2, alpha=0.5, solid_capstyle="butt")
        seeds = outcome.by_seed()
        if len(seeds) > 1:
            axes.scatter(list(seeds.values()), [place] * len(seeds), s=12, color=colour, alpha=0.6, marker="|")
        axes.scatter([summary.mean], [place], s=34, color=colour, zorder=3)
        if outcome.external:
            _draw_external(axes, outcome.summary(external=True), place + 0.22, colour)
    cases = max(len(outcome.values()) for outcome in outcomes)
    axes.axvline(outcomes[0].summary().mean, color=FIRST, lw=0.7, ls=":", zorder=0)
    words = f"Dice here, {cases} unseen case{'' if cases == 1 else 's'}; line: 95 % interval"
    if any(len(outcome.by_seed()) > 1 for outcome in outcomes):
        words += ", ticks: seeds"
    if any(outcome.external for outcome in outcomes):
        words += "\nsquare: external cases"
    axes.set_xlabel(words, fontsize=8)
    _style(axes)


def _draw_external(axes: Any, summary: Summary, place: float, colour: str) -> None:
    axes.plot([summary.low, summary.high], [place, place], color=colour, lw=1.2, alpha=0.5, solid_capstyle="butt")
    axes.scatter([summary.mean], [place], s=26, marker="s", facecolor="white", edgecolor=colour, zorder=3)


def _draw_paper(axes: Any, outcomes: Sequence[Outcome], printed: Sequence[str]) -> None:
    for marker, key in zip(MARKERS, printed, strict=False):
        points = [(o.row.paper[key], place) for place, o in enumerate(outcomes) if key in o.row.paper]
        axes.scatter(*zip(*points, strict=True), s=26, facecolor="none", edgecolor=PAPER, marker=marker, label=key)
        if len(printed) == 1:
            for value, place in points:
                axes.annotate(
                    f"{value:g}", (value, place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=7,
                    color=PAPER,
                )  # fmt: skip
    if len(printed) > 1:
        axes.legend(frameon=False, fontsize=7)
    axes.margins(x=0.15)
    axes.set_xlabel("Dice in the paper, %, its own data", fontsize=8)
    _style(axes)


def _style(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    axes.grid(axis="x", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)


def _png(figure: Any) -> bytes:
    import io

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, metadata={"Software": None})
    return buffer.getvalue()
