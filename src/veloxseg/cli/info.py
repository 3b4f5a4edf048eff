"""Say what a model, a training run or a prepared data set is; without a path, list the presets with their cost, and
which runtimes and extras this installation has.

Nothing is computed.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veloxseg.cli.cases import CASES, add_selection, selection
from veloxseg.console import say
from veloxseg.errors import DatasetError, ModelError, VeloxSegError, some
from veloxseg.extras import EXTRAS, installed

if TYPE_CHECKING:
    from veloxseg.dataset.cases import Selection
    from veloxseg.dataset.seen import Learning
    from veloxseg.model_folder import ModelFolder

SUMMARY = "what a model, run or data set is; the presets and their cost; what is installed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help=f"a MODEL or RUN folder, or CASES: {CASES}")
    add_selection(parser)
    parser.add_argument("--models", action="store_true", help="list the models that come with VeloxSeg")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")


def run(arguments: argparse.Namespace) -> None:
    if arguments.models:
        print_models(as_json=arguments.json)
        return
    if arguments.path is None:
        presets, runtimes, extras = preset_costs(), runtimes_here(), installed()
        if arguments.json:
            say(json.dumps({"presets": presets, "runtimes": runtimes, "extras": extras}, indent=2))
        else:
            print_presets(presets)
            print_installation(runtimes, extras)
        return
    facts = describe(arguments.path, selection(arguments))
    if arguments.json:
        say(json.dumps(facts, indent=2, ensure_ascii=False))
    else:
        for name, value in facts.items():
            say(f"{name + ':':16s} {some(value, 10) if name == 'names' else readable(value)}")


def preset_costs() -> list[dict[str, Any]]:
    """Parameters and both counts of MACs of every preset."""
    from veloxseg.model.config import PRESETS
    from veloxseg.model.costs import COSTS

    rows = []
    for name, config in PRESETS.items():
        row = {
            "preset": name,
            "input": [sum(config.in_channels), *config.patch],
            "modalities": config.modalities,
            "classes": config.classes,
        }
        rows.append(row | dict(zip(("parameters", "macs", "macs_as_published"), COSTS[name], strict=True)))
    return rows


def runtimes_here() -> dict[str, str]:
    """Each runtime: "yes", or why it computes nothing here."""
    from veloxseg.runtimes import RUNTIMES, obstacle

    return {name: "yes" if (reason := obstacle(None, name)) is None else str(reason) for name in RUNTIMES}


def print_presets(rows: list[dict[str, Any]]) -> None:
    from veloxseg.model.costs import WHY_THEY_DIFFER

    say(f"{'preset':10s} {'input':16s} {'classes':>7s} {'parameters':>11s} {'MACs':>9s} {'as published':>13s}")
    for row in rows:
        size = "×".join(map(str, row["input"]))
        say(
            f"{row['preset']:10s} {size:16s} {row['classes']:7d} {row['parameters'] / 1e6:9.4f} M "
            f"{row['macs'] / 1e9:7.3f} G {row['macs_as_published'] / 1e9:11.2f} G"
        )
    say(f"\n{WHY_THEY_DIFFER}")


def print_models(*, as_json: bool) -> None:
    """The shipped models, by name."""
    from veloxseg.machine import NOTICE
    from veloxseg.shipped import cards

    if as_json:
        say(json.dumps({name: asdict(card) for name, card in cards().items()}, indent=2, ensure_ascii=False))
        return
    for name, card in cards().items():
        scores, low, high = card.scores, *card.scores.interval
        say(f"{name:20s} {card.title}")
        say(f"{'':20s} finds {card.finds}")
        say(
            f"{'':20s} Dice {scores.dice:.3f} ({low:.3f} to {high:.3f}) on {scores.patients} unseen patients, "
            f"least {scores.least:.2f}; {card.licence}"
        )
    say(f"\nveloxseg predict -m NAME ... takes them, veloxseg info NAME tells more; {NOTICE}")


def print_installation(runtimes: dict[str, str], extras: dict[str, bool]) -> None:
    """What computes here, the fastest first, and which extras are there."""
    say("\nruntimes here, the fastest first:")
    for name, state in runtimes.items():
        say(f"  {name:12s} {state}")
    if "yes" not in runtimes.values():
        say("nothing here can compute a network; pip install 'veloxseg[train]', which computes every one")
    say("\nextras, each by pip install 'veloxseg[NAME]':")
    for name, there in extras.items():
        say(f"  {name:12s} {'yes' if there else 'no ':3s}  {EXTRAS[name].purpose}")


def describe(path: Path, selection: "Selection") -> dict[str, Any]:
    """The facts about a folder, by what is in it, or about a shipped model."""
    from veloxseg.shipped import cards, located

    named, path = str(path), located(path)
    if named in cards() and path != Path(named):
        return describe_model(path) | {"card": asdict(cards()[named])}
    if not path.exists():
        raise DatasetError(f"{path} does not exist; give a MODEL, RUN, PREPARED or data-set folder")
    from veloxseg.dataset.layouts.prepared import recognises

    if recognises(path):
        return describe_prepared(path, selection)
    try:
        return describe_model(path)
    except ModelError as no_model:
        try:
            return {"data set": path.name} | describe_cases(path, selection)
        except DatasetError as error:
            raise DatasetError(f"{path} is neither a model ({no_model}) nor a data set ({error})") from error


def describe_cases(path: Path, selection: "Selection") -> dict[str, Any]:
    from veloxseg.dataset.cases import open_cases, part_words

    dataset = open_cases(path, selection)
    return {
        "data set": dataset.name,
        "layout": dataset.layout,
        "modalities": list(dataset.modalities),
        "labels": dataset.labels,
        "regions": {name: list(values) for name, values in (dataset.regions or {}).items()},
        "cases": len(dataset.cases),
        "labelled": sum(case.label is not None for case in dataset.cases),
        "splits": part_words(dataset.cases),
        "names": [case.name for case in dataset.cases],
    }


def describe_model(path: Path) -> dict[str, Any]:
    from veloxseg.files import sha256
    from veloxseg.model_folder import ModelFolder, members
    from veloxseg.runtimes import usable_runtimes

    together = members(path)
    if together != [path]:
        return {"ensemble": str(path), "members": [describe_model(member) for member in together]}
    folder = ModelFolder.open(path)
    plan = folder.plan
    facts: dict[str, Any] = {
        "model": str(folder.path),
        "architecture": folder.architecture,
        "modalities": list(plan.names),
        "outputs": list(plan.outputs),
        "patch": list(plan.patch),
        "spacing mm": list(plan.spacing),
        "runtimes here": usable_runtimes(folder) or _why_none(folder),
        "native kernels": _native(folder),
        "network": folder.network,
        "provenance": {name: value for name, value in folder.provenance.items() if name != "learning"},
        "learnt from": describe_learning(folder.learning),
    }
    if folder.weights.is_file():
        facts["weights SHA-256"] = sha256(folder.weights)
    return facts


def _native(folder: "ModelFolder") -> str:
    """The instruction set, and why it does not compute this model if it does not."""
    from veloxseg.runtimes import obstacle
    from veloxseg.runtimes.native.runtime import instruction_set

    if (found := instruction_set()) is None:
        return "none for this processor"
    reason = obstacle(folder, "native")
    return found if reason is None else f"{found}, not for this model: {str(reason).partition(';')[0]}"


def _why_none(folder: "ModelFolder") -> str:
    """The line that `predict` would end with."""
    from veloxseg.runtimes import choose_runtime

    try:
        return choose_runtime(folder)
    except VeloxSegError as error:
        return f"none: {error}"


def describe_learning(learning: "Learning | None") -> dict[str, Any] | str:
    """Numbers of cases; model.json lists them with the hashes of their scans."""
    if learning is None:
        return "unknown: the model does not say which cases it was trained on"
    known = "content" if learning.by_content else "name alone"
    return {"training cases": len(learning.train), "validation cases": len(learning.validation), "known by": known}


def describe_prepared(path: Path, selection: "Selection") -> dict[str, Any]:
    from veloxseg.files import read_json
    from veloxseg.prepare.plan import Plan

    plan = Plan.from_json(read_json(path / "plan.json"))
    facts: dict[str, Any] = {
        "prepared": plan.dataset,
        "modalities": list(plan.names),
        "reference": plan.reference,
        "outputs": list(plan.outputs),
        "patch": list(plan.patch),
        "spacing mm": list(plan.spacing),
        "windows": [list(window) for window in plan.windows],
    }
    try:
        cases = describe_cases(path, selection)
    except DatasetError as error:  # an older folder, or scans that were moved: the plan is told all the same
        return facts | {"cases": str(error)}
    return facts | {key: cases[key] for key in ("cases", "labelled", "splits", "names")}


def readable(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {readable(item)}" for name, item in value.items())
    if isinstance(value, list):
        return " ".join(readable(item) for item in value) if value and isinstance(value[0], str) else str(value)
    return str(value)
