"""Writes a model for other runtimes: a folder with the graph, the preprocessing plan and a parity report.

`veloxseg predict -m DIR` takes the folder of a runtime as it is, and without torch unless it is that of torch itself.
"""

import argparse
from pathlib import Path

from veloxseg.runtimes import BUNDLE, RUNTIMES

SUMMARY = "write a model as ONNX, OpenVINO, MONAI bundle or plain weights, with a parity check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--model", required=True, metavar="MODEL", help="a MODEL or RUN folder")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="DIR", help="a new folder")
    parser.add_argument("--format", required=True, choices=(*RUNTIMES, BUNDLE), help="what to write")


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.console import say
    from veloxseg.runtimes.export import export

    say(f"written to {export(arguments.model, arguments.output, arguments.format)}")
