"""Looks for everything that is wrong in a data set: files, geometry, labels, intensities, splits, alignment.

All problems are listed at once, with the case, the file and what to do. Exit code 2 if there are errors; warnings
alone give 0.
"""

import argparse

from veloxseg.cli.cases import CASES, add_selection, selection
from veloxseg.cli.numbers import few

SUMMARY = "find every problem of a data set before it is used"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", metavar="CASES", help=CASES)
    add_selection(parser)
    parser.add_argument("--json", metavar="FILE", help="also write the problems as JSON")
    parser.add_argument("--workers", type=few, metavar="N", help="processes (default: one per core, at most 8)")


def run(arguments: argparse.Namespace) -> int:
    from veloxseg.console import say
    from veloxseg.dataset.cases import open_cases
    from veloxseg.dataset.check import check_dataset
    from veloxseg.dataset.problems import print_problems
    from veloxseg.files import write_json
    from veloxseg.machine import default_workers

    dataset = open_cases(arguments.dataset, selection(arguments))
    say(f"{dataset.name}: {len(dataset.cases)} cases of {', '.join(dataset.modalities)} ({dataset.layout} layout)")
    report = check_dataset(dataset, default_workers() if arguments.workers is None else arguments.workers)
    print_problems(report)
    if arguments.json:
        write_json(arguments.json, report.to_json())
    return 2 if report.errors else 0
