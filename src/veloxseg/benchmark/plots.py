"""Pictures of a benchmark: throughput, Dice, memory, cost and growth with the volume."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veloxseg.files import atomic_path

__all__ = ["plot_all", "plot_cost", "plot_dice", "plot_growth", "plot_memory", "plot_throughput"]

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
_PROCESS_MEMORY = ("peak_rss_mb", "training_peak_rss_mb")
RUNTIME_NAMES = {"torch": "eager PyTorch", "onnx": "onnxruntime", "openvino": "OpenVINO", "native": "our kernels"}


def plot_all(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Every picture that the rows of one benchmark allow; those of the least threads and batch 1."""
    threads = min(row["threads"] for row in rows)
    shown = [row for row in rows if row["threads"] == threads and row["batch"] == 1 and row["patches_per_second"]]
    written = [folder / "throughput.png", folder / "memory.png"]
    plot_throughput(shown, written[0])
    plot_memory(shown, written[1])
    if any(row["published"]["dice"] is not None for row in shown):
        written.append(folder / "dice.png")
        plot_dice(shown, written[-1])
    return written


def plot_memory(rows: Sequence[Row], path: Path) -> None:
    """Peak memory of prediction and, where it was measured, of a training step, a bar each."""
    gpu = any(row["peak_gpu_mb"] is not None for row in rows)
    where, keys = ("GPU", ("peak_gpu_mb", "training_peak_gpu_mb")) if gpu else ("process", _PROCESS_MEMORY)
    figure, axes = _figure(f"Peak memory of the {where}, {_conditions(rows)}", height=1.5 + 0.35 * len(rows))
    ordered = sorted(rows, key=lambda row: -(row[keys[0]] or 0))
    names = [f"{row['title']}, {RUNTIME_NAMES.get(row['runtime'], row['runtime'])}" for row in ordered]
    for key, label, shift in zip(keys, ("prediction", "training step, batch 2"), (0.2, -0.2), strict=True):
        places = [place + shift for place, row in enumerate(ordered) if row[key] is not None]
        values = [row[key] for row in ordered if row[key] is not None]
        if values:
            axes.barh(places, values, height=0.38, color=OURS if shift > 0 else PEER, label=label)
    axes.set_yticks(range(len(ordered)), names)
    axes.set(xlabel="MB")
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False)
    _save(figure, path)


def plot_cost(rows: Sequence[Row], path: Path) -> None:
    """Real multiply-accumulates against parameters, both counted here."""
    size = "×".join(map(str, rows[0]["input"]))
    figure, axes = _figure(f"Work against size, input {size}")
    points = [(row, row["parameters"] / 1e6, row["macs"] / 1e9) for row in rows]
    for row, parameters, work in points:
        axes.scatter(parameters, work, color=_colour(row))
    axes.set(xscale="log", yscale="log", xlabel="parameters / million", ylabel="multiply-accumulates of a patch / G")
    _write_labels(figure, axes, points)
    _save(figure, path)


def plot_throughput(rows: Sequence[Row], path: Path) -> None:
    """Patches/s against parameters; runtimes of one model stand above each other."""
    figure, axes = _figure(f"Throughput against size, {_conditions(rows)}")
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
    """The paper's Dice against the throughput measured here: each model in its fastest runtime."""
    figure, axes = _figure(f"Published Dice against throughput measured here, {_conditions(rows)}")
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


def _conditions(rows: Sequence[Row]) -> str:
    """What all rows share, for a title."""
    inputs = {"×".join(map(str, row["input"])) for row in rows if "input" in row}  # older figures have none
    size = f"input {inputs.pop()}" if len(inputs) == 1 else "own inputs"
    threads, device = rows[0]["threads"], rows[0].get("device", "cpu")
    place = f"{threads} thread{'s' if threads != 1 else ''}" if device == "cpu" else device
    return f"{size}, {place}, batch 1"


def _figure(title: str, height: float = 6.0) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, height), layout="constrained")
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
