"""Scores predictions against labels: Dice, HD95, NSD, precision, recall, volumes and lesions, per case and structure.

Cases match by name, whatever the type of file (.nii.gz, .nii, .nrrd, .mha, DICOM SEG). Cases that the model was
trained or validated on are scored apart: the figures are those of unseen cases. Of a PREPARED folder or a data set with
labelled test cases, these are scored unless --split says otherwise. Writes report.html, metrics.json, metrics.csv and
per-lesion.csv. With several -p, the methods are compared case by case with the first one and tested. Pictures are of
the worst, median and best case, or of those that --cases names.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from veloxseg.cli.cases import CASES, add_selection, selection
from veloxseg.cli.numbers import few, size

SUMMARY = "score predictions against labels, with a report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p", "--predictions", action="append", required=True, metavar="[NAME=]FOLDER",
        help="folder of predicted label maps, by whatever made them; give it several times to compare methods",
    )  # fmt: skip
    parser.add_argument(
        "-l", "--labels", type=Path, required=True, metavar="CASES", help=f"folder of true label maps, or {CASES}"
    )
    add_selection(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="REPORT", help="folder for the report")
    parser.add_argument(
        "--regions", nargs="+", metavar="NAME=VALUES",
        help="structures to score, such as WT=1,2,4 TC=1,4 ET=4 (unscored=3 leaves a value out), or a known set: "
        "brats, brats2016, brats2023, msd-brain, hecktor",
    )  # fmt: skip
    parser.add_argument(
        "--images", type=Path, metavar="FOLDER", help="scans to show behind the masks (a data set has its own)"
    )
    parser.add_argument(
        "--behind",
        metavar="MODALITY",
        help="which of a case's scans to show behind the masks (default ct, t1ce, flair)",
    )
    parser.add_argument(
        "--names", nargs="+", metavar="NAME", help="names of the methods, one per -p; or give -p NAME=FOLDER"
    )
    parser.add_argument(
        "--tolerance", type=size, metavar="MM",
        help="how far a surface may be off for NSD (default 2 mm, or the in-plane side of a voxel if that is larger; "
        "never the thickness of a slice)",
    )  # fmt: skip
    parser.add_argument(
        "--sizes", action="store_true",
        help="show what --remove-smaller of predict would do at several sizes (with --split validation always)",
    )  # fmt: skip
    parser.add_argument("--threads", type=few, default=1, metavar="N", help="cases scored at the same time (default 1)")


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.console import progress, say, warn
    from veloxseg.evaluate import evaluate_folder, write_report
    from veloxseg.evaluate.component_sizes import print_sizes
    from veloxseg.evaluate.labels import find_images, parse_regions
    from veloxseg.evaluate.report.pictures import drawn_on
    from veloxseg.evaluate.report.tables import report_folder
    from veloxseg.evaluate.terminal import print_policy, print_tables

    report_folder(arguments.output)
    images = None if arguments.images is None else find_images(arguments.images)  # a wrong folder is said at once
    if images is not None and arguments.behind is not None:
        drawn_on(images, arguments.behind)
    folders, names = _methods(arguments.predictions, arguments.names)
    evaluation = evaluate_folder(
        folders,
        arguments.labels,
        selection=selection(arguments),
        regions=parse_regions(arguments.regions) if arguments.regions else None,
        names=names,
        tolerance_mm=arguments.tolerance,
        threads=arguments.threads,
        progress=lambda cases, total: progress(cases, "scoring", total),
    )
    for line in evaluation.warning_lines():
        warn(line)
    print_tables(evaluation)
    print_policy(evaluation)
    if arguments.sizes or arguments.split == "validation":
        print_sizes(evaluation)
    if arguments.behind is not None:
        chosen = drawn_on(evaluation.image_files if images is None else images, arguments.behind)
        evaluation, arguments.images = replace(evaluation, image_files=chosen), None
    say(f"report: {write_report(evaluation, arguments.output, arguments.images, cases=arguments.cases)}")


def _methods(given: list[str], names: list[str] | None) -> tuple[list[Path], list[str] | None]:
    """Folders and names of the methods, from `-p NAME=FOLDER` or from --names; None if they are named by no one."""
    from veloxseg.errors import ConfigError

    parts = [("", text) if Path(text).exists() else _split(text) for text in given]
    folders = [Path(folder) for _, folder in parts]
    if not any(name for name, _ in parts):
        return folders, names
    if names is not None:
        raise ConfigError("methods are named by --names and by -p NAME=FOLDER; do it in one way")
    return folders, [name or folder.resolve().name for (name, _), folder in zip(parts, folders, strict=True)]


def _split(text: str) -> tuple[str, str]:
    name, equals, folder = text.partition("=")
    return (name, folder) if equals else ("", text)
