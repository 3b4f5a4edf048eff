"""What would nnU-Net have given? The same folds and the same minutes of one core, in three ways.

    python experiments/nnunet_baseline.py sts DATA/sts_petct -o WORK --minutes 20 [--folds 0 1 2 3 4] [--ways ...]
    python experiments/nnunet_baseline.py hippocampus DATA/msd_hippocampus -o WORK --minutes 20 [--cases 60]

    nnunet       nnU-Net as it comes: its network, patch, augmentation and optimiser, its schedule fitted to the minutes
    inside       VeloxSeg inside nnU-Net: nnUNetTrainerVeloxSegShort, its schedule fitted to the minutes
    veloxseg     VeloxSeg by our own loop: `veloxseg train --max-minutes`

It needs veloxseg[nnunet] (`make .venv-nnunet/.ready`). A way of a fold is a process of its own with one thread; its
training time is what its loop takes, without planning and preprocessing. Held-out cases are predicted without
mirroring, those of the two ways of nnU-Net by nnU-Net and, as a converted MODEL, by `veloxseg predict` too. A way that
is done is kept.
Results go to experiments/results/nnunet_<data>_<minutes>min.json: Dice of each case, minutes, memory, seconds a case.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from veloxseg.console import say
from veloxseg.dataset.naming import read_folds
from veloxseg.evaluate.metrics import score
from veloxseg.files import read_json, write_json
from veloxseg.image import read, read_label, write
from veloxseg.image.resample import resample_image
from veloxseg.machine import processor, software
from veloxseg.nnunet.commands import STOCK, TRAINERS, trainer_class

RESULTS = Path(__file__).parent / "results"
NAMES = {"sts": "Dataset911_STS", "hippocampus": "Dataset912_Hippocampus"}
LABELS = {"sts": {"background": 0, "tumour": 1}, "hippocampus": {"background": 0, "anterior": 1, "posterior": 2}}
CHANNELS = {"sts": {"0": "CT", "1": "PET"}, "hippocampus": {"0": "MRI"}}
LEFT_OUT = ("STS_019",)  # its PET and CT do not lie on each other
WAYS = ("nnunet", "inside", "veloxseg")
FIRST_STEPS = 2  # not timed: they also make plans of convolutions, fill caches and start the loader
TIMED_SHARE, TIMED_STEPS = 0.05, 3  # of the minutes, and at least; the schedule is fitted to their median
EPOCHS, STEPS_PER_EPOCH = 20, 5  # at most and at least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=NAMES)
    parser.add_argument("source", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--folds", type=int, nargs="+", default=[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--cases", type=int, default=1000, help="the first so many")
    parser.add_argument("--step", nargs=2, metavar=("WAY", "FOLD"), help=argparse.SUPPRESS)  # the process of one way
    options = parser.parse_args()
    work = options.output.absolute()
    folders = {f"nnUNet_{name}": str(work / name) for name in ("raw", "preprocessed", "results")}
    os.environ.update({**folders, "OMP_NUM_THREADS": "1", "nnUNet_def_n_proc": "1", "nnUNet_n_proc_DA": "1"})
    if options.step:
        one_way(options, work, options.step[0], int(options.step[1]))
        return
    write_raw(options, work / "raw" / NAMES[options.data])
    plan(work, NAMES[options.data])
    for fold in options.folds:
        for way in options.ways:
            if not result_path(work, options, way, fold).is_file():
                say(f"{way}, fold {fold}")
                command = [sys.executable, *sys.argv, "--step", way, str(fold)]
                subprocess.run(command, check=True)
    summarise(options, work)


def result_path(work: Path, options: argparse.Namespace, way: str, fold: int) -> Path:
    return work / f"{options.data}_{options.minutes:g}min_{way}_fold{fold}.json"


# -- the data --------------------------------------------------------------------------------------------------------


def write_raw(options: argparse.Namespace, root: Path) -> None:
    """The cases in nnU-Net's layout; PET is brought to the CT's grid, which nnU-Net asks for."""
    if (root / "dataset.json").is_file():
        return
    for folder in ("imagesTr", "labelsTr"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    cases = (sts_cases if options.data == "sts" else hippocampus_cases)(options.source)[: options.cases]
    for name, images, label in cases:
        reference = read(images[0])
        for channel, path in enumerate(images):
            volume = read(path)
            if not volume.geometry.same_grid(reference.geometry):
                array = resample_image(volume, reference.geometry, "linear", 0.0)
                volume = replace(reference, array=array)
            write(volume, root / "imagesTr" / f"{name}_{channel:04d}.nii.gz")
        write(read_label(label), root / "labelsTr" / f"{name}.nii.gz")
    description = {
        "channel_names": CHANNELS[options.data],
        "labels": LABELS[options.data],
        "numTraining": len(cases),
        "file_ending": ".nii.gz",
    }
    write_json(root / "dataset.json", description)


def sts_cases(source: Path) -> list[tuple[str, list[Path], Path]]:
    folders = [path for path in sorted(source.glob("STS_*")) if path.name not in LEFT_OUT]
    return [(p.name, [p / "CT_image.nii.gz", p / "PET_image.nii.gz"], p / "CT_mask.nii.gz") for p in folders]


def hippocampus_cases(source: Path) -> list[tuple[str, list[Path], Path]]:
    labels = sorted((source / "labels").glob("*.nii*"))
    return [(path.name.split(".")[0], [source / "images" / path.name], path) for path in labels]


def plan(work: Path, name: str) -> None:
    """nnU-Net's planning and preprocessing, and its folds, which all three ways use."""
    folder = work / "preprocessed" / name
    if (folder / "splits_final.json").is_file():
        return
    from nnunetv2.experiment_planning.plan_and_preprocess_api import extract_fingerprints, plan_experiments, preprocess
    from nnunetv2.utilities.crossval_split import generate_crossval_split

    number = [int(name[7:10])]
    extract_fingerprints(number, num_processes=1, verbose=False)
    preprocess(number, plan_experiments(number), configurations=["3d_fullres"], num_processes=[1], verbose=False)
    names = sorted(path.name.removesuffix(".nii.gz") for path in (work / "raw" / name / "labelsTr").glob("*.nii.gz"))
    write_json(folder / "splits_final.json", generate_crossval_split(names, seed=12345, n_splits=5))


