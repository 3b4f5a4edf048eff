"""nnU-Net's own training and prediction, called with options instead of environment variables.

nnU-Net looks for a trainer by importing all of its own first, and some of them need torchvision. Here the trainer is
handed over, so nothing of that is imported. Checkpoints are looked at by our safe reader before nnU-Net opens them,
which runs what a pickle holds.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from veloxseg.dataset.naming import read_description
from veloxseg.errors import ConfigError, DatasetError, shown
from veloxseg.extras import require
from veloxseg.nnunet.checkpoint import FINAL, find_folds, read_fold

__all__ = ["STOCK", "TRAINERS", "predict", "train", "trainer_class", "trainers_folder"]

TRAINERS = ("nnUNetTrainerVeloxSeg", "nnUNetTrainerVeloxSegShort")
STOCK = "nnUNetTrainer"  # nnU-Net's own


def trainers_folder() -> Path:
    """What `nnUNet_extTrainer` must name."""
    return Path(__file__).parent / "trainers"


def train(
    dataset: str,
    configuration: str,
    fold: str,
    *,
    trainer: str,
    folders: Mapping[str, Path | None],
    plans: str = "nnUNetPlans",
    settings: Mapping[str, str | None],
    device: str = "cpu",
    workers: int = 1,
    threads: int | None = None,
    resume: bool = False,
    probabilities: bool = False,
) -> None:
    """`nnUNetv2_train`. `folders` are nnU-Net's three by the names of their variables, `settings` are settings.py's."""
    _set_environment({name: str(path.absolute()) for name, path in folders.items() if path is not None}, workers)
    _require("nnUNet_preprocessed", "nnUNet_results")
    _check_planned(dataset, configuration, plans)
    for name, value in settings.items():
        if value is not None:
            os.environ[name] = value
    run_training = _nnunet("nnunetv2.run.run_training")
    import torch

    _set_threads(threads)
    with _handing_over(run_training):
        run_training.run_training(
            dataset,
            configuration,
            fold,
            trainer,
            plans,
            continue_training=resume,
            export_validation_probabilities=probabilities,
            device=torch.device(device),
        )


def predict(
    results: Path,
    images: Path,
    output: Path,
    *,
    folds: tuple[str, ...] = (),
    checkpoint: str = FINAL,
    mirror: bool = True,
    device: str = "cpu",
    threads: int | None = None,
) -> None:
    """`nnUNetv2_predict` in one process, from a folder of nnUNet_results."""
    chosen = find_folds(results, folds, checkpoint)
    for path in chosen:
        read_fold(path)
    if not images.is_dir():
        raise DatasetError(f"{shown(images)} is not a folder; give a folder with <case>_0000.nii.gz, ...")
    _set_environment({}, 1)
    module = _nnunet("nnunetv2.inference.predict_from_raw_data")
    import torch

    _set_threads(threads)
    predictor = module.nnUNetPredictor(use_mirroring=mirror, device=torch.device(device), allow_tqdm=False)
    with _handing_over(module):
        names = tuple(path.parent.name.removeprefix("fold_") for path in chosen)
        predictor.initialize_from_trained_model_folder(str(results), names, checkpoint)
    output.mkdir(parents=True, exist_ok=True)
    predictor.predict_from_files_sequential(str(images), str(output))


def _set_environment(folders: Mapping[str, str], workers: int) -> None:
    """nnU-Net reads the environment of its own process; DDP's processes find the trainers by it."""
    processes = dict.fromkeys(("nnUNet_n_proc_DA", "nnUNet_def_n_proc"), str(workers))
    os.environ.update({**folders, **processes, "nnUNet_extTrainer": str(trainers_folder())})


def _require(*names: str) -> None:
    for name in names:
        if not os.environ.get(name):
            option = name.removeprefix("nnUNet_")
            raise ConfigError(f"nnU-Net's folder {name} is not known; give --{option} FOLDER or set the variable")


def _check_planned(dataset: str, configuration: str, plans: str) -> None:
    """Says what is missing before nnU-Net is imported."""
    root = Path(os.environ.get("nnUNet_preprocessed", ""))  # noqa: SIM112  # nnU-Net's spelling
    number = f"{int(dataset):03d}" if dataset.isdecimal() and len(dataset) < 4 else None
    found = sorted(root.glob(f"Dataset{number}_*")) if number else [root / dataset]
    if len(found) != 1 or not (found[0] / f"{plans}.json").is_file():
        raise DatasetError(
            f"{shown(root)} has no {shown(dataset)} with {shown(plans)}.json; run nnUNetv2_plan_and_preprocess first"
        )
    known = read_description(found[0] / f"{plans}.json").get("configurations", {})
    if configuration not in known:
        raise DatasetError(f"{shown(plans)}.json has no configuration {shown(configuration)}, but {', '.join(known)}")


def _nnunet(module: str) -> Any:
    import importlib

    require("nnunet", "this")
    return importlib.import_module(module)


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def trainer_class(name: str) -> Any:
    """One of our trainers, or nnU-Net's plain one."""
    return getattr(_nnunet("veloxseg.nnunet.trainer"), name)


class _handing_over:
    """Within it, a module of nnU-Net gets our trainers and the plain one without a search; others are searched for."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.search: Callable[[str], Any] = module.recursive_find_trainer_class_by_name

    def __enter__(self) -> None:
        def find(name: str) -> Any:
            return trainer_class(name) if name in (*TRAINERS, STOCK) else self.search(name)

        self.module.recursive_find_trainer_class_by_name = find

    def __exit__(self, *_: object) -> None:
        self.module.recursive_find_trainer_class_by_name = self.search
