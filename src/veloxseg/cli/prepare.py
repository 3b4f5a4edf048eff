"""From a data set as it was unpacked to training-ready cases: fingerprint, plan, preprocessing.

CASES is a folder (nnU-Net, MSD, BraTS, AutoPET or HECKTOR) or a list of cases (.csv, .json). A second run
continues where the first stopped. All decisions are in PREPARED/plan.json. With --as they are those of the paper.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from veloxseg.cli.cases import CASES, add_selection, selection
from veloxseg.cli.numbers import few, millimetres, number, side
from veloxseg.errors import ConfigError
from veloxseg.tasks import TASKS, find_task

if TYPE_CHECKING:
    from veloxseg.dataset.dataset import Dataset
    from veloxseg.prepare.prepare import Settings
    from veloxseg.tasks import Task

SUMMARY = "fingerprint, plan and preprocess a data set"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", metavar="CASES", help=CASES)
    parser.add_argument("-o", "--output", metavar="PREPARED", required=True, help="folder for the prepared cases")
    add_selection(parser)
    parser.add_argument(
        "--as",
        dest="task",
        choices=TASKS,
        help="as the paper prepared it: spacing, patch, labels, split; what it leaves open is said",
    )
    parser.add_argument(
        "--merge",
        action="append",
        default=[],
        metavar="NAME=A,B",
        help="make one label of several, such as tumour=GTVp,GTVn",
    )
    parser.add_argument(
        "--regions",
        nargs="+",
        metavar="NAME=A,B",
        help="overlapping targets, one sigmoid each: WT=1,2,4 TC=1,4 ET=4; 'none' for a soft-max over the labels, "
        "'given' for the data set's own (default)",
    )
    parser.add_argument(
        "--spacing", type=millimetres, nargs=3, metavar=("X", "Y", "Z"), help="millimetres (default: median)"
    )
    parser.add_argument("--patch", type=side, nargs=3, metavar=("X", "Y", "Z"), help="voxels, multiples of 32")
    parser.add_argument("--reference", metavar="NAME", help="modality whose grid is used (default: the label's)")
    parser.add_argument(
        "--register",
        default="none",
        choices=["none", "rigid", "affine"],
        help="align modalities by mutual information first",
    )
    parser.add_argument(
        "--normalise",
        action="append",
        default=[],
        metavar="NAME=SCHEME",
        help="clip_zscore, zscore_body, log_body or none, for one modality (default: clip_zscore for CT, log_body for "
        "PET, zscore_body else; the paper's PET is zscore_body)",
    )
    parser.add_argument("--seed", type=number, default=0, help="of the 6:2:2 split and the folds (default 0)")
    parser.add_argument(
        "--folds",
        type=count_or_file,
        default=5,
        metavar="K",
        help="folds for cross-validation (default 5), or nnU-Net's splits_final.json",
    )
    parser.add_argument(
        "--plans", type=Path, metavar="FILE", help="take spacing and normalisation from nnU-Net's nnUNetPlans.json"
    )
    parser.add_argument("--workers", type=number, metavar="N", help="processes (default: one per core, at most 8)")
    parser.add_argument("--pictures", action="store_true", help="also draw a contact sheet per case")


def count_or_file(text: str) -> int | Path:
    return few(text) if text.isdecimal() else Path(text)


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.console import say
    from veloxseg.dataset.cases import open_cases
    from veloxseg.dataset.naming import read_folds
    from veloxseg.extras import require
    from veloxseg.machine import default_workers
    from veloxseg.prepare.prepare import Settings, prepare

    if arguments.register != "none":
        require("itk", "--register")
    task = find_task(arguments.task) if arguments.task is not None else None
    spacing, patch = arguments.spacing or (task and task.spacing), arguments.patch or (task and task.patch)
    settings = Settings(
        spacing=tuple(spacing) if spacing else None,
        patch=tuple(patch) if patch else None,
        reference=arguments.reference,
        register=arguments.register,
        normalise=(task.normalise if task else {}) | _schemes(arguments.normalise),
        seed=arguments.seed,
        folds=0 if isinstance(arguments.folds, Path) else arguments.folds,
        workers=default_workers() if arguments.workers is None else arguments.workers,
    )
    dataset = open_cases(arguments.dataset, selection(arguments))
    if isinstance(arguments.folds, Path):
        dataset = replace(dataset, folds=read_folds(arguments.folds))
    if arguments.plans is not None:
        settings = _as_nnunet_plans(settings, dataset, arguments.plans)
    say(f"{dataset.name}: {len(dataset.cases)} cases of {', '.join(dataset.modalities)} ({dataset.layout} layout)")
    dataset = _targets(dataset, task, arguments)
    prepared = prepare(dataset, arguments.output, settings)
    plan, split = prepared.plan, prepared.split()
    say(f"spacing {_sizes(plan.spacing)} mm, patch {_sizes(plan.patch)}, reference {plan.reference}")
    if plan.why:
        say(f"the spacing is {plan.why}")
    say(f"{len(split.train)} cases to train, {len(split.validation)} to validate, {len(split.test)} to test")
    if task is not None:
        own = [name for name in ("spacing", "patch", "merge", "regions", "normalise") if getattr(arguments, name)]
        _say_what_is_chosen(task, len(plan.outputs), own)
    if arguments.pictures:
        from veloxseg.prepare.contact_sheet import draw_contact_sheets

        say(f"contact sheets: {draw_contact_sheets(prepared)}")
    say(f"prepared: {prepared.path}")


def _as_nnunet_plans(settings: "Settings", dataset: "Dataset", path: Path) -> "Settings":
    """What was not asked for by an option is taken from nnU-Net's plans."""
    from veloxseg.nnunet.plans import preparation

    spacing, found = preparation(path)
    if len(found) != len(dataset.modalities):
        raise ConfigError(
            f"{path} is for {len(found)} channels, the data set has {len(dataset.modalities)} "
            f"({', '.join(dataset.modalities)}); give the plans of this data set"
        )
    given = dict(zip(dataset.modalities, found, strict=True))
    kept = {name: scheme for name, scheme in given.items() if name not in (settings.normalise or {})}
    return replace(settings, spacing=settings.spacing or spacing, normalisations=kept)


