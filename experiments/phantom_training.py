"""Minutes of training on synthetic PET/CT: what unseen synthetic patients score, with both scans and with PET alone.

    python experiments/phantom_training.py -o WORK [--minutes 3.5] [--seeds 0 1 2] [--inputs ct+pet pet]

Each seed makes its own data set (32 patients, 8 more that are never seen), prepares it as `veloxseg demo` does, and
trains by `veloxseg train --max-minutes`. Dice is on the prepared grid, the mean over unseen patients with lesions;
a false alarm in a patient without lesions is counted beside it. Run again, it goes on where it stopped.

Writes experiments/results/phantom.json with what is done so far. The data are synthetic: no medical meaning.
"""

import argparse
import math
import statistics
from pathlib import Path
from typing import Any

from veloxseg.console import say
from veloxseg.files import read_json, write_json
from veloxseg.modelfolder import ModelFolder
from veloxseg.networks import load_network
from veloxseg.phantom.write import write_dataset
from veloxseg.prepare.layouts import open_dataset
from veloxseg.prepare.preprocess import Settings, prepare
from veloxseg.prepare.store import Prepared
from veloxseg.train.loop import train
from veloxseg.train.recipe import SHORT
from veloxseg.train.validation import validate_case

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=3.5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--inputs", nargs="+", default=["ct+pet", "pet"])
    options = parser.parse_args()
    for seed in options.seeds:
        prepared = make(options.output / f"data-{seed}", seed)
        for inputs in options.inputs:
            run = options.output / f"{inputs}-{seed}"
            if not (run / "unseen.json").is_file():
                settings = {
                    "max_minutes": options.minutes,
                    "seed": seed,
                    "modalities": tuple(inputs.split("+")),
                }
                state = train(prepared.path, run, SHORT | settings, resume=True)
                scores = {"steps": state.steps, "seconds": state.seconds, **score_unseen(prepared, run)}
                write_json(run / "unseen.json", scores)
            say(f"{inputs}, seed {seed}: Dice {read_json(run / 'unseen.json')['dice']:.3f}")
            summarise(options)


def make(folder: Path, seed: int) -> Prepared:
    if not (folder / "raw").is_dir():
        write_dataset(folder / "raw", "nnunet", 32, seed=seed, size=(64, 48, 128), test_cases=8)
    return prepare(open_dataset(folder / "raw", "auto"), folder / "prepared", Settings(patch=(64, 32, 64)))


def score_unseen(prepared: Prepared, run: Path) -> dict[str, Any]:
    folder = ModelFolder.open(run)
    network = load_network(folder)
    scores = {
        name: validate_case(network, prepared, name, folder.plan, overlap=0.5)["lesion"]
        for name in prepared.split().test
    }
    with_lesions = {name: score for name, score in scores.items() if prepared.label(name).any()}
    return {
        "dice": statistics.mean(with_lesions.values()),
        "cases": with_lesions,
        "patients_without_lesions": len(scores) - len(with_lesions),
        "false_alarms": sum(
            not math.isnan(score) for name, score in scores.items() if name not in with_lesions
        ),
    }


def summarise(options: argparse.Namespace) -> None:
    runs = {path.parent.name: read_json(path) for path in sorted(options.output.glob("*/unseen.json"))}
    record = read_json(options.output / next(iter(runs)) / "run.json")
    dice: dict[str, list[float]] = {}
    for name, run in runs.items():
        dice.setdefault(name.rpartition("-")[0], []).append(run["dice"])
    RESULTS.mkdir(exist_ok=True)
    write_json(
        RESULTS / "phantom.json",
        {
            "experiment": f"synthetic PET/CT, {options.minutes:g} minutes of training",
            "command": f"python experiments/phantom_training.py -o WORK --minutes {options.minutes:g}",
            "machine": {name: record[name] for name in ("processor", "threads", "torch", "veloxseg")},
            "mean_dice": {inputs: statistics.mean(values) for inputs, values in dice.items()},
            "dice_by_seed": dice,
            "runs": runs,
        },
    )


if __name__ == "__main__":
    main()
