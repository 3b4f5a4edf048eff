"""Minutes of training on synthetic PET/CT: what unseen synthetic patients score, with both scans and with PET alone.

    python experiments/phantom_training.py -o WORK [--minutes 3.8] [--seeds 1 2 3] [--inputs ct+pet pet]

Each seed makes its own data set (32 patients, 12 more that are never seen), prepares it and trains as `veloxseg demo`
does. Dice is on the prepared grid without specks below the demo's limit: `dice` as `veloxseg evaluate` takes the mean,
a false alarm in a patient without lesions as 0, a right "nothing" left out; `dice_of_patients_with_lesions` without the
former. Run again, it goes on where it stopped.

Writes experiments/results/phantom.json with what is done so far. The data are synthetic: no medical meaning.
"""

import argparse
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.console import say
from veloxseg.cli.demo import SPECK
from veloxseg.files import read_json, write_json
from veloxseg.predict.postprocess import remove_smaller
from veloxseg.predict.sliding import predict_labels
from veloxseg.runtimes.torch import TorchRuntime
from veloxseg.model_folder import ModelFolder
from veloxseg.model_folder import load_network
from veloxseg.phantom.write import write_dataset
from veloxseg.dataset.layouts import open_dataset
from veloxseg.machine import default_workers
from veloxseg.prepare.prepare import Settings, prepare
from veloxseg.prepare.store import Prepared
from veloxseg.train.loop import train
from veloxseg.train.recipe import SHORT
from veloxseg.train.validation import case_dice, network_image

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=3.8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
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
                    "augmentation": "none",
                }
                state = train(prepared.path, run, SHORT | settings, resume=True)
                scores = {"steps": state.steps, "seconds": state.seconds, **score_unseen(prepared, run)}
                write_json(run / "unseen.json", scores)
            say(f"{inputs}, seed {seed}: Dice {read_json(run / 'unseen.json')['dice']:.3f}")
            summarise(options)


def make(folder: Path, seed: int) -> Prepared:
    if not (folder / "raw").is_dir():
        size, workers = (96, 72, 192), default_workers()
        write_dataset(folder / "raw", "nnunet", 32, seed=seed, size=size, test_cases=12, workers=workers)
    return prepare(open_dataset(folder / "raw", "auto"), folder / "prepared", Settings(patch=(64, 64, 64)))


def score_unseen(prepared: Prepared, run: Path) -> dict[str, Any]:
    folder = ModelFolder.open(run)
    runtime = TorchRuntime(load_network(folder))
    scores = {}
    for name in prepared.split().test:
        image = network_image(prepared, name, folder.plan)
        predicted = predict_labels(image, runtime, folder.plan, overlap=0.5)
        remove_smaller(predicted, SPECK, float(np.prod(prepared.plan.spacing)) / 1000)
        scores[name] = case_dice(predicted, np.asarray(prepared.label(name)), folder.plan)["lesion"]
    counted = {name: score for name, score in scores.items() if not math.isnan(score)}
    with_lesions = {name: score for name, score in counted.items() if prepared.label(name).any()}
    return {
        "dice": statistics.mean(counted.values()),
        "dice_of_patients_with_lesions": statistics.mean(with_lesions.values()),
        "patients_with_lesions": len(with_lesions),
        "patients_without_lesions": len(scores) - len(with_lesions),
        "false_alarms": len(counted) - len(with_lesions),
        "cases": counted,
    }


def summarise(options: argparse.Namespace) -> None:
    runs = {path.parent.name: read_json(path) for path in sorted(options.output.glob("*/unseen.json"))}
    record = read_json(options.output / next(iter(runs)) / "run.json")
    dice: dict[str, dict[str, list[float]]] = {"dice": {}, "dice_of_patients_with_lesions": {}}
    for name, run in runs.items():
        for measure, values in dice.items():
            values.setdefault(name.rpartition("-")[0], []).append(run[measure])
    RESULTS.mkdir(exist_ok=True)
    write_json(
        RESULTS / "phantom.json",
        {
            "experiment": f"synthetic PET/CT, {options.minutes:g} minutes of training",
            "command": f"python experiments/phantom_training.py -o WORK --minutes {options.minutes:g}",
            "machine": {name: record[name] for name in ("processor", "threads", "torch", "veloxseg")},
            "mean": {m: {i: statistics.mean(v) for i, v in values.items()} for m, values in dice.items()},
            "by_seed": dice,
            "runs": runs,
        },
    )


if __name__ == "__main__":
    main()
