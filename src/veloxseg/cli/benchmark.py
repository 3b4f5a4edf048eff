"""Compares VeloxSeg with other networks on this machine: parameters, MACs, patches/s, memory, side by side in one run.

All contenders run in turn in one process per thread count, pinned to as many cores; medians are reported. MONAI's
BasicUNet always takes part, as a yardstick (U). `--count-only --task all` prints the paper's cost tables: parameters
and MACs of all its networks on its three data sets, beside the published ones, in seconds and without timing anything.
"""

import argparse
from pathlib import Path
from typing import Any

from veloxseg.cli.numbers import few, side
from veloxseg.console import say
from veloxseg.errors import ConfigError
from veloxseg.runtimes import RUNTIMES
from veloxseg.tasks import TASKS

SUMMARY = "speed, size and memory beside other networks, on this machine"

LIGHT_PEERS = "slim-unetr,segformer-3d,unet"
DEFAULT_MODELS = f"b,s,{LIGHT_PEERS}"
DEFAULT_RUNTIMES = "torch,openvino,native"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models",
        help=f"presets and peers, by comma; 'all' for every one (default: {DEFAULT_MODELS}; none with -m; the paper's "
        "with --count-only)",
    )
    parser.add_argument(
        "-m", dest="own", action="append", default=[], metavar="MODEL", help="an own MODEL or RUN, as often as wanted"
    )
    parser.add_argument(
        "--task", choices=[*TASKS, "all"], help="modalities, classes and patch of a data set of the paper"
    )
    parser.add_argument(
        "--patch", type=side, nargs=3, metavar=("X", "Y", "Z"), help="of the named models (default 96 96 96)"
    )
    parser.add_argument("--count-only", action="store_true", help="parameters and MACs only, beside the published ones")
    parser.add_argument(
        "--runtimes", default=DEFAULT_RUNTIMES, help=f"of {', '.join(RUNTIMES)}, by comma (default: %(default)s)"
    )
    parser.add_argument("--threads", type=few, help="threads to run on (default: one, and all cores)")
    parser.add_argument("--batch", type=few, default=1, metavar="N", help="also N patches at a time, in torch")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or mps; other than cpu in torch only")
    parser.add_argument("--training", action="store_true", help="also time and memory of a training step of batch 2")
    parser.add_argument("--json", metavar="FILE", help="write all figures, one object per row")
    parser.add_argument("--plot", metavar="DIR", type=Path, help="write pictures of throughput, memory and cost")
    parser.add_argument(
        "--dice", metavar="STUDY", type=Path, help="set Dice of this study (peers, scaling) against speed and size"
    )


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.extras import require
    from veloxseg.files import writable_folder, write_json

    require("train", "the benchmark", ["torch"])
    if arguments.json:
        writable_folder(Path(arguments.json).absolute().parent)
    if arguments.plot:
        writable_folder(arguments.plot)
    if arguments.dice and (arguments.count_only or not arguments.plot):
        raise ConfigError("--dice is for a picture of speed; give --plot DIR too, and no --count-only")
    rows = _count(arguments) if arguments.count_only else _measure(arguments)
    if arguments.json:
        write_json(arguments.json, rows)


def _measure(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from veloxseg.benchmark.dice import read_dice
    from veloxseg.benchmark.models import own_models
    from veloxseg.benchmark.report import COUNTER_NOTE, lines, machine_line
    from veloxseg.benchmark.run import benchmark

    if arguments.task == "all":
        raise ConfigError("--task all is for --count-only; measure one task at a time")
    dice = None if arguments.dice is None else read_dice(arguments.dice)
    light = DEFAULT_MODELS if arguments.task is None else f"{TASKS[arguments.task].model},{LIGHT_PEERS}"
    rows = benchmark(
        _named(arguments, light if dice is None else ",".join(dice)),
        ["torch" if name == "eager" else name for name in _names(arguments.runtimes)],
        None if arguments.threads is None else [arguments.threads],
        own=own_models(arguments.own),
        task=arguments.task,
        patch=_patch(arguments),
        batches=(1, arguments.batch) if arguments.batch > 1 else (1,),
        training=arguments.training,
        device=arguments.device,
    )
    say("\n" + machine_line(rows[0]["machine"]) + "\n")
    for line in lines(rows):
        say(line)
    say("\n" + COUNTER_NOTE)
    if arguments.plot:
        from veloxseg.benchmark.plots import plot_all

        say("pictures: " + ", ".join(map(str, plot_all(rows, arguments.plot, dice))))
    return rows


def _count(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    from veloxseg.benchmark.counts import cost_lines, cost_rows
    from veloxseg.benchmark.models import find_model, own_models
    from veloxseg.model.costs import WHY_THEY_DIFFER
    from veloxseg.peers.published import PUBLISHED

    found: list[dict[str, Any]] = []
    for task in TASKS if arguments.task == "all" else [arguments.task]:
        names = _named(arguments, ",".join(PUBLISHED[task]) if task else "all")
        models = [find_model(name, task, _patch(arguments)) for name in names] + own_models(arguments.own)
        rows = cost_rows(models, task)
        sizes = {f"{'×'.join(map(str, row['input']))}, {row['classes']} classes" for row in rows}
        say(f"\n{TASKS[task].title if task else 'Costs'} ({'; '.join(sorted(sizes))})")
        for line in cost_lines(rows):
            say(line)
        if arguments.plot:
            from veloxseg.benchmark.plots import plot_cost

            plot_cost(rows, arguments.plot / f"cost{'-' + task if task else ''}.png")
        found += rows
    say("\n" + WHY_THEY_DIFFER)
    return found


def _named(arguments: argparse.Namespace, default: str) -> list[str]:
    """The models that are called by name; with an own MODEL there are none by default."""
    from veloxseg.benchmark.models import MODELS

    if arguments.models is None and arguments.own:
        return []
    text = arguments.models or default
    return list(MODELS) if text == "all" else _names(text)


def _patch(arguments: argparse.Namespace) -> tuple[int, int, int] | None:
    return tuple(arguments.patch) if arguments.patch else None


def _names(text: str) -> list[str]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"{text!r} names nothing; give names with commas between them")
    return names
