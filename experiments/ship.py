"""Makes a shipped model of a training: `python experiments/ship.py RUN SEARCH.json NAME --card CARD.toml`.

RUN was trained on all cases; SEARCH.json is what search.py wrote for the same recipe in cross-validation. Weights are
stored as float16, which halves the file; the scores of the card are of the folds' own float32 networks. CARD.toml has
the words of the card: title, finds, data, licence, attribution, trained, how, limits.
"""

import argparse
import json
import statistics
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from veloxseg.evaluate.statistics import bootstrap_interval
from veloxseg.files import read_json, sha256, write_json
from veloxseg.model_folder import ModelFolder
from veloxseg.shipped import FOLDER


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("scores", type=Path)
    parser.add_argument("name")
    parser.add_argument("--card", type=Path, required=True)
    options = parser.parse_args()
    words = tomllib.loads(options.card.read_text(encoding="utf-8"))
    source, target = ModelFolder.open(options.run), FOLDER / options.name
    target.mkdir(exist_ok=True)
    half = {name: tensor.astype(np.float16) for name, tensor in load_file(source.weights).items()}
    (target / "model.safetensors").write_bytes(save(half))  # save_file makes files that only their owner reads
    description = json.loads((source.path / "model.json").read_text(encoding="utf-8"))
    description["provenance"]["weights_sha256"] = sha256(target / "model.safetensors")
    write_json(target / "model.json", description)
    card: dict[str, Any] = {name: value for name, value in words.items() if name != "how"}
    way = "mirrored" if source.plan.mirror else "cases"
    card["scores"] = scores(read_json(options.scores)["runs"], way, words["how"])
    card["weights_sha256"] = sha256(target / "model.safetensors")
    write_json(target / "card.json", card)


def scores(runs: dict[str, Any], way: str, how: str) -> dict[str, Any]:
    """Each held-out patient once: the mean over its structures."""
    patients = {name: statistics.fmean(dice.values()) for run in runs.values() for name, dice in run[way].items()}
    values = np.array(list(patients.values()))
    low, high = bootstrap_interval(values)
    return {
        "dice": round(float(values.mean()), 4),
        "interval": [round(low, 4), round(high, 4)],
        "least": round(float(values.min()), 4),
        "patients": len(values),
        "how": how,
    }


if __name__ == "__main__":
    main()
