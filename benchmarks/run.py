"""`make bench`: the whole speed table, its plots and the growth of attention, under benchmarks/<date>/.

    python benchmarks/run.py [PART ...]        without names: all of them, which takes long

Each part is a JSON file. A part that is there is not measured again, so an interrupted run goes on where it
stopped; the report is written from the parts that are there.
"""

import argparse
import datetime
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from veloxseg.benchmark import growth, plots
from veloxseg.machine import allowed_cores
from veloxseg.benchmark.models import MODELS
from veloxseg.benchmark.report import COUNTER_NOTE, machine_line, markdown
from veloxseg.benchmark.run import benchmark
from veloxseg.console import say
from veloxseg.files import read_json, writable_folder, write_json

Rows = list[dict[str, Any]]

QUICK = ["b", "s", "slim-unetr", "segformer-3d", "unet"]  # as `veloxseg benchmark` without arguments
LIGHT = ["b", "s", "l", "b+", "c", "slim-unetr", "segformer-3d", "u-kan", "unet"]
LARGE = [name for name in MODELS if name not in LIGHT]
COMPARED = ["torch", "openvino", "native"]  # the usual way, the fastest library, and our kernels where they fit
TOGETHER = 3  # large peers in one process: each keeps about 1 GB of buffers in OpenVINO

# part -> heading and what measures it
PARTS: dict[str, tuple[str, Callable[[], Rows]]] = {
    "quick": ("Five networks, one thread", partial(benchmark, QUICK, COMPARED, [1])),
    "runtimes": ("VeloxSeg-B by runtime, beside the yardstick", partial(benchmark, ["b", "unet"], threads=[1])),
    "light": ("Light networks, one thread", partial(benchmark, LIGHT, threads=[1])),
    "cores": ("Light networks, all cores", partial(benchmark, LIGHT, COMPARED, [len(allowed_cores())])),
    "training": (
        "Batches of 1 and 4, and a training step of batch 2 (VeloxSeg with its teachers), one thread",
        partial(
            benchmark, ["b", "s", "slim-unetr", "segformer-3d", "unet"], ["torch"], [1], batches=(1, 4), training=True
        ),
    ),
    "growth": ("Growth of attention with the volume", growth.measure),
    **{
        f"large-{i // TOGETHER + 1}": (
            f"Large peers, one thread: {', '.join(MODELS[name].title for name in LARGE[i : i + TOGETHER])}",
            partial(benchmark, LARGE[i : i + TOGETHER], ["torch", "openvino"], [1]),
        )
        for i in range(0, len(LARGE), TOGETHER)
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    today = datetime.date.today().isoformat()
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / today)
    arguments = parser.parse_args()
    folder = writable_folder(arguments.output)
    for name in arguments.parts or PARTS:
        heading, measure = PARTS[name]
        if not (folder / f"{name}.json").exists():
            say(f"{heading}:")
            write_json(folder / f"{name}.json", measure())
    write_report(folder)
    say(f"{folder / 'README.md'}")


def write_report(folder: Path) -> None:
    found: dict[str, Rows] = {
        name: read_json(folder / f"{name}.json") for name in PARTS if (folder / f"{name}.json").exists()
    }
    tables = {name: rows for name, rows in found.items() if name != "growth"}
    sections = [f"# Speed on {folder.name}"]
    if tables:
        sections += [machine_line(next(iter(tables.values()))[0]["machine"]), COUNTER_NOTE, METHOD]
        sections += pictures(folder, tables)
        sections += [f"## {PARTS[name][0]}\n\n{markdown(rows)}" for name, rows in tables.items()]
    if "growth" in found:
        sections += growth_section(folder, found["growth"])
    (folder / "README.md").write_text("\n\n".join(sections) + "\n", encoding="utf-8")


METHOD = (
    "Made by `make bench`. Contenders ran in turn in one process per thread count, bound to as many cores, with random "
    "weights; cold start (with OpenVINO's compiled graph in its cache) and peak memory come from a fresh process each. "
    "Parameters and MACs are real; brackets hold what the paper prints. Fast contenders have 25 runs, slow 3 to 5. "
    "'native' are our kernels, for VeloxSeg alone; with several threads they compute as many windows at a time. The "
    "yardstick slows when many networks share its process, so '× U' is to be read within a table, not across them."
)


def pictures(folder: Path, tables: dict[str, Rows]) -> list[str]:
    """One thread, batch 1. What several parts measured is taken from the last, the yardstick from the light one."""
    parts = [name for name in tables if name not in ("cores", "training", "light")] + ["light"]
    rows = [row for name in parts for row in tables.get(name, []) if row["patches_per_second"]]
    seen = {(row["model"], row["runtime"]): row for row in rows}
    if not seen:
        return []
    plots.plot_throughput(list(seen.values()), folder / "throughput.png")
    plots.plot_dice(list(seen.values()), folder / "dice.png")
    return [
        "![patches per second against parameters](throughput.png)",
        "![published Dice against patches per second](dice.png)",
    ]


def growth_section(folder: Path, rows: Rows) -> list[str]:
    plots.plot_growth(rows, folder / "growth.png")
    slopes = {name: growth.exponents(rows, name) for name in ("seconds", "macs")}
    largest = {row["attention"]: row for row in rows if row["patch"] == growth.PATCHES[-1]}
    ratio = {name: largest["PWA"][name] / largest["window 7³"][name] for name in ("macs", "seconds", "memory_mb")}
    layers = "\n".join(
        f"| {row['attention']} | {row['patch']}³ | {row['macs'] / 1e6:.1f} | {1e3 * row['seconds']:.1f} "
        f"| {1e3 * row['seconds_low']:.1f}–{1e3 * row['seconds_high']:.1f} | {row['memory_mb']:.1f} |"
        for row in rows
    )
    exponents = "\n".join(
        f"| {kind} | {slopes['seconds'][kind]:.2f} | {slopes['macs'][kind]:.2f} |" for kind in growth.KINDS
    )
    formula = "; ".join(f"{value:.2%} ({name})" for name, value in growth.coefficients().items())
    return [
        "## Growth of attention with the volume",
        "One layer of VeloxSeg-B's first stage (one modality, 16 channels, one head) on a quarter of the patch's grid, "
        "eager PyTorch, one thread. Full and window attention are fused by PyTorch and never store their weights; "
        "memory is what a pass adds to the process.",
        f"| attention | patch | MACs M | ms | quartiles | memory MB |\n|---|---:|---:|---:|---:|---:|\n{layers}",
        "![time and memory against the volume](growth.png)",
        "Growth with the volume, as the exponent between the two largest patches (1 is linear, 2 quadratic):",
        f"| attention | time | MACs |\n|---|---:|---:|\n{exponents}",
        "The paper says that PWA's linear coefficient is about 7.87 % of Swin's. By its own formulas it is "
        f"{formula}. The first is the printed figure: the ratio 3³/7³ of the window volumes, which is that of the "
        "attention products alone.",
        f"Real layers at {growth.PATCHES[-1]}³ (Swin's windows padded to fit): PWA takes {ratio['macs']:.1%} of the "
        f"multiply-accumulates, {ratio['seconds']:.0%} of the time and {ratio['memory_mb']:.0%} of the memory of "
        "window attention.",
    ]


if __name__ == "__main__":
    main()
