"""Does the whole job on synthetic PET/CT: make data, check, prepare, train, predict unseen cases, evaluate, report.

Every step prints the command that does the same for your own data, and then runs that command; the demo has no way of
its own to do anything. Takes a few minutes on two CPU cores.
"""

import argparse
import shlex
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from veloxseg.console import say
from veloxseg.errors import OutputError
from veloxseg.files import read_json, writable_folder, write_json

SUMMARY = "the whole job on synthetic data, in a few minutes"
MARK = "demo.json"  # says that the folders beside it are a demo's, and may be made anew
SPECK = 10  # mL; nine in ten of the synthetic lesions are larger than 29 mL
FOLDERS = ("data", "prepared", "run", "predictions", "report")
VIEWED = "cases"  # what the viewer keeps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="DIR", type=Path, default=Path("demo"), help="default: ./demo")


def run(arguments: argparse.Namespace) -> int:
    from veloxseg.extras import require

    require("train", "the demo, which trains,")
    return run_demo(arguments.output, demo_steps(arguments.output), quiet=arguments.quiet)


@dataclass(frozen=True, kw_only=True)
class Step:
    does: str
    command: tuple[str, ...]  # arguments of `veloxseg`


def demo_steps(folder: Path, minutes: float = 4.7) -> list[Step]:
    """Sizes and times fit two CPU cores. Augmentation off: its flip along z turns a whole body upside down."""
    data, prepared, run, predictions, report = (str(folder / name) for name in FOLDERS)
    unseen, truth = f"{data}/imagesTs", f"{data}/labelsTs"
    size = ("--cases", "32", "--test-cases", "12", "--size", "96", "72", "192")
    return [
        Step(does="Make synthetic PET/CT patients (your own data take this place)", command=("phantom", data, *size)),
        Step(does="Look for anything wrong in the data", command=("check", data)),
        Step(
            does="Bring all scans to one grid and scale, and plan the training (a small patch is quick)",
            command=("prepare", data, "-o", prepared, "--patch", "64", "64", "64"),
        ),
        Step(
            does="Train for a few minutes (leave --max-minutes out for the paper's full recipe)",
            command=("train", prepared, "-o", run, *f"--max-minutes {minutes:g} --set augmentation=none".split()),
        ),
        Step(
            does=f"Segment patients that were never seen, without specks below {SPECK} mL (smaller than the lesions "
            "of these patients, see prepared/fingerprint.json)",
            command=("predict", "-m", run, "-i", unseen, "-o", predictions, "--remove-smaller", str(SPECK)),
        ),
        Step(
            does="Compare with the truth and write the report",
            command=("evaluate", "-p", predictions, "-l", truth, "-o", report, "--images", unseen),
        ),
    ]


def run_demo(folder: Path, steps: list[Step], quiet: bool = False) -> int:
    """Runs the steps in order; stops at the first that fails, with its exit code."""
    from veloxseg.cli import main

    _clear(folder)
    write_json(folder / MARK, {"made by": "veloxseg demo", "data": "synthetic"})
    seconds = []
    for number, step in enumerate(steps, 1):
        say(f"\n[{number}/{len(steps)}] {step.does}\n    $ veloxseg {shlex.join(step.command)}\n")
        began = time.monotonic()
        verb, *rest = step.command
        code = main([verb, *(["--quiet"] if quiet else []), *rest])
        if code != 0:
            return code
        seconds.append(time.monotonic() - began)
    _summary(folder, steps, seconds)
    return 0


def _clear(folder: Path) -> None:
    """Removes what an earlier demo left; anything else in the folder is not ours to touch."""
    writable_folder(folder)
    if (folder / MARK).is_file():
        for name in (*FOLDERS, VIEWED):
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
    elif any(folder.iterdir()):
        raise OutputError(f"{folder} is not empty and not an earlier demo; choose a new folder with -o")


def _summary(folder: Path, steps: list[Step], seconds: list[float]) -> None:
    """Per case what came out, then the times and where the report is."""
    say("\nDone. The data are synthetic. Research use only, not a medical device.\n")
    metrics = folder / "report" / "metrics.json"
    if metrics.is_file():
        say(f"  {'unseen case':<14}{'Dice':>6}  lesions found")
        cases = read_json(metrics)["cases"]
        for case in cases:
            dice = "  none" if case["dice"] is None else f"{case['dice']:6.3f}"
            say(f"  {case['case']:<14}{dice}  {case['lesions_found']} of {case['lesions']}, {case['outcome']}")
        ill = [case["dice"] for case in cases if case["lesions"]]
        alarms = sum(case["outcome"] == "false alarm" for case in cases)
        mean = _mean_dice(metrics)
        say(f"  {'mean':<14}{mean:6.3f}  as `evaluate` counts: a false alarm as 0, a right 'none' not at all")
        say(f"  {'ill':<14}{sum(ill) / max(1, len(ill)):6.3f}  over {len(ill)} patients with lesions")
        healthy = len(cases) - len(ill)
        say(f"  {'healthy':<14}{'':6}  {alarms} false alarms in {healthy} patients without lesions\n")
    for step, taken in zip(steps, seconds, strict=True):
        say(f"  {step.command[0]:<14}{taken:6.1f} s")
    say(f"  {'in all':<14}{sum(seconds):6.1f} s\n")
    say(f"report: {(folder / 'report' / 'report.html').resolve()}")
    say("to look at the first of them in the viewer (pip install 'veloxseg[serve]'):")
    say(f"    $ {shlex.join(viewer_command(folder))}")


def viewer_command(folder: Path) -> list[str]:
    """What opens the first unseen case in the viewer, segmented as above."""
    first = sorted((folder / "data" / "imagesTs").glob("*_0000.nii.gz"))[:1]
    scans = [scan for one in first for scan in sorted(one.parent.glob(one.name.replace("_0000.", "_*.")))]
    serve = ["veloxseg", "serve", "-m", str(folder / "run"), "-o", str(folder / VIEWED), "--remove-smaller", str(SPECK)]
    return [*serve, *(word for scan in scans for word in ("--open", str(scan)))]


def _mean_dice(metrics: Path) -> float:
    (method,) = read_json(metrics)["mean_of_structures"].values()
    return float(method["dice"])
