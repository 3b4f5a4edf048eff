"""What a network loses when a modality is missing: held-out cases with every choice of modalities left.

    python experiments/missing.py PREPARED WORK/NAME [WORK/OTHER ...] -o RESULT.json

WORK/NAME holds the runs of search.py (fold-K-seed-S). A missing modality is blank, as `predict` has it. One name
may be of networks that were trained with `modality_dropout`, another of networks that were not.
"""

import argparse
import re
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.console import say
from veloxseg.files import write_json
from veloxseg.model_folder import ModelFolder
from veloxseg.predict.sliding import predict_labels
from veloxseg.prepare.store import Prepared
from veloxseg.runtimes import open_runtime
from veloxseg.runtimes.runtime import Mirrored
from veloxseg.train.validation import case_dice, network_image, subset_name, subsets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    prepared = Prepared.open(options.prepared)
    result = {folder.name: of_folder(prepared, folder) for folder in options.runs}
    write_json(options.output, result)
    for name, rows in result.items():
        for subset, cases in rows.items():
            say(f"{name}, {subset}: mean {statistics.fmean(cases.values()):.3f}, least {min(cases.values()):.3f}")


def of_folder(prepared: Prepared, folder: Path) -> dict[str, dict[str, float]]:
    """Modalities that are there → case → Dice, over the folds in `folder`."""
    found: dict[str, dict[str, float]] = {}
    for run in sorted(folder.glob("fold-*")):
        fold = int(re.findall(r"fold-(\d+)", run.name)[0])
        for subset, cases in of_run(prepared, run, fold).items():
            found.setdefault(subset, {}).update(cases)
    return found


def of_run(prepared: Prepared, run: Path, fold: int) -> dict[str, Any]:
    model = ModelFolder.open(run)
    runtime = open_runtime(model, "auto", threads=1)
    chosen = Mirrored(runtime) if model.plan.mirror else runtime
    rows: dict[str, Any] = {}
    for available in subsets(model.plan.names):
        row = rows.setdefault(subset_name(available), {})
        for name in prepared.split(fold).validation:
            image = network_image(prepared, name, model.plan, available)
            labels = predict_labels(image, chosen, model.plan)
            row[name] = statistics.fmean(case_dice(labels, np.asarray(prepared.label(name)), model.plan).values())
    return rows


if __name__ == "__main__":
    main()
