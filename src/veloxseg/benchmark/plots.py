"""Pictures of a benchmark: throughput against parameters, Dice against throughput, growth with the volume."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veloxseg.files import atomic_path

__all__ = ["plot_dice", "plot_growth", "plot_throughput"]

Row = dict[str, Any]
OURS, PEER, LINK = "#c8102e", "#33628f", "#9aa5b1"
# where a name may stand beside its point: offset in points, alignment
PLACES = (
    ((6, 5), "left"),
    ((6, -6), "left"),
    ((-6, 5), "right"),
    ((-6, -6), "right"),
    ((0, 10), "center"),
    ((0, -11), "center"),
)
MARKERS = {"torch": "o", "onnx": "s", "openvino": "^", "native": "D"}
RUNTIME_NAMES = {"torch": "eager PyTorch", "onnx": "onnxruntime", "openvino": "OpenVINO", "native": "our kernels"}


def plot_throughput(rows: Sequence[Row], path: Path) -> None:
    """Patches/s on one thread against parameters; runtimes of one model stand above each other."""
    figure, axes = _figure("Throughput against size, 96³ patches, one thread, batch 1")
    labels: list[tuple[Row, float, float]] = []
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = sorted((r for r in rows if r["model"] == model), key=lambda r: r["patches_per_second"])
        size = mine[0]["parameters"] / 1e6
        axes.plot([size] * len(mine), [r["patches_per_second"] for r in mine], color=LINK, linewidth=0.8, zorder=1)
        for row in mine:
            low, high = row["patches_per_second_low"], row["patches_per_second_high"]
            axes.vlines(size, low, high, color=_colour(row), linewidth=2.5, alpha=0.35, zorder=2)
            axes.scatter(
                size, row["patches_per_second"], marker=MARKERS.get(row["runtime"], "x"), color=_colour(row), zorder=3
            )
        labels.append((mine[-1], size, mine[-1]["patches_per_second"]))
    axes.set(
        xscale="log", yscale="log", xlabel="parameters / million", ylabel="patches / s (bars: interquartile range)"
    )
    _runtime_legend(axes, {row["runtime"] for row in rows})
    _write_labels(figure, axes, labels)
    _save(figure, path)


def plot_dice(rows: Sequence[Row], path: Path) -> None:
    """The paper's Dice on AutoPET-II against the throughput measured here: each model in its fastest runtime."""
    figure, axes = _figure("Published Dice (AutoPET-II) against throughput measured here, one thread")
    labels: list[tuple[Row, float, float]] = []
    for model in dict.fromkeys(row["model"] for row in rows):
        best = max((r for r in rows if r["model"] == model), key=lambda r: r["patches_per_second"])
        dice = best["published"]["dice"]
        if dice is not None:
            axes.scatter(
                best["patches_per_second"], dice, marker=MARKERS.get(best["runtime"], "x"), color=_colour(best)
            )
            labels.append((best, best["patches_per_second"], dice))
    axes.set(xscale="log", xlabel="patches / s, fastest runtime", ylabel="Dice / %, from the paper")
    _runtime_legend(axes, {row["runtime"] for row in rows})
    _write_labels(figure, axes, labels)
    _save(figure, path)


def plot_growth(rows: Sequence[Row], path: Path) -> None:
    """Time and memory of one attention layer against the volume."""
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for kind in dict.fromkeys(row["attention"] for row in rows):
        mine = [row for row in rows if row["attention"] == kind]
        voxels = [row["voxels"] for row in mine]
        left.plot(voxels, [1e3 * row["seconds"] for row in mine], marker="o", label=kind)
        right.plot(voxels, [max(row["memory_mb"], 0.1) for row in mine], marker="o", label=kind)
    patches = {row["voxels"]: row["patch"] for row in rows}
    for axes, title in ((left, "milliseconds, one thread"), (right, "memory of a pass / MB")):
        axes.set(xscale="log", yscale="log", title=title, xlabel="patch (attention runs at a quarter of it)")
        axes.set_xticks(list(patches), [f"{patch}³" for patch in patches.values()])
        axes.minorticks_off()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False)
    _save(figure, path)


def _figure(title: str) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
    axes.set_title(title, loc="left")
    axes.grid(alpha=0.25, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _colour(row: Row) -> str:
    return OURS if row["title"].startswith("VeloxSeg") else PEER


def _write_labels(figure: Any, axes: Any, labels: Sequence[tuple[Row, float, float]]) -> None:
    """A name beside each point, on the first side where it covers neither another name nor a point."""
    from matplotlib.collections import PathCollection
    from matplotlib.ticker import NullFormatter
    from matplotlib.transforms import Bbox

    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":
            axis.set_major_formatter("{x:g}")
            low, high = axis.get_data_interval()
            axis.set_minor_formatter("{x:g}" if high < 10 * low else NullFormatter())
    axes.margins(0.12, 0.08)
    figure.canvas.draw()
    scattered: list[Any] = [group for group in axes.collections if isinstance(group, PathCollection)]
    points = [point for group in scattered for point in group.get_offsets()]
    taken = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in axes.transData.transform(points)]
    for row, x, y in sorted(labels, key=lambda label: -label[1]):  # to the right there is room
        style = {"textcoords": "offset points", "fontsize": 8, "color": _colour(row)}
        for offset, side in PLACES:
            text = axes.annotate(row["title"], (x, y), xytext=offset, ha=side, va="center", **style)
            box = text.get_window_extent()
            if not any(box.overlaps(other) for other in taken) or (offset, side) == PLACES[-1]:
                taken.append(box)
                break
            text.remove()


def _runtime_legend(axes: Any, runtimes: set[str]) -> None:
    for runtime in (name for name in (*MARKERS, *sorted(runtimes - MARKERS.keys())) if name in runtimes):
        name = RUNTIME_NAMES.get(runtime, runtime)
        axes.scatter([], [], marker=MARKERS.get(runtime, "x"), color="#555555", label=name)
    axes.legend(frameon=False, loc="lower left")


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)
