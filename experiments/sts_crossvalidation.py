"""Five-fold cross-validation on soft-tissue sarcoma PET/CT (25 patients, CC BY 3.0): is the network learnt well?

    python experiments/sts_crossvalidation.py DATA -o WORK [--epochs 60 | --minutes M] [--folds 0 1 2 3 4]
                                              [--inputs ct+pet] [--model b] [--set key=value ...] [--name NAME]

DATA holds `STS_*/CT_image.nii.gz, PET_image.nii.gz, CT_mask.nii.gz`. STS_019 is left out, as its PET and CT do not
lie on each other. Each fold trains VeloxSeg-B on 20 patients at 2 × 2 × 3.27 mm with a 64³ patch, 20 steps of batch 2
per epoch, keeps the last weights (nothing is chosen on the held-out patients) and predicts the other 5. Stopped
or killed, it goes on when run again, with the same result. The cases are crops around one lesion, so the figures
say nothing about finding lesions in a whole body.

Writes experiments/results/sts_<name>.json and .jpg with what is done so far.
"""

import argparse
import json
import shlex
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.console import say
from veloxseg.evaluate.metrics import score
from veloxseg.files import read_json, write_json
from veloxseg.predict.predictor import Predictor
from veloxseg.predict.scans import Scans
from veloxseg.image import read, read_label
from veloxseg.model_folder import ModelFolder
from veloxseg.model_folder import load_network
from veloxseg.dataset.layouts import open_dataset
from veloxseg.prepare.prepare import Settings, prepare
from veloxseg.prepare.store import Prepared
from veloxseg.train.loop import train
from veloxseg.train.recipe import SHORT
from veloxseg.train.settings import parse_overrides
from veloxseg.train.engine import Stopped
from veloxseg.train.validation import validate_case

