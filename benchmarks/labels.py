"""Whole scans: does every runtime give the mask that eager PyTorch gives?

    python benchmarks/labels.py MODEL INPUT [--json benchmarks/labels.json]

MODEL is a trained model or run, INPUT a folder of scans as `veloxseg predict` takes it. Each case goes the whole way
from files to a mask on its own grid, by torch and by every other runtime; voxels that differ from torch are
counted.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.files import read_json, write_json
from veloxseg.predict.inputs import find_cases
from veloxseg.predict.predictor import Predictor
from veloxseg.predict.scans import Scans

OTHERS = ("native", "openvino", "onnx")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("input", type=Path)
    parser.add_argument("--json", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    predictors = {name: Predictor([options.model], runtime=name, threads=1) for name in ("torch", *OTHERS)}
    plan = predictors["torch"].plan
    cases: dict[str, Any] = {}
    for case in find_cases([str(options.input)], plan.names):
        masks = {name: predict(Scans(case.images)).labels.array for name, predict in predictors.items()}
        row: dict[str, Any] = {"voxels": masks["torch"].size, "foreground": int((masks["torch"] > 0).sum())}
        for name in OTHERS:
            row[f"{name}_different"] = int(np.count_nonzero(masks[name] != masks["torch"]))
        cases[case.name] = row
        print(case.name, row, flush=True)
    results = read_json(options.json) if options.json.is_file() else {}
    results[plan.dataset] = {"weights": "trained", "cases": cases} | {
        f"{name}_equal_share_of_the_worst": min(1 - row[f"{name}_different"] / row["voxels"] for row in cases.values())
        for name in OTHERS
    }
    write_json(options.json, results)


if __name__ == "__main__":
    main()
