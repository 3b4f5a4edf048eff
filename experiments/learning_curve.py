"""Dice against minutes of training, one line for each method, from what search.py (and own_grid.py) wrote.

    python experiments/learning_curve.py WORK -o PICTURE --title "Hippocampus, 42 unseen cases" \\
        "VeloxSeg-B=b_2,b_5,b_15" "UNet (light)=unet_2,unet_5,unet_15"

Each name is a WORK/NAME.json. Dice is the mean over cases of the mean over structures, on the scans' own grid where
own_grid.py was run, with the bootstrap's 95 % interval; minutes are those that the training took.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from veloxseg.evaluate.statistics import bootstrap_interval
from veloxseg.files import read_json

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#777777")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("lines", nargs="+", metavar="TITLE=NAME,NAME")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--title", default="")
    options = parser.parse_args()
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    for line, colour in zip(options.lines, COLOURS, strict=False):
        title, names = line.split("=")
        points = sorted(point(read_json(options.work / f"{name}.json")["runs"]) for name in names.split(","))
        minutes, means, lows, highs = (list(values) for values in zip(*points, strict=True))
        axes.plot(minutes, means, "o-", color=colour, label=title, markersize=5)
        axes.fill_between(minutes, lows, highs, color=colour, alpha=0.12, linewidth=0)
        print(title, *(f"{m:.1f} min {d:.4f} [{low:.4f}, {high:.4f}]" for m, d, low, high in points), sep="\n  ")
    axes.set(xscale="log", xlabel="minutes of one core", ylabel="Dice of unseen cases; band: 95 % interval")
    axes.set_xticks([2, 5, 15], ["2", "5", "15"])
    axes.minorticks_off()
    axes.grid(color="#dddddd", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    axes.set_title(options.title, loc="left", fontsize=11)
    figure.savefig(options.output, dpi=150, metadata={"Software": None})


def point(runs: dict[str, Any]) -> tuple[float, float, float, float]:
    """Minutes, mean, and its interval."""
    values = np.array(
        [
            statistics.fmean(value for value in case.values() if value is not None)
            for run in runs.values()
            for case in run.get("own grid", run["cases"]).values()
        ]
    )
    minutes = statistics.fmean(run["seconds"] for run in runs.values()) / 60
    return minutes, float(values.mean()), *bootstrap_interval(values)


if __name__ == "__main__":
    main()
