"""Does the whole job on synthetic PET/CT: make data, check, prepare, train, predict unseen cases, evaluate, report.

Every step prints the command that does the same for your own data. Takes a few minutes on two CPU cores.
"""

import argparse
from pathlib import Path

SUMMARY = "the whole job on synthetic data, in a few minutes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", metavar="DIR", type=Path, default=Path("demo"), help="default: ./demo"
    )


def run(arguments: argparse.Namespace) -> int:
    from veloxseg.demo import demo_steps, run_demo

    return run_demo(arguments.output, demo_steps(arguments.output), quiet=arguments.quiet)
