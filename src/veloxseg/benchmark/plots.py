"""Pictures of a benchmark: throughput, Dice, memory, cost and growth with the volume."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veloxseg.benchmark.dice import Dice
from veloxseg.files import atomic_path
from veloxseg.peers.registry import PEERS

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
    ((4, 17), "left"),
    ((4, -18), "left"),
    ((-4, 17), "right"),
    ((-4, -18), "right"),
)
MARKERS = {"torch": "o", "onnx": "s", "openvino": "^", "native": "D"}
_PROCESS_MEMORY = ("peak_rss_mb", "training_peak_rss_mb")


@dataclass(frozen=True)
class Family:
    """How a group of networks is marked, as in the paper's Figure 1."""

    marker: str
    colour: str
    size: float = 38


LETTERS = "C convolution, T Transformer, K KAN, M Mamba, R RWKV"
FAMILIES = {
    "basic": Family("o", "#1f77b4"),
    "multimodal": Family("s", "#ff7f0e"),
    "lightweight": Family("^", "#2ca02c"),
    "VeloxSeg": Family("*", "#d62728", 130),
}
RUNTIME_NAMES = {"torch": "eager PyTorch", "onnx": "onnxruntime", "openvino": "OpenVINO", "native": "our kernels"}


def plot_all(rows: Sequence[Row], folder: Path, dice: Mapping[str, Dice] | None = None) -> list[Path]:
    """Every picture that the rows of one benchmark allow; those of the least threads and batch 1."""
    threads = min(row["threads"] for row in rows)
    shown = [row for row in rows if row["threads"] == threads and row["batch"] == 1 and row["patches_per_second"]]
    written = [folder / "throughput.png", folder / "memory.png"]
    plot_throughput(shown, written[0])
    plot_memory(shown, written[1])
    if any(row["model"] in (_published(shown) if dice is None else dice) for row in shown):
        written.append(folder / "dice.png")
        plot_dice(shown, written[-1], dice)
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


def plot_dice(rows: Sequence[Row], path: Path, dice: Mapping[str, Dice] | None = None) -> None:
    """The paper's Figure 1: Dice against throughput, each model in its fastest runtime, and against parameters.

    `dice` is that of a study, by model; without it the paper's own is drawn.
    """
    found = _published(rows) if dice is None else dice
    best = {
        model: max((row for row in rows if row["model"] == model), key=lambda row: row["patches_per_second"])
        for model in dict.fromkeys(row["model"] for row in rows)
        if model in found
    }
    figure, (left, right) = _panels(f"{_dice_words(found)}, {_conditions(rows)}")
    panels = ((left, 1, "patches_per_second"), (right, 1e6, "parameters"))
    for axes, unit, key in panels:
        for model, row in best.items():
            x, score, family = row[key] / unit, found[model], FAMILIES[_family(row)]
            if score.low is not None and score.high is not None:
                axes.vlines(x, score.low, score.high, color=family.colour, linewidth=2, alpha=0.25, zorder=1)
            axes.scatter(x, score.mean, marker=family.marker, color=family.colour, s=family.size, zorder=3)
        axes.set(xscale="log")
    left.set(xlabel="patches / s, fastest runtime", ylabel="Dice / %")
    right.set(xlabel="parameters / million")
    for name in dict.fromkeys(_family(row) for row in best.values()):
        family = FAMILIES[name]
        right.scatter([], [], marker=family.marker, color=family.colour, s=family.size, label=name)
    figure.legend(frameon=False, loc="outside lower center", ncols=4, fontsize=9, title=LETTERS, title_fontsize=8)
    named = {model: row | {"title": f"{row['title']} ({_letters(row)})"} for model, row in best.items()}
    for axes, unit, key in panels:  # when the legend has taken its room
        _write_labels(figure, axes, [(row, row[key] / unit, found[model].mean) for model, row in named.items()])
    _save(figure, path)


def _letters(row: Row) -> str:
    """What a network computes with, by the letters of the legend."""
    kind = PEERS[row["model"]].kind if row["model"] in PEERS else "CNN-Transformer" if _is_ours(row) else "CNN"
    return "+".join(part[0] for part in kind.split("-"))


def _published(rows: Sequence[Row]) -> dict[str, Dice]:
    values = {
        row["model"]: row["published"]["dice"] for row in rows if row["input"] == rows[0]["input"]
    }  # one data set
    return {model: Dice(mean=value) for model, value in values.items() if value is not None}


def _dice_words(found: Mapping[str, Dice]) -> str:
    counts = sorted({score.cases for score in found.values() if score.cases is not None})
    if not counts:
        return "The paper's Dice, throughput measured here"
    lines = ", line: 95 % interval" if any(score.low is not None for score in found.values()) else ""
    return f"Dice of {'–'.join(map(str, counts))} unseen cases{lines}, and throughput, both measured here"


def _family(row: Row) -> str:
    if row["model"] in PEERS:
        return PEERS[row["model"]].family
    return "VeloxSeg" if _is_ours(row) else "basic"


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


def _panels(title: str) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(12, 5.4), layout="constrained", sharey=True)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    for axes in panels:
        axes.grid(alpha=0.25, which="both")
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels


def _is_ours(row: Row) -> bool:
    return bool(row["title"].startswith("VeloxSeg"))


def _colour(row: Row) -> str:
    return OURS if _is_ours(row) else PEER


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
    for row, x, y in sorted(labels, key=lambda label: (not _is_ours(label[0]), -label[1])):  # to the right is room
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
