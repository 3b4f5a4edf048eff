"""Writes a synthetic multimodal data set, as files: PET/CT with lesions, or (brats) brain MR with tumours.

brats2016 has other patients than brats, seen by an older scanner: other contrasts, more noise, an uneven field, larger
voxels. A model that was trained on brats meets there what a foreign hospital would bring.
"""

import argparse
from pathlib import Path

from veloxseg.cli.numbers import count, number, side
from veloxseg.console import say

SUMMARY = "write a synthetic PET/CT or brain MR data set, as files"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", type=Path, help="a new folder")
    parser.add_argument("--cases", type=count, required=True, metavar="N", help="patients to make")
    parser.add_argument(
        "--test-cases", type=number, default=0, metavar="N", help="unseen patients besides (imagesTs, labelsTs)"
    )
    parser.add_argument(
        "--seed", type=number, default=0, metavar="S", help="the same seed gives the same files (default 0)"
    )
    parser.add_argument(
        "--size",
        type=side,
        nargs=3,
        metavar=("X", "Y", "Z"),
        help="voxels of CT or MR; the body always fits, so fewer are coarser (default 96 64 192, brats 96 112 88, "
        "brats2016 84 100 48)",
    )
    parser.add_argument(
        "--layout",
        choices=("nnunet", "brats", "brats2016", "autopet", "hecktor"),
        default="nnunet",
        help="folders and names as the public data set has them; brats and brats2016 are brain MR, the others PET/CT",
    )


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.machine import default_workers
    from veloxseg.phantom.write import write_dataset

    folder = write_dataset(
        arguments.out,
        arguments.layout,
        arguments.cases,
        seed=arguments.seed,
        size=tuple(arguments.size) if arguments.size else None,
        test_cases=arguments.test_cases,
        workers=default_workers(),
    )
    say(f"{arguments.cases + arguments.test_cases} synthetic cases, layout {arguments.layout}, in {folder}")
