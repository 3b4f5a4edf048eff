"""Trains a network on prepared data: `veloxseg train PREPARED -o RUN`. The recipe is the paper's unless changed.

Several devices: `--devices 4` starts one process for each GPU (on a CPU each). Several machines: on each of them
`torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29500 $(which veloxseg) train
PREPARED -o RUN --devices 4 --nodes 2`. SLURM: `srun --nodes 2 --ntasks-per-node 4 veloxseg train PREPARED -o RUN
--devices 4 --nodes 2`. The batch is shared by all processes, so give it by --set batch=…
"""

import argparse
from pathlib import Path
from typing import Any

from veloxseg.cli.numbers import count, few, number, size
from veloxseg.console import say, warn
from veloxseg.tasks import RECIPE, TASKS, find_task

NAMED = ("model", "init", "epochs", "max_minutes", "fold", "precision")  # settings that are options, too

SUMMARY = "train a network on prepared data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter  # keeps the paragraphs of the text above
    parser.add_argument("prepared", metavar="PREPARED", type=Path, help="a folder made by `veloxseg prepare`")
    parser.add_argument("-o", "--output", metavar="RUN", type=Path, required=True, help="the training's folder")
    parser.add_argument("--model", metavar="NAME", help="b (default), s, l, b+, c, or a peer such as slim-unetr")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change settings of recipe or network: learning_rate=1e-3 group_sizes=4,8,8,16; an unknown name lists all",
    )
    parser.add_argument(
        "--as", dest="task", choices=TASKS, help="train as the paper did on this data set, prepared by `prepare --as`"
    )
    parser.add_argument(
        "--config", metavar="FILE", help="settings from a .toml file, or the settings.json of a RUN to repeat it"
    )
    parser.add_argument(
        "--init", metavar="MODEL", help="fine-tune: start from the weights of a MODEL or RUN, wherever they fit"
    )
    parser.add_argument("--epochs", type=count, metavar="N", help="default 300, as in the paper")
    parser.add_argument(
        "--max-minutes",
        type=size,
        metavar="N",
        help="a short training for a CPU: higher rate, smaller batch, no teachers, a schedule that ends in this time",
    )
    parser.add_argument(
        "--fold", type=number, metavar="K", help="a fold of cross-validation, instead of the 6:2:2 split"
    )
    parser.add_argument(
        "--folds",
        nargs="+",
        metavar="K",
        help="all, or numbers: train these folds in turn, predict each case by the model that has not seen it, report; "
        "RUN is then their ensemble",
    )
    parser.add_argument(
        "--continue",
        dest="resume",
        action="store_true",
        help="go on with the training in RUN, if there is one; more --epochs or --max-minutes in all extend it",
    )
    parser.add_argument("--precision", metavar="P", help="32-true (default), or bf16-mixed on a GPU")
    parser.add_argument("--accelerator", default="auto", choices=("auto", "cpu", "gpu", "mps"))
    parser.add_argument("--devices", default="1", metavar="N", help="processes on this machine, one per device")
    parser.add_argument("--nodes", type=few, default=1, metavar="N", help="machines (default 1)")


def run(arguments: argparse.Namespace) -> int:
    from veloxseg.extras import require

    require("train", "training")
    from veloxseg.train.settings import parse_overrides, read_config

    settings: dict[str, Any] = as_published(arguments.task, arguments.prepared) if arguments.task is not None else {}
    settings |= read_config(arguments.config) if arguments.config is not None else {}
    named = {name: getattr(arguments, name) for name in NAMED}
    settings |= {name: value for name, value in named.items() if value is not None}
    settings |= parse_overrides(arguments.set)

    from veloxseg.train.engine import Stopped

    if arguments.config is not None:
        _warn_of_other_data(arguments.config, arguments.prepared)

    try:
        return train_all_folds(arguments, settings) if arguments.folds else train_once(arguments, settings)
    except Stopped as stopped:
        say(str(stopped))
        return 130


def train_once(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    from veloxseg.train.loop import train

    train(
        arguments.prepared,
        arguments.output,
        settings,
        resume=arguments.resume,
        accelerator=arguments.accelerator,
        devices=int(arguments.devices) if _is_count(arguments.devices) else arguments.devices,
        nodes=arguments.nodes,
    )
    return 0


def train_all_folds(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    from veloxseg.cli.predict import list_failures
    from veloxseg.errors import ConfigError
    from veloxseg.train.folds import train_folds

    if settings.pop("fold", None) is not None and arguments.fold is not None:
        raise ConfigError("--fold and --folds are both given; give one")
    if arguments.devices != "1" or arguments.nodes != 1:
        raise ConfigError(
            "--folds trains on one device; with several, train each by --fold K -o RUN/fold_K, then --folds --continue"
        )
    failures, cases = train_folds(
        arguments.prepared,
        arguments.output,
        settings,
        arguments.folds,
        resume=arguments.resume,
        accelerator=arguments.accelerator,
    )
    return list_failures(failures, cases)


def _warn_of_other_data(config: str, prepared: Path) -> None:
    from veloxseg.prepare.store import Prepared
    from veloxseg.train.run_folder import data_hash
    from veloxseg.train.settings import recorded_data

    data = recorded_data(config)
    if data is not None and data != data_hash(Prepared.open(prepared)):
        warn(f"{config} was recorded on other data than {prepared}; the training will not be the same")


def as_published(name: str, prepared: Path) -> dict[str, Any]:
    """The paper's settings for a task. Says what is left open there, and warns if the data were prepared otherwise."""
    from veloxseg.prepare.store import Prepared

    task, plan = find_task(name), Prepared.open(prepared).plan
    say(f"{task.title} as published; what the paper leaves open, and what we chose:")
    for line in RECIPE:
        say(f"  - {line}")
    differences = [
        f"{what} {found} instead of {expected}"
        for what, found, expected in (
            ("modalities", ", ".join(plan.names), ", ".join(task.modalities)),
            ("spacing", plan.spacing, task.spacing),
            ("patch", plan.patch, task.patch),
            ("outputs", len(plan.outputs), task.classes),
        )
        if found != expected
    ]
    if differences:
        warn(f"{prepared} is not {name} as published: {', '.join(differences)}; `prepare --as {name}` makes it so")
    return dict(task.settings)


def _is_count(text: str) -> bool:
    return text.isdecimal() and len(text) < 10  # Python refuses to read numbers of thousands of digits
