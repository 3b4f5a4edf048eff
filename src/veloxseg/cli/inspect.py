"""Shows what trained networks look at: `veloxseg inspect attention -m RUN PREPARED -o OUT` writes JSON and a picture.

attention: mean attention distance of every stage and window. features: what the decoder tells apart, by t-SNE (needs
veloxseg[inspect]). distances: how much group convolutions distort distances, beside the Johnson-Lindenstrauss bound.
"""

import argparse
from pathlib import Path

from veloxseg.cli.numbers import few, number, size
from veloxseg.console import say

SUMMARY = "what a trained network looks at and tells apart"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("attention", "features", "distances"))
    parser.add_argument(
        "-m",
        "--model",
        type=Path,
        action="append",
        required=True,
        metavar="RUN",
        help="RUN or MODEL; give several to compare",
    )
    parser.add_argument("prepared", type=Path, metavar="PREPARED", help="a folder made by `veloxseg prepare`")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="folder for the results")
    parser.add_argument("--patients", type=few, default=8, metavar="N", help="unseen cases to look at (default 8)")
    parser.add_argument("--seed", type=number, default=0, metavar="S", help="of voxels and random weights (default 0)")
    parser.add_argument("--suv", type=size, default=4.0, metavar="SUV", help="high metabolism begins here (default 4)")
    parser.add_argument("--edge", type=size, metavar="MM", help="one length for all sides of a voxel, as in the paper")


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.inspect.run import Wanted, inspect

    wanted = Wanted(
        models=tuple(arguments.model),
        prepared=arguments.prepared,
        cases=arguments.patients,
        seed=arguments.seed,
        suv=arguments.suv,
        edge=arguments.edge,
    )
    say(f"picture: {inspect(arguments.what, wanted, arguments.output)}")