RESULTS = Path(__file__).parent / "results"
LEFT_OUT = ("STS_019",)
# a short training on little data: strong augmentation, a moving average of the weights
RECIPE: dict[str, Any] = {
    "teachers": True,
    "batch_dice": False,
    "dropout": 0.1,
    "learning_rate": 2e-3,
    "augmentation": "strong",
    "ema": 0.99,
    "warmup_epochs": 3,
    "validate_every": 20,
    "select": "last",
}
INPUTS: dict[str, dict[str, Any]] = {
    "ct": {"modalities": ("ct",)},
    "pet": {"modalities": ("pet",)},
    "early": {"fusion": "early"},
    "ct+pet": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--folds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--inputs", choices=INPUTS, default="ct+pet")
    parser.add_argument("--model", default="b", help="a preset or a peer")
    parser.add_argument("--minutes", type=float, help="of training per fold, instead of --epochs")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the recipe")
    parser.add_argument("--name", help="of the result; default: the model if not b, and the inputs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model = "" if options.model == "b" else f"{options.model}_"
    options.name = options.name or f"{model}{options.inputs.replace('+', '_')}_{options.seed}"
    prepared = prepare_all(options.data, options.output / "prepared")
    work = options.output / options.name
    changed = {"model": options.model, "seed": options.seed, **INPUTS[options.inputs]}
    changed |= {"max_minutes": options.minutes} if options.minutes else {"epochs": options.epochs}
    for fold in options.folds:
        say(f"fold {fold}, {options.name}")
        settings = SHORT | RECIPE | changed | {"fold": fold} | parse_overrides(options.set)
        try:
            state = train(prepared.path, work / f"fold-{fold}", settings, resume=True)
        except Stopped:
            sys.exit("stopped and saved; the same command goes on")
        cases = predict_held_out(options.data, prepared, work, fold)
        write_json(work / f"fold-{fold}.json", {"steps": state.steps, "seconds": round(state.seconds), "cases": cases})
    summarise(options, work)


def prepare_all(data: Path, folder: Path) -> Prepared:
    """All patients may be trained on, so that the folds hold out each of them once."""
    names = sorted(path.name for path in data.glob("STS_*") if path.name not in LEFT_OUT)
    cases = [
        {
            "case": name,
            "ct": f"{name}/CT_image.nii.gz",
            "pet": f"{name}/PET_image.nii.gz",
            "label": f"{name}/CT_mask.nii.gz",
            "split": "train",
        }
        for name in names
    ]
    folder.mkdir(parents=True, exist_ok=True)
    listing = folder.parent / "sts.json"
    labels = {"background": 0, "tumour": 1}
    write_json(listing, {"name": "sts", "root": str(data.resolve()), "labels": labels, "cases": cases})
    return prepare(
        open_dataset(str(listing), "auto"), folder, Settings(spacing=(2, 2, 3.27), patch=(64, 64, 64), folds=5)
    )


def predict_held_out(data: Path, prepared: Prepared, work: Path, fold: int) -> dict[str, Any]:
    """Scores on the prepared grid, the same for all inputs; with CT among them, on the CT's own grid too."""
    folder = ModelFolder.open(work / f"fold-{fold}")
    network, plan = load_network(folder), folder.plan
    predictor = Predictor([folder.path], runtime="torch") if "ct" in plan.names else None
    (work / "predictions").mkdir(exist_ok=True)
    cases: dict[str, Any] = {}
    for name in prepared.split(fold).validation:
        dice = validate_case(network, prepared, name, plan, overlap=0.5)["tumour"]
        cases[name] = {"dice_prepared_grid": dice}
        if predictor is not None:
            scans = {m: data / name / f"{m.upper()}_image.nii.gz" for m in plan.names}
            predicted, label = (predictor(Scans(scans)).labels.array, read_label(data / name / "CT_mask.nii.gz"))
            np.save(work / "predictions" / f"{name}.npy", predicted.astype(np.uint8))
            scores = score(predicted > 0, label.array > 0, label.geometry.spacing)
            cases[name] |= {"dice": scores.dice, "hd95_mm": scores.hd95_mm}
        say(f"{name}: " + ", ".join(f"{key} {value:.3f}" for key, value in cases[name].items()))
    return cases


def statistics_of(values: list[float]) -> dict[str, float]:
    return {
        "mean": statistics.mean(values),
        "median": statistics.median(values),
        "standard_deviation": statistics.pstdev(values),
        "least": min(values),
    }


def summarise(options: argparse.Namespace, work: Path) -> None:
    folds = {path.stem: read_json(path) for path in sorted(work.glob("fold-?.json"))}
    cases = {name: scores for fold in folds.values() for name, scores in fold["cases"].items()}
    measures = [key for key in ("dice", "dice_prepared_grid", "hd95_mm") if key in next(iter(cases.values()))]
    summary = {key: statistics_of([scores[key] for scores in cases.values()]) for key in measures}
    run = read_json(next(iter(sorted(work.glob("fold-?")))) / "run.json")
    length = f"{options.minutes:g} minutes" if options.minutes else f"{options.epochs} epochs"
    given = ["--minutes", f"{options.minutes:g}"] if options.minutes else ["--epochs", str(options.epochs)]
    given += ["--inputs", options.inputs, "--model", options.model, "--seed", str(options.seed)]
    given += ["--set", *options.set] if options.set else []
    result = {
        "experiment": f"STS PET/CT, {options.name}, {length}, seed {options.seed}",
        "command": f"python experiments/sts_crossvalidation.py DATA -o WORK {shlex.join(given)}",
        "machine": {name: run[name] for name in ("processor", "threads", "torch", "veloxseg")},
        "folds_done": len(folds),
        "patients": len(cases),
        **summary,
        "steps": {name: fold["steps"] for name, fold in folds.items()},
        "seconds": {name: fold["seconds"] for name, fold in folds.items()},
        "recipe": SHORT | RECIPE | parse_overrides(options.set),
        "cases": dict(sorted(cases.items())),
    }
    RESULTS.mkdir(exist_ok=True)
    name = f"sts_{options.name}"
    write_json(RESULTS / f"{name}.json", result)
    if "dice" in summary:
        draw(options.data, work, result["cases"], RESULTS / f"{name}.jpg", result["experiment"])
    say(json.dumps(summary, indent=2))


def draw(data: Path, work: Path, cases: dict[str, Any], path: Path, title: str) -> None:
    """Each held-out patient: the slice with most tumour, CT with PET, label green, prediction red."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = 5
    rows = -(-len(cases) // columns)
    figure = Figure(figsize=(2.6 * columns, 2.75 * rows + 0.6), dpi=100, facecolor="black")
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.005, right=0.995, bottom=0.005, top=1 - 0.9 / (2.75 * rows + 0.6), wspace=0.03)
    figure.suptitle(
        f"{title}\nheld-out patients, CT with PET in colour; label green, prediction red", color="white", fontsize=10
    )
    for index, (name, scores) in enumerate(cases.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        ct, pet = read(data / name / "CT_image.nii.gz"), read(data / name / "PET_image.nii.gz")
        label = read_label(data / name / "CT_mask.nii.gz").array > 0
        predicted = np.load(work / "predictions" / f"{name}.npy") > 0
        z = int(label.sum((0, 1)).argmax())
        _show(axes, ct, pet, label[..., z], predicted[..., z], z)
        axes.set_title(f"{name}  Dice {scores['dice']:.2f}", color="white", fontsize=9, pad=3)
    figure.savefig(path, facecolor="black", pil_kwargs={"quality": 85})


def _show(axes: Any, ct: Any, pet: Any, label: np.ndarray, predicted: np.ndarray, z: int) -> None:
    from scipy.ndimage import affine_transform

    matrix = np.linalg.inv(pet.geometry.affine) @ ct.geometry.affine
    plane = np.asarray(affine_transform(pet.array, matrix, output_shape=ct.array.shape, order=1))[..., z]
    shape = label.shape
    axes.imshow(ct.array[..., z].T, cmap="gray", vmin=-160, vmax=240, interpolation="nearest")
    strength = np.clip(plane / max(5.0, float(plane.max())), 0, 1)
    axes.imshow(plane.T, cmap="inferno", vmin=0, vmax=max(5.0, float(plane.max())), alpha=0.55 * strength.T)
    for mask, colour in ((label, "#22e06a"), (predicted, "#ff4040")):
        if mask.any():
            axes.contour(mask.T.astype(float), [0.5], colors=colour, linewidths=1.2)
    axes.set(xticks=[], yticks=[], xlim=(0, shape[0] - 1), ylim=_upright(ct, shape[1]))


def _upright(ct: Any, rows: int) -> tuple[int, int]:
    """Anterior is up, whichever way the array's second axis runs."""
    to_anterior = ct.geometry.affine[1, 1] > 0
    return (0, rows - 1) if to_anterior else (rows - 1, 0)


if __name__ == "__main__":
    main()