# -- the ways --------------------------------------------------------------------------------------------------------


def one_way(options: argparse.Namespace, work: Path, way: str, fold: int) -> None:
    """Trains, predicts the held-out cases and scores them."""
    name = NAMES[options.data]
    held_out = read_folds(work / "preprocessed" / name / "splits_final.json")[fold][1]
    images = links(work / f"held_out_{options.data}_{fold}", work / "raw" / name / "imagesTr", held_out)
    start = time.perf_counter()
    predictions = work / f"predictions_{options.data}_{options.minutes:g}min_{way}_{fold}"
    runs: dict[str, list[str]] = {}
    if way == "veloxseg":
        steps = train_ours(options, work, fold)
        runs["veloxseg predict"] = ours(steps["model"], images, predictions / "ours")
    else:
        steps = train_in_nnunet(options, work, way, fold)
        inside = ["nnunet", "predict", steps["model"], "-i", str(images), "-o", str(predictions / "nnunet")]
        runs["nnU-Net"] = [*inside, "--fold", str(fold), "--no-mirror", "--threads", "1"]
        model = predictions / "model"
        run_ours(["convert", steps["model"], "--fold", str(fold), "-o", str(model)])
        runs["converted, veloxseg predict"] = ours(str(model), images, predictions / "ours")
    trained = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ways: dict[str, Any] = {}
    for title, command in runs.items():
        seconds = run_ours(command)
        scores = score_all(options, work / "raw" / name / "labelsTr", Path(command[command.index("-o") + 1]), held_out)
        ways[title] = {"seconds_per_case": seconds / len(held_out), "dice": scores}
    result = {"way": way, "fold": fold, **steps, "minutes_with_validation": trained / 60, "training_mb": memory}
    write_json(result_path(work, options, way, fold), {**result, "predictions": ways})


def links(folder: Path, images: Path, names: tuple[str, ...]) -> Path:
    """A folder with the scans of these cases."""
    folder.mkdir(exist_ok=True)
    for name in names:
        for image in images.glob(f"{name}_????.nii.gz"):
            if not (folder / image.name).exists():
                (folder / image.name).symlink_to(image)
    return folder


def ours(model: str, images: Path, output: Path) -> list[str]:
    return ["predict", "-m", model, "-i", str(images), "-o", str(output), "--threads", "1"]


def run_ours(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "veloxseg", *arguments], check=True)
    return time.perf_counter() - start


