"""Segments cases by SAM-Med3D, zero-shot: clicks are sampled from the label, as its authors evaluate it.

The masks are a method for `veloxseg evaluate -p sam-med3d=MASKS`. They rest on clicks that a label gave, so their
scores say what a user's clicks could reach, not what the network finds alone. WEIGHTS is the file that the authors
released (sam_med3d_turbo.pth, github.com/uni-medical/SAM-Med3D), or a .safetensors file of the same tensors.
"""

import argparse
from pathlib import Path

from veloxseg.cli.cases import CASES, add_selection, selection
from veloxseg.cli.numbers import few, number
from veloxseg.console import progress, say

SUMMARY = "masks by SAM-Med3D from clicks that are sampled from labels"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cases_path", metavar="CASES", help=CASES)
    parser.add_argument("-w", "--weights", type=Path, required=True, metavar="WEIGHTS", help="of SAM-Med3D, on disk")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MASKS", help="folder for the masks")
    parser.add_argument("--modality", required=True, metavar="NAME", help="the scan that it sees, such as ct or pet")
    parser.add_argument("--clicks", type=few, default=1, metavar="N", help="on each structure (default 1)")
    parser.add_argument("--seed", type=number, default=0, metavar="S", help="of the clicks (default 0)")
    add_selection(parser)


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.dataset.cases import open_cases
    from veloxseg.extras import require
    from veloxseg.modality import canonical_name
    from veloxseg.study.prompted import load_sam, prompt_cases

    require("train", "SAM-Med3D", ["torch"])
    dataset = open_cases(arguments.cases_path, selection(arguments))
    masks = prompt_cases(
        load_sam(arguments.weights),
        dataset,
        arguments.output,
        modality=canonical_name(arguments.modality),
        clicks=arguments.clicks,
        seed=arguments.seed,
    )
    done = list(progress(masks, "prompting", len(dataset.cases)))
    say(f"{len(done)} masks in {arguments.output}; veloxseg evaluate -p sam-med3d={arguments.output} scores them")
