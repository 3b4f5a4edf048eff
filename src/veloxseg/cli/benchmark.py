"""Compares VeloxSeg with other networks on this machine: parameters, MACs, patches/s, memory, side by side in one run.

All contenders run in turn in one process per thread count, pinned to as many cores; medians are reported. MONAI's
BasicUNet always takes part, as a yardstick (U).
"""

import argparse

from veloxseg.cli.numbers import few
from veloxseg.console import say
from veloxseg.errors import ConfigError
from veloxseg.runtimes import RUNTIMES

SUMMARY = "speed, size and memory beside other networks, on this machine"

DEFAULT_MODELS = "b,s,slim-unetr,segformer-3d,unet"
DEFAULT_RUNTIMES = "torch,openvino,native"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--models",
        default=DEFAULT_MODELS,
        help="presets and peers, by comma; 'all' for every one (default: %(default)s)",
    )
    parser.add_argument(
        "--runtimes", default=DEFAULT_RUNTIMES, help=f"of {', '.join(RUNTIMES)}, by comma (default: %(default)s)"
    )
    parser.add_argument("--threads", type=few, help="threads to run on (default: one, and all cores)")
    parser.add_argument("--json", metavar="FILE", help="write all figures, one object per row")


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.benchmark.models import MODELS
    from veloxseg.benchmark.report import COUNTER_NOTE, lines, machine_line
    from veloxseg.benchmark.run import benchmark
    from veloxseg.files import writable_folder, write_json

    if arguments.threads is not None and arguments.threads < 1:
        raise ConfigError(f"--threads {arguments.threads} must be at least 1")
    models = list(MODELS) if arguments.models == "all" else _names(arguments.models)
    runtimes = ["torch" if name == "eager" else name for name in _names(arguments.runtimes)]
    if arguments.json:
        from pathlib import Path

        writable_folder(Path(arguments.json).absolute().parent)
    rows = benchmark(models, runtimes, None if arguments.threads is None else [arguments.threads])
    if arguments.json:
        write_json(arguments.json, rows)
    say("\n" + machine_line(rows[0]["machine"]) + "\n")
    for line in lines(rows):
        say(line)
    say("\n" + COUNTER_NOTE)


def _names(text: str) -> list[str]:
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"{text!r} names nothing; give names with commas between them")
    return names
