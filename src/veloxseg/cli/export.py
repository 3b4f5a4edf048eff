"""Writes a model for other runtimes: a folder with the graph, the preprocessing plan and a parity report.

`veloxseg predict -m DIR` takes the folder as it is, without torch (native, openvino, onnx).
"""

import argparse
from pathlib import Path

SUMMARY = "write a model as ONNX, OpenVINO, MONAI bundle or plain weights, with a parity check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-m", "--model", required=True, metavar="MODEL", help="a MODEL or RUN folder")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="DIR", help="a new folder")
    parser.add_argument(
        "--format",
        required=True,
        choices=("native", "openvino", "onnx", "monai-bundle", "torch"),
        help="what to write",
    )


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.console import say
    from veloxseg.infer.export import export

    say(f"written to {export(arguments.model, arguments.output, arguments.format)}")
