"""`make bench`: the whole speed table, its plots and the growth of attention, under benchmarks/<date>/.

Light networks run in every runtime, on one thread and on all, with batches of 1 and 4 and with a training step;
the large peers, of which one pass takes seconds, in eager PyTorch and OpenVINO on one thread. Each part is a JSON
file; a part that is there is not measured again, so an interrupted run goes on where it stopped.
"""

import argparse
import datetime
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from veloxseg.benchmark import growth, plots
from veloxseg.benchmark.models import MODELS
from veloxseg.benchmark.report import COUNTER_NOTE, machine_line, markdown
from veloxseg.benchmark.run import benchmark
from veloxseg.console import say
from veloxseg.files import read_json, writable_folder, write_json

LIGHT = ["b", "s", "l", "b+", "c", "slim-unetr", "segformer-3d", "u-kan", "unet"]
LARGE = [name for name in MODELS if name not in LIGHT]
TOGETHER = 3  # large peers in one process: each keeps about 1 GB of buffers in OpenVINO


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    today = datetime.date.today().isoformat()
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).parent / today)
    folder = writable_folder(parser.parse_args().output)
    light = part(folder / "light.json", partial(benchmark, LIGHT, batches=(1, 4), training=True))
    grown = part(folder / "growth.json", growth.measure)
    large: list[dict[str, Any]] = []
    for start in range(0, len(LARGE), TOGETHER):
        names = LARGE[start : start + TOGETHER]
        measure = partial(benchmark, names, ["torch", "openvino"], [1])
        rows = part(folder / f"large-{'-'.join(names)}.json", measure)
        large += [row for row in rows if row["model"] in names]
    write_report(folder, light, large, grown)
    say(f"{folder / 'README.md'}")


def part(path: Path, measure: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    if not path.exists():
        say(f"{path.stem}:")
        write_json(path, measure())
    rows: list[dict[str, Any]] = read_json(path)
    return rows


def write_report(
    folder: Path, light: list[dict[str, Any]], large: list[dict[str, Any]], grown: list[dict[str, Any]]
) -> None:
    single = [row for row in [*light, *large] if (row["threads"], row["batch"]) == (1, 1)]
    plots.plot_throughput(single, folder / "throughput.png")
    plots.plot_dice(single, folder / "dice.png")
    plots.plot_growth(grown, folder / "growth.png")
    slopes = {name: growth.exponents(grown, name) for name in ("seconds", "macs")}
    largest = {row["attention"]: row for row in grown if row["patch"] == growth.PATCHES[-1]}
    ratio = {
        name: largest["PWA"][name] / largest["window 7³"][name] for name in ("macs", "seconds", "memory_mb")
    }
    text = f"""# Speed on {folder.name}

{machine_line(light[0]["machine"])}

{COUNTER_NOTE}

Made by `make bench`; contenders were run in turn in one process per thread count, each bound to as many cores.
Parameters and MACs are real; the bracket beside them is what the paper prints.

## Light networks, every runtime

{markdown(light)}

## Large peers, one thread

{markdown(large)}

![patches per second against parameters](throughput.png)

![published Dice against patches per second](dice.png)

## Growth of attention with the volume

One layer of VeloxSeg-B's first stage (one modality, 16 channels, one head) on a quarter of the patch's grid.

{growth_table(grown)}

![time and memory against the volume](growth.png)

Growth with the volume, as the exponent between the two largest patches (1 is linear, 2 quadratic):

{exponent_table(slopes)}

The paper says that PWA's linear coefficient is about 7.87 % of Swin's. By its own formulas it is
{"; ".join(f"{value:.2%} ({name})" for name, value in growth.coefficients().items())}.
The first is the printed figure: the ratio 3³/7³ of the window volumes, that is, of the attention products alone.
Real modules at {growth.PATCHES[-1]}³ (Swin's windows padded to fit, its attention fused by PyTorch): PWA takes
{ratio["macs"]:.1%} of the multiply-accumulates, {ratio["seconds"]:.1%} of the time and {ratio["memory_mb"]:.1%} of
the memory of window attention.
"""
    (folder / "README.md").write_text(text, encoding="utf-8")


def growth_table(rows: list[dict[str, Any]]) -> str:
    head = "| attention | patch | MACs M | ms | memory MB |\n|---|---:|---:|---:|---:|\n"
    return head + "\n".join(
        f"| {r['attention']} | {r['patch']}³ | {r['macs'] / 1e6:.1f} | {1e3 * r['seconds']:.1f} "
        f"| {r['memory_mb']:.1f} |"
        for r in rows
    )


def exponent_table(slopes: dict[str, dict[str, float]]) -> str:
    head = "| attention | time | MACs |\n|---|---:|---:|\n"
    return head + "\n".join(
        f"| {kind} | {slopes['seconds'][kind]:.2f} | {slopes['macs'][kind]:.2f} |" for kind in growth.KINDS
    )


if __name__ == "__main__":
    main()
