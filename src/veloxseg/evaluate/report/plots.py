"""Plots of a report: Dice by lesion volume (the paper's box plots), volume agreement, Dice case by case.

Colours are Okabe and Ito's, which the colour-blind tell apart; methods differ in their marker too.
"""

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.evaluate.metrics import METRICS, PRIMARY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BINS_ML", "bin_names", "bland_altman", "case_dice", "dice_by_volume", "volume_boxes", "volume_scatter"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
BINS_ML = (0.0, 0.5, 1.0, 5.0, 20.0, 100.0, math.inf)  # fixed, so that reports can be compared
FEWEST_CASES = 3  # a plot of volumes with fewer says nothing
INK, GRID = "#333333", "#dddddd"


def bin_names() -> list[str]:
    """The ranges of lesion volume in millilitres, as they stand under the boxes."""
    return [f"<{b:g}" if a == 0 else f"≥{a:g}" if math.isinf(b) else f"{a:g}–{b:g}" for a, b in pairwise(BINS_ML)]


def dice_by_volume(evaluation: Evaluation, structure: str) -> bytes | None:
    """Box plots of the Dice of single lesions over their volume; None without a lesion."""
    return volume_boxes(
        {
            method: [
                (lesion.volume_ml, lesion.dice)
                for row in evaluation.select(method, structure)
                for lesion in row.detection.lesions
            ]
            for method in evaluation.methods
        }
    )


def volume_boxes(lesions: Mapping[str, Sequence[tuple[float, float]]]) -> bytes | None:
    """The same of methods that found (volume in mL, Dice) of each lesion."""
    present = {place for found in lesions.values() for place in _volume_bins(found)}
    if not present:
        return None
    shown = range(min(present), max(present) + 1)
    figure, axes = _figure()
    width = 0.75 / len(lesions)
    for number, found in enumerate(lesions.values()):
        dices, places = np.array([dice for _, dice in found]), _volume_bins(found)
        for position, index in enumerate(shown):
            centre = position + (number - (len(lesions) - 1) / 2) * width
            _box(axes, dices[places == index], centre, width, number)
    names, first = bin_names(), _volume_bins(next(iter(lesions.values())))
    axes.set_xticks(range(len(shown)), [f"{names[i]}\nn = {np.count_nonzero(first == i)}" for i in shown])
    axes.set_xlim(-0.6, len(shown) - 0.4)
    axes.set(ylim=(-0.03, 1.03), ylabel="Dice of the lesion", xlabel="labelled lesion volume in mL")
    _legend(axes, tuple(lesions))
    return _png(figure)


def _volume_bins(lesions: Sequence[tuple[float, float]]) -> npt.NDArray[np.intp]:
    return np.digitize(np.array([volume for volume, _ in lesions]), BINS_ML) - 1


def volume_scatter(evaluation: Evaluation, structure: str) -> bytes | None:
    """Predicted against labelled volume; None for too few cases."""
    pairs = {method: _volumes(evaluation, method, structure) for method in evaluation.methods}
    if not _enough(pairs):
        return None
    largest = max(volumes.max(initial=0) for volumes in pairs.values())
    figure, axes = _figure()
    axes.plot([0, largest * 1.05], [0, largest * 1.05], color=INK, lw=0.8, zorder=0)
    for number, (predicted, labelled) in enumerate(pairs.values()):
        axes.scatter(labelled, predicted, **_dots(number))
    axes.set(xlabel="labelled volume in mL", ylabel="predicted volume in mL")
    _legend(axes, evaluation.methods)
    return _png(figure)


def bland_altman(evaluation: Evaluation, structure: str) -> bytes | None:
    """Difference of volumes over their mean, with the limits of agreement; None for too few cases."""
    pairs = {method: _volumes(evaluation, method, structure) for method in evaluation.methods}
    if not _enough(pairs):
        return None
    figure, axes = _figure()
    axes.axhline(0, color=INK, lw=0.8, zorder=0)
    for number, (predicted, labelled) in enumerate(pairs.values()):
        difference = predicted - labelled
        axes.scatter((predicted + labelled) / 2, difference, **_dots(number))
        if len(difference) > 1:
            mean, limit = difference.mean(), 1.96 * difference.std(ddof=1)
            axes.axhline(mean, color=_colour(number), lw=1.2)
            for side in (mean - limit, mean + limit):
                axes.axhline(side, color=_colour(number), lw=1, ls="--")
    axes.set(xlabel="mean of both volumes in mL", ylabel="predicted − labelled in mL")
    _legend(axes, evaluation.methods)
    return _png(figure)


