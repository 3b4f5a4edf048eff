"""One idea, tried by cross-validation on prepared real data: what a setting brings at equal steps or minutes.

    python experiments/search.py PREPARED NAME -o WORK [--steps N | --minutes M] [--folds 0 1] [--seeds 0]
                                 [--set key=value ...]

PREPARED has folds (`veloxseg prepare DATASET --folds 5 -o PREPARED`). Each fold is trained with one thread and the last
weights are kept: nothing is chosen on the held-out cases. With --steps the settings and the schedule are those of a
timed training, but for the augmentation, which `train` chooses by the minutes. Dice on the prepared grid, with and
without mirror images, goes to WORK/NAME.json, one entry per fold and seed; it is null where there is neither label nor
prediction. What is done is kept, so the same command goes on.
"""

import argparse
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.console import say
from veloxseg.files import read_json, write_json
from veloxseg.model_folder import ModelFolder
from veloxseg.predict.sliding import predict_labels
from veloxseg.prepare.store import Prepared
from veloxseg.runtimes import open_runtime
from veloxseg.runtimes.runtime import Mirrored
from veloxseg.train.loop import train
from veloxseg.train.recipe import SHORT
from veloxseg.train.schedule import SHORT_WARMUP
from veloxseg.train.settings import parse_overrides
from veloxseg.train.validation import case_dice, network_image

EPOCHS = 20
WARMUP = EPOCHS * SHORT_WARMUP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("name")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--folds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    path = options.output / f"{options.name}.json"
    result: dict[str, Any] = read_json(path) if path.is_file() else {"set": options.set, "runs": {}}
    for seed in options.seeds:
        for fold in options.folds:
            if (key := f"fold {fold} seed {seed}") not in result["runs"]:
                result["runs"][key] = one(options, fold, seed)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_json(path, result)
    show(options.name, result["runs"])


def one(options: argparse.Namespace, fold: int, seed: int) -> dict[str, Any]:
    prepared = Prepared.open(options.prepared)
    run = options.output / options.name / f"fold-{fold}-seed-{seed}"
    if options.minutes:
        length: dict[str, Any] = {"max_minutes": options.minutes}
    else:
        length = SHORT | {"epochs": EPOCHS, "steps_per_epoch": options.steps // EPOCHS, "warmup_epochs": WARMUP}
    settings = length | {"fold": fold, "seed": seed, "threads": 1, "select": "last", "validate_every": 1000}
    state = train(prepared.path, run, settings | parse_overrides(options.set), resume=True)
    folder = ModelFolder.open(run)
    runtime = open_runtime(folder, "auto", threads=1)
    dice: dict[str, dict[str, Any]] = {"cases": {}, "mirrored": {}}
    for name in prepared.split(fold).validation:
        image, label = network_image(prepared, name, folder.plan), np.asarray(prepared.label(name))
        for way, chosen in (("cases", runtime), ("mirrored", Mirrored(runtime))):
            found = case_dice(predict_labels(image, chosen, folder.plan), label, folder.plan)
            dice[way][name] = {key: None if math.isnan(value) else value for key, value in found.items()}
    return {"steps": state.steps, "seconds": round(state.seconds), **dice}


def show(name: str, runs: dict[str, Any]) -> None:
    for way in ("cases", "mirrored"):
        values = [v for run in runs.values() for case in run[way].values() for v in case.values() if v is not None]
        mean, median = statistics.mean(values), statistics.median(values)
        say(f"{name}, {way}: mean {mean:.4f}, median {median:.4f}, least {min(values):.3f}, {len(values)} values")


if __name__ == "__main__":
    main()
