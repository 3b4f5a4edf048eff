"""Dice on the scans' own grid, of what search.py trained: spacings can only be compared there.

    python experiments/own_grid.py WORK NAME LISTS/sts.json PREPARED [--no-mirror]

For each training of WORK/NAME, its held-out cases are predicted from their files, as the mean over mirror images (or
without them, --no-mirror). Dice goes to WORK/NAME.json beside the scores on the prepared grid, as "own grid". What is
done is kept.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.console import say
from veloxseg.evaluate.metrics import dice
from veloxseg.files import read_json, write_json
from veloxseg.image import read_label
from veloxseg.predict.predictor import Options, Predictor
from veloxseg.predict.scans import Scans
from veloxseg.prepare.store import Prepared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("name")
    parser.add_argument("list", type=Path)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("--no-mirror", dest="mirror", action="store_false")
    options = parser.parse_args()
    path = options.work / f"{options.name}.json"
    result = read_json(path)
    listed = read_json(options.list)
    cases = {case["case"]: case for case in listed["cases"]}
    split = Prepared.open(options.prepared).split
    for key, run in result["runs"].items():
        if "own grid" in run:
            continue
        _, fold, _, seed = key.split()
        model = options.work / options.name / f"fold-{fold}-seed-{seed}"
        predictor = Predictor([model], threads=1, options=Options(mirror=options.mirror))
        names = split(int(fold)).validation
        run["own grid"] = {
            name: score(predictor, cases[name], Path(listed["root"]), listed["labels"]) for name in names
        }
        write_json(path, result)
    values = [value for run in result["runs"].values() for case in run["own grid"].values() for value in case.values()]
    say(f"{options.name}, own grid: mean {statistics.mean(values):.4f}, least {min(values):.3f}, {len(values)} values")


def score(predictor: Predictor, case: dict[str, Any], root: Path, labels: dict[str, int]) -> dict[str, float]:
    scans = {name: root / file for name, file in case.items() if name not in ("case", "split", "label")}
    found = np.asarray(predictor(Scans(scans)).labels.array)
    truth = np.asarray(read_label(root / case["label"]).array)
    return {name: dice(found == value, truth == value) for name, value in labels.items() if value}


if __name__ == "__main__":
    main()
