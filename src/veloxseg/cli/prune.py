"""Makes a trained network smaller by l2 pruning and trains it again: `veloxseg prune -m RUN PREPARED -o RUN2`.

The lightest hidden units (ffn) or channels of the convolution stream (channels) are taken away, so that tensors really
shrink. RUN2 is a training that starts from what is left, with the recipe of RUN unless it is changed here.
"""

import argparse
from pathlib import Path
from typing import Any

from veloxseg.cli.numbers import count, size
from veloxseg.console import say

SUMMARY = "make a trained network smaller, and train it again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--model", type=Path, required=True, metavar="RUN", help="a RUN or MODEL of VeloxSeg")
    parser.add_argument("prepared", type=Path, metavar="PREPARED", help="a folder made by `veloxseg prepare`")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="RUN2", help="the new training's folder")
    parser.add_argument("--what", choices=("ffn", "channels"), default="ffn", help="what is pruned (default ffn)")
    parser.add_argument("--to", required=True, metavar="SIZE", help="parameters to keep: 1.2M, 900k or 60%%")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=size, metavar="M", help="minutes of training, as `train --max-minutes`")
    length.add_argument("--epochs", type=count, metavar="N", help="epochs of training (default: those of RUN)")
    length.add_argument("--no-training", action="store_true", help="only prune: -o is then a MODEL")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="other settings, as of `train`"
    )
    parser.add_argument("--continue", dest="resume", action="store_true", help="go on with the training in RUN2")


def run(arguments: argparse.Namespace) -> int:
    from veloxseg.files import read_json
    from veloxseg.train.engine import Stopped
    from veloxseg.train.prune import prune_and_train, prune_model, widths_lines
    from veloxseg.train.settings import parse_overrides

    changes: dict[str, Any] = parse_overrides(arguments.set)
    changes |= {} if arguments.minutes is None else {"max_minutes": arguments.minutes}
    changes |= {} if arguments.epochs is None else {"epochs": arguments.epochs}
    pruned = arguments.output if arguments.no_training else arguments.output / "pruned"
    try:
        if arguments.no_training:
            prune_model(arguments.model, pruned, arguments.what, arguments.to)
        else:
            prune_and_train(
                arguments.model,
                arguments.prepared,
                arguments.output,
                arguments.what,
                arguments.to,
                changes,
                resume=arguments.resume,
            )
    except Stopped as stopped:
        say(str(stopped))
        return 130
    record = read_json(pruned / "widths.json")
    say(f"{record['parameters_before'] / 1e6:.3f} M parameters before, {record['parameters'] / 1e6:.3f} M now")
    for line in widths_lines(record):
        say(line)
    return 0