def _targets(dataset: "Dataset", task: "Task | None", arguments: argparse.Namespace) -> "Dataset":
    """The data set with the labels and regions that are asked for, or else are the paper's."""
    from veloxseg.dataset.targets import choose_regions, merge_labels, named_lists

    if task is not None and set(task.modalities) - set(dataset.modalities):
        raise ConfigError(
            f"--as {arguments.task} needs {', '.join(task.modalities)}, the data set has "
            f"{', '.join(dataset.modalities)}; leave --as out, or name the modalities so"
        )
    regions = arguments.regions or [task.regions if task is not None else "given"]
    merges = named_lists(arguments.merge, "--merge") or (dict(task.merge) if task is not None else {})
    return merge_labels(choose_regions(dataset, regions), merges)


def _say_what_is_chosen(task: "Task", outputs: int, own: list[str]) -> None:
    from veloxseg.console import say, warn

    but = f" but for {', '.join(own)}" if own else ""
    say(f"{task.title} as published{but}; what the paper leaves open, and what we chose:")
    for line in task.left_open:
        say(f"  - {line}")
    if outputs != task.classes:
        warn(f"the network will have {outputs} outputs, the paper's has {task.classes}")


def _schemes(entries: list[str]) -> dict[str, str]:
    for entry in entries:
        if "=" not in entry:
            raise ConfigError(f"--normalise {entry!r} has no '='; write for example --normalise ct=zscore_body")
    return dict(entry.split("=", 1) for entry in entries)


def _sizes(values: tuple[float, ...]) -> str:
    return " × ".join(f"{value:g}" for value in values)