def train_ours(options: argparse.Namespace, work: Path, fold: int) -> dict[str, Any]:
    name = NAMES[options.data]
    prepared, run = work / f"prepared_{options.data}", work / f"run_{options.data}_{options.minutes:g}min_{fold}"
    folds = str(work / "preprocessed" / name / "splits_final.json")
    run_ours(["prepare", str(work / "raw" / name), "-o", str(prepared), "--folds", folds, "--workers", "0"])
    settings = ["--set", "select=last", "--set", "threads=1"]
    minutes = ["--max-minutes", str(options.minutes), "--fold", str(fold)]
    run_ours(["train", str(prepared), "-o", str(run), *minutes, *settings])
    return {"model": str(run / "model"), "training_minutes": options.minutes}


def train_in_nnunet(options: argparse.Namespace, work: Path, way: str, fold: int) -> dict[str, Any]:
    """nnU-Net's loop, its epochs fitted to the minutes; augmentation runs in the same process, as we have one core."""
    import torch

    os.environ.update({"nnUNet_n_proc_DA": "0"})
    torch.set_num_threads(1)
    folder = work / "preprocessed" / NAMES[options.data]
    plans = {**read_json(folder / "nnUNetPlans.json"), "continue_training": False}
    kind = trainer_class(STOCK if way == "nnunet" else TRAINERS[1])
    trainer = kind(plans, "3d_fullres", fold, read_json(folder / "dataset.json"), torch.device("cpu"))
    trainer.initialize()
    trainer.on_train_start()
    trainer.network.train()
    fresh = {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()}
    step = seconds_per_step(trainer, 60 * options.minutes * TIMED_SHARE)
    trainer.network.load_state_dict(fresh)  # the minutes count from the first weights
    steps = max(1, int(60 * options.minutes / step / 1.1))  # a tenth goes to nnU-Net's own validation batches
    trainer.num_epochs = max(1, min(EPOCHS, steps // STEPS_PER_EPOCH))
    trainer.num_iterations_per_epoch = steps // trainer.num_epochs
    trainer.num_val_iterations_per_epoch = max(1, trainer.num_iterations_per_epoch // 10)
    if way == "inside":
        trainer.recipe = replace(trainer.recipe, epochs=trainer.num_epochs, warmup_epochs=trainer.num_epochs / 20)
    trainer.optimizer, trainer.lr_scheduler = trainer.configure_optimizers()
    start = time.perf_counter()
    trainer.run_training()
    minutes = (time.perf_counter() - start) / 60
    done = trainer.num_epochs * trainer.num_iterations_per_epoch
    return {"model": trainer.output_folder_base, "training_minutes": minutes, "steps": done, "seconds_per_step": step}


def seconds_per_step(trainer: Any, budget: float) -> float:
    """What a step takes once it runs evenly: the median of those that fit into the budget."""
    for _ in range(FIRST_STEPS):
        trainer.train_step(next(trainer.dataloader_train))
    times: list[float] = []
    while len(times) < TIMED_STEPS or sum(times) < budget:
        start = time.perf_counter()
        trainer.train_step(next(trainer.dataloader_train))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


# -- what came out ---------------------------------------------------------------------------------------------------


def score_all(
    options: argparse.Namespace, labels: Path, predictions: Path, names: tuple[str, ...]
) -> dict[str, dict[str, float | None]]:
    """Dice of each structure of each case."""
    found: dict[str, dict[str, float | None]] = {}
    for name in names:
        label, mask = (read_label(folder / f"{name}.nii.gz") for folder in (labels, predictions))
        found[name] = {
            structure: score(mask.array == value, label.array == value, label.geometry.spacing).dice
            for structure, value in LABELS[options.data].items()
            if value
        }
    return found


def summarise(options: argparse.Namespace, work: Path) -> None:
    """One file with all folds and ways that are done."""
    folds = [result_path(work, options, way, fold) for fold in options.folds for way in options.ways]
    done = [read_json(path) for path in folds if path.is_file()]
    for entry in done:
        entry.pop("model")
        for title, predicted in entry["predictions"].items():
            values = [value for case in predicted["dice"].values() for value in case.values() if value is not None]
            predicted["mean_dice"] = sum(values) / len(values)
            say(f"fold {entry['fold']}, {entry['way']}, {title}: Dice {predicted['mean_dice']:.3f}")
    RESULTS.mkdir(exist_ok=True)
    result = {
        "experiment": f"{options.data}: nnU-Net and VeloxSeg in {options.minutes:g} minutes of one core",
        "machine": {"processor": processor(), **software()},
        "runs": done,
    }
    write_json(work / f"nnunet_{options.data}_{options.minutes:g}min.json", result)
    if options.cases == 1000:  # a part of the data set is a try, and no result
        write_json(RESULTS / f"nnunet_{options.data}_{options.minutes:g}min.json", result)


if __name__ == "__main__":
    main()