def _volumes(evaluation: Evaluation, method: str, structure: str) -> npt.NDArray[np.float64]:
    """(2, cases): predicted and labelled volumes of the cases that have a prediction and any volume."""
    scores = [row.scores for row in evaluation.select(method, structure)]
    kept = [(s.volume_ml, s.label_volume_ml) for s in scores if s.outcome not in ("correctly empty", "no prediction")]
    return np.array(kept, dtype=np.float64).reshape(-1, 2).T


def _enough(pairs: Mapping[str, npt.NDArray[np.float64]]) -> bool:
    """Whether there are enough cases to speak of agreement."""
    return any(volumes.shape[1] >= FEWEST_CASES for volumes in pairs.values())


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


def _dots(number: int) -> dict[str, Any]:
    return {"c": _colour(number), "marker": _marker(number), "s": 24, "alpha": 0.7, "lw": 0}


def case_dice(evaluation: Evaluation) -> bytes:
    """The primary metric: each case is a dot, for each structure; the bar is the mean with its 95 % interval."""
    methods, structures = evaluation.methods, list(evaluation.structures)
    figure, axes = _figure(max(5.4, 0.4 * len(structures) * len(methods)))
    random = np.random.default_rng(evaluation.seed)
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        for position, structure in enumerate(structures):
            values = np.array(evaluation.values(method, structure, PRIMARY))
            values = values[~np.isnan(values)]
            centre = position + (number - (len(methods) - 1) / 2) * width
            spread = centre + random.uniform(-0.25, 0.25, len(values)) * width
            axes.scatter(spread, values, c=_colour(number), marker=_marker(number), s=20, alpha=0.6, lw=0)
            summary = evaluation.summary(method, structure, PRIMARY)
            if summary.count:
                axes.hlines(summary.mean, centre - 0.4 * width, centre + 0.4 * width, color=INK, lw=2)
            if summary.count > 1:
                axes.vlines(centre, summary.low, summary.high, color=INK, lw=1)
    long = sum(map(len, structures)) > 14 * len(structures) or len(structures) > 6
    turn: dict[str, Any] = {"rotation": 40, "ha": "right"} if long else {}
    axes.set_xticks(range(len(structures)), structures, parse_math=False, **turn)
    axes.set_xlim(-0.6, len(structures) - 0.4)
    axes.set(ylim=(-0.03, 1.03), ylabel=f"{METRICS[PRIMARY].title} per case")
    _legend(axes, methods)
    return _png(figure)


def _box(axes: "Axes", values: Any, centre: float, width: float, number: int) -> None:
    if not len(values):
        return
    colour = _colour(number)
    axes.boxplot(
        [values],
        positions=[centre],
        widths=width * 0.8,
        patch_artist=True,
        showfliers=False,
        manage_ticks=False,
        boxprops={"facecolor": colour + "40", "edgecolor": colour},
        medianprops={"color": INK, "lw": 1.6},
        whiskerprops={"color": colour},
        capprops={"color": colour},
    )
    spread = centre + np.random.default_rng(0).uniform(-0.2, 0.2, len(values)) * width
    axes.scatter(spread, values, c=colour, marker=_marker(number), s=9, alpha=0.5, lw=0)


def _legend(axes: "Axes", methods: Sequence[str]) -> None:
    if len(methods) < 2:
        return
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=_colour(n), marker=_marker(n), lw=0, label=str(n)) for n in range(len(methods))]
    legend = axes.legend(handles=handles, frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    for text, name in zip(legend.get_texts(), methods, strict=True):  # set here, so that "$" and "_" are just letters
        text.set_parse_math(False)
        text.set_text(name)


def _figure(width: float = 5.4) -> tuple["Figure", "Axes"]:
    """An empty figure, `width` inches wide; the page scales all plots to one width."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 3.3), layout="constrained")
    axes = figure.add_subplot()
    _style(axes)
    return figure, axes


def _style(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.tick_params(colors=INK, labelsize=8)
    axes.xaxis.label.set(color=INK, fontsize=9)
    axes.yaxis.label.set(color=INK, fontsize=9)
    axes.grid(axis="y", color=GRID, lw=0.6)
    axes.set_axisbelow(True)


def _png(figure: "Figure") -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
        figure.savefig(buffer, format="png", dpi=160, metadata={"Software": None})
    return buffer.getvalue()
