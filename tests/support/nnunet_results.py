"""A folder of nnUNet_results as nnU-Net writes it, made without nnU-Net: tiny, with random weights."""

import copy
import json
from pathlib import Path
from typing import Any

PATCH = (32, 32, 64)
RESAMPLING = {"is_seg": False, "order": 3, "order_z": 0, "force_separate_z": None}
INTENSITIES = {"mean": 20.0, "std": 150.0, "percentile_00_5": -250.0, "percentile_99_5": 180.0, "median": 1.0}
PLANS: dict[str, Any] = {
    "dataset_name": "Dataset901_Classes",
    "plans_name": "nnUNetPlans",
    "image_reader_writer": "SimpleITKIO",
    "transpose_forward": [1, 0, 2],
    "transpose_backward": [1, 0, 2],
    "configurations": {
        "2d": {"inherits_from": "3d_fullres", "patch_size": [64, 64], "spacing": [1.5, 1.5]},
        "3d_fullres": {
            "preprocessor_name": "DefaultPreprocessor",
            "batch_size": 2,
            "patch_size": list(PATCH),
            "median_image_size_in_voxels": [34.0, 38.0, 42.0],
            "spacing": [1.4, 2.2, 1.6],
            "normalization_schemes": ["CTNormalization", "ZScoreNormalization"],
            "use_mask_for_norm": [False, True],
            "resampling_fn_data": "resample_data_or_seg_to_shape",
            "resampling_fn_data_kwargs": RESAMPLING,
            "resampling_fn_probabilities": "resample_data_or_seg_to_shape",
            "resampling_fn_probabilities_kwargs": {**RESAMPLING, "order": 1},
        },
        "3d_larger_batch": {"inherits_from": "3d_fullres", "batch_size": 4},
        "3d_cascade_fullres": {"inherits_from": "3d_fullres", "previous_stage": "3d_lowres"},
    },
    "foreground_intensity_properties_per_channel": {"0": INTENSITIES, "1": INTENSITIES},
}
DATASET: dict[str, Any] = {
    "channel_names": {"0": "CT", "1": "PET"},
    "labels": {"background": 0, "organ": 1, "lesion": 2},
    "file_ending": ".nii.gz",
}


def make_plans(**changes: Any) -> dict[str, Any]:
    """The plans; what is named is changed in 3d_fullres, or in the plans themselves if it stands there."""
    plans = copy.deepcopy(PLANS)
    for name, value in changes.items():
        (plans if name in plans else plans["configurations"]["3d_fullres"])[name] = value
    return plans


def write_results(
    folder: Path,
    *,
    folds: int = 1,
    configuration: str = "3d_fullres",
    dataset: dict[str, Any] = DATASET,
    **changes: Any,
) -> Path:
    """plans.json, dataset.json and checkpoints of VeloxSeg with teachers, as a trainer inside nnU-Net leaves them."""
    import torch

    from veloxseg.nnunet.network import NnunetVeloxSeg, architecture, network_config
    from veloxseg.train.recipe import Recipe

    outputs = len(dataset["labels"]) - ("regions_class_order" in dataset)
    config = network_config(Recipe(), 2, outputs, PATCH)
    plans = make_plans(architecture=architecture(config, Recipe()), **changes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plans.json").write_text(json.dumps(plans))
    (folder / "dataset.json").write_text(json.dumps(dataset))
    for fold in range(folds):
        torch.manual_seed(fold)
        network = NnunetVeloxSeg(2, outputs, True, config=config.to_json(), teachers=True)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        save_checkpoint(folder / f"fold_{fold}" / "checkpoint_final.pth", network.state_dict(), configuration)
    return folder


def save_checkpoint(path: Path, weights: dict[str, Any], configuration: str = "3d_fullres", **more: Any) -> None:
    """What nnU-Net puts in a checkpoint, numpy's numbers in its log included."""
    import numpy as np
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    checkpoint = {
        "network_weights": weights,
        "logging": {"ema_fg_dice": [np.float64(0.3), np.float32(0.4)], "epochs": [np.int64(1)]},
        "_best_ema": np.float64(0.4),
        "init_args": {"configuration": configuration, "fold": 0, "device": torch.device("cpu")},
        "trainer_name": "nnUNetTrainerVeloxSeg",
        "inference_allowed_mirroring_axes": (0, 1),
        **more,
    }
    torch.save(checkpoint, path)
