"""Trains a table of the paper on your own data: `veloxseg study NAME PREPARED -o STUDY`. `study list` tells the names.

Every row is a plain `veloxseg train` with one thread; as many run at a time as there are cores. The cases that a
training does not see are predicted and scored: the test cases, or with --folds the held-out ones. STUDY then holds
table.md, table.json, figure.png and report.html. Stopped or killed, the same command goes on; more rows, seeds or folds
are added to what is there. NAME may be a .toml file with rows of your own (docs/paper.md shows one).
"""

import argparse
from pathlib import Path

from veloxseg.cli.numbers import count, number, size
from veloxseg.console import say

SUMMARY = "train a table of the paper on your own data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("name", metavar="NAME", help="a table's name, a .toml file, or list")
    parser.add_argument("prepared", metavar="PREPARED", nargs="?", help="a folder made by `veloxseg prepare`")
    parser.add_argument("-o", "--output", metavar="STUDY", type=Path, help="the study's folder")
    parser.add_argument("--rows", nargs="+", default=[], metavar="ROW", help="these rows alone (`study list NAME`)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=count, metavar="N", help="steps of each training, the last weights are kept")
    length.add_argument("--minutes", type=size, metavar="M", help="minutes of each training, as `train --max-minutes`")
    parser.add_argument("--seeds", type=number, nargs="+", default=[0], metavar="S", help="default 0")
    parser.add_argument("--folds", nargs="+", default=[], metavar="K", help="all, or numbers; default: the 6:2:2 split")
    parser.add_argument(
        "--external", type=Path, metavar="CASES", help="other labelled cases, predicted by every training"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="settings of every row, as of `train`"
    )
    parser.add_argument(
        "--workers", type=number, metavar="N", help="trainings at a time, one core each (default: one for each core)"
    )


def run(arguments: argparse.Namespace) -> int:
    from veloxseg.errors import ConfigError

    if arguments.name == "list":
        list_studies(arguments.prepared)
        return 0
    if arguments.prepared is None or arguments.output is None:
        raise ConfigError(
            f"study {arguments.name} needs PREPARED and -o STUDY; `veloxseg study list` tells what there is"
        )
    from veloxseg.study.run import Request, run_study
    from veloxseg.train.settings import parse_overrides

    request = Request(
        table=arguments.name,
        prepared=Path(arguments.prepared),
        output=arguments.output,
        rows=tuple(arguments.rows),
        seeds=tuple(dict.fromkeys(arguments.seeds)),
        folds=tuple(arguments.folds),
        steps=arguments.steps,
        minutes=arguments.minutes,
        settings=parse_overrides(arguments.set),
        external=arguments.external,
        workers=arguments.workers,
    )
    report, failures = run_study(request)
    say((arguments.output / "table.md").read_text(encoding="utf-8"))
    say(f"report: {report}")
    for name, message in failures.items():
        say(f"failed: {name}: {message}")
    return 2 if failures else 0


def list_studies(name: str | None) -> None:
    """All that the paper shows with the command for it; or the rows of one table with their settings."""
    from veloxseg.study.contents import CONTENTS
    from veloxseg.study.tables import find_table
    from veloxseg.train.settings import setting_text

    if name is None:
        for entry in CONTENTS:
            commands = entry.command.replace("; ", "\n    ")
            say(f"{entry.place}\n    {entry.what}\n    {commands}")
        say("\n`veloxseg study list NAME` tells the rows of a table and their settings")
        return
    table = find_table(name, ("ct", "pet"))
    say(f"{table.title} ({table.place})" if table.place else table.title)
    for row in table.rows:
        settings = " ".join(f"{key}={setting_text(value)}" for key, value in table.settings_of(row).items())
        say(f"  {row.name}: {row.title}\n      {settings or 'VeloxSeg-B as it is'}")
        if row.prune is not None:
            say(f"      pruned ({row.prune.what}) from {row.prune.of} until it is as large as {row.prune.to}")
