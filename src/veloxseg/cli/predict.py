"""Segments scans: masks on the scans' own grid, with a JSON that says how each was made.

CASES is a data set in any layout, a .csv or .json list, a PREPARED folder (of which the test cases are taken, unless
--split says otherwise), a folder of scans (<case>_0000.nii.gz, ... or <case>.nii.gz), one scan, or one case as
-i ct=FILE -i pet=FILE, where FILE may be a DICOM folder. Cases that are done are skipped, so a stopped run can be
started again.
"""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from veloxseg.cli.cases import CASES, add_selection, selection
from veloxseg.cli.numbers import amount, count, few, number, share, size
from veloxseg.image.formats import is_output_name, output_choices
from veloxseg.runtimes import RUNTIMES

if TYPE_CHECKING:
    from veloxseg.model_folder import ModelFolder

SUMMARY = "segment scans: masks on the scans' own grid"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m",
        "--model",
        action="append",
        required=True,
        metavar="MODEL",
        help="folder; several, or a RUN of --folds, are an ensemble",
    )
    parser.add_argument(
        "-i", "--input", action="append", required=True, metavar="CASES", help=f"{CASES}; or MODALITY=FILE"
    )
    parser.add_argument(
        "-o", "--output", required=True, type=Path, metavar="OUTPUT", help="a folder; for one case also a file"
    )
    add_selection(parser)
    parser.add_argument("--runtime", choices=("auto", *RUNTIMES), default="auto", help="default: the fastest here")
    parser.add_argument("--threads", type=few, metavar="N", help="default: all cores; with --ray 1 for each worker")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or mps; the latter two by torch (default cpu)")
    parser.add_argument(
        "--overlap", type=share, default=0.5, metavar="F", help="of neighbouring windows, 0 to 1 (default 0.5)"
    )
    parser.add_argument(
        "--mirror",
        action=argparse.BooleanOptionalAction,
        help="mean over 8 mirror images, 8 times the work; default: as the model says",
    )
    parser.add_argument("--max-ram", type=size, metavar="GB", help="stay below; refuse what cannot")
    parser.add_argument("--probabilities", action="store_true", help="write them too")
    parser.add_argument("--remove-smaller", type=amount, default=0.0, metavar="ML", help="drop smaller components")
    parser.add_argument("--keep-largest", action="store_true", help="keep one component per label")
    parser.add_argument(
        "--format", choices=tuple(output_choices()), help="default: as the scan; a DICOM scan gives a DICOM SEG"
    )
    parser.add_argument("--preview", action="store_true", help="write a picture of every case")
    parser.add_argument("--statistics", action="store_true", help="write volume, SUV and TLG per lesion")
    parser.add_argument(
        "--series", action="append", default=[], metavar="NAME=X", help="which series of a DICOM folder to read"
    )
    parser.add_argument(
        "--volume", action="append", default=[], metavar="NAME=N", help="which volume of a 4-D file to read"
    )
    parser.add_argument("--num-parts", type=count, default=1, metavar="N", help="share a folder among N jobs")
    parser.add_argument("--part-id", type=number, default=0, metavar="K", help="this job does part K of 0..N-1")
    parser.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="spread a folder over a Ray cluster: auto (this node's), HOST:PORT, or local for a new one here",
    )


def run(arguments: argparse.Namespace) -> int:
    from veloxseg.console import say
    from veloxseg.files import writable_folder
    from veloxseg.machine import NOTICE
    from veloxseg.model_folder import ModelFolder, members
    from veloxseg.predict.batch import Wanted, describe, largest_estimate, predict_cases, predict_one
    from veloxseg.predict.cluster import Job, predict_on_cluster
    from veloxseg.predict.extras import EXTRAS
    from veloxseg.predict.inputs import find_cases, part_of, with_picks
    from veloxseg.predict.predictor import Options, Predictor

    if arguments.ray:
        check_ray(arguments)
    models = [ModelFolder.open(member) for model in arguments.model for member in members(model)]
    plan = models[0].plan
    cases = find_cases(arguments.input, plan.names, selection(arguments))
    cases = part_of(cases, arguments.num_parts, arguments.part_id)
    cases = with_picks(cases, arguments.series, arguments.volume, plan.names)
    one_file = len(cases) == 1 and is_output_name(arguments.output.name)
    options = Options(**{item.name: getattr(arguments, item.name) for item in fields(Options)})
    wanted = Wanted(
        suffix=output_choices()[arguments.format] if arguments.format else None,
        extras=tuple(name for name in EXTRAS if getattr(arguments, name)),
    )
    say(NOTICE)
    tell_knowledge(models)
    if arguments.ray:
        job = Job(
            models=tuple(model.path.absolute() for model in models),
            runtime=arguments.runtime,
            threads=1 if arguments.threads is None else arguments.threads,
            options=options,
            output=arguments.output.absolute(),
            wanted=wanted,
        )
        return list_failures(predict_on_cluster(arguments.ray, job, cases), len(cases))
    writable_folder(arguments.output.parent if one_file else arguments.output)
    predictor = Predictor(
        [model.path for model in models],
        runtime=arguments.runtime,
        threads=arguments.threads,
        device=arguments.device,
        options=options,
    )
    say(describe(predictor, cases, largest_estimate(predictor, cases)))
    if one_file:
        predict_one(predictor, cases[0], arguments.output, wanted, window_progress)
        return 0
    failures = predict_cases(predictor, cases, arguments.output, wanted, window_progress)
    return list_failures(failures, len(cases))


def tell_knowledge(models: "list[ModelFolder]") -> None:
    """Says once what cannot be known about seen and unseen cases."""
    from veloxseg.console import say

    for model in models:
        if model.learning is None:
            say(f"{model.path} does not know what it was trained on, so seen and unseen cases cannot be told apart")
        elif not model.learning.by_content:
            say(f"{model.path} knows its cases by name alone: a renamed training case will not be noticed")


def check_ray(arguments: argparse.Namespace) -> None:
    """What a cluster cannot do is said before anything is read."""
    from veloxseg.errors import ConfigError

    if arguments.ray.startswith("ray://"):
        raise ConfigError(
            f"--ray {arguments.ray} is for Ray's client, which Ray Data does not run through; start the program on a "
            "node of the cluster with --ray auto"
        )
    if arguments.device != "cpu":
        raise ConfigError(f"--ray computes on the cpu, not on {arguments.device}; leave --device out")
    if is_output_name(arguments.output.name):
        raise ConfigError(f"--ray writes to a folder, and {arguments.output} names a file; give a folder")


def list_failures(failures: dict[str, str], count: int) -> int:
    """Names what failed, last of all, where it is seen; returns the exit code."""
    from veloxseg.console import warn
    from veloxseg.errors import alike, some

    if not failures:
        return 0
    warn(f"{len(failures)} of {count} cases failed:")
    for message, names in alike(failures).items():
        warn(f"  {names[0]}: {message}" if len(names) == 1 else f"  {len(names)} times ({some(names)}): {message}")
    return 2


def window_progress(name: str):  # type: ignore[no-untyped-def]
    """A progress bar over the windows of a case."""
    from collections.abc import Iterator

    from veloxseg.console import progress

    bars: list[Iterator[int]] = []

    def step(done: int, total: int) -> None:
        if not bars:
            bars.append(iter(progress(range(total), name, total)))
        next(bars[0], None)
        if done == total:
            next(bars[0], None)

    return step
