"""What a training inside nnU-Net is made of: recipe and patch, and nnU-Net's plans fitted to both. No nnU-Net here.

Whoever derives a trainer sets its attributes; whoever runs one sets an environment variable, as nnU-Net's users expect
(`veloxseg nnunet train` has options instead):

    VELOXSEG_NNUNET_PRESET   b, s, l, b+, c
    VELOXSEG_NNUNET_PATCH    64x128x128, along the axes of nnU-Net's plans, multiples of 32
    VELOXSEG_NNUNET_RECIPE   "epochs=100 teachers=false": settings as `train --set` takes them (docs/settings.md)
"""

import os
from collections.abc import Mapping
from typing import Annotated, Any

from veloxseg.errors import ConfigError, shown
from veloxseg.model.config import STRIDES
from veloxseg.nnunet.network import architecture, network_config
from veloxseg.prepare.planner import choose_patch
from veloxseg.schema import Range, parse
from veloxseg.tasks import TASKS
from veloxseg.train.recipe import SHORT, Recipe
from veloxseg.train.settings import NETWORK, make_recipe, parse_overrides
from veloxseg.types import Size

__all__ = [
    "PATCH",
    "PRESET",
    "RECIPE",
    "SETTINGS",
    "SHORT_IN_NNUNET",
    "build_recipe",
    "choose_settings",
    "fit_plans",
    "wanted_patch",
]

PRESET, PATCH, RECIPE = (f"VELOXSEG_NNUNET_{name}" for name in ("PRESET", "PATCH", "RECIPE"))
# settings that mean something here; augmentation, folds and selection are nnU-Net's, sizes are the data's
SETTINGS = (
    *("learning_rate", "final_learning_rate", "warmup_epochs", "weight_decay", "epochs", "steps_per_epoch"),
    *("batch", "batch_dice", "dropout", "fusion", "deep_supervision"),
    *("teachers", "transfer", "reduction", "reconstruction_weight", "transfer_weight"),
    *(name for name in NETWORK if name not in ("in_channels", "classes", "patch")),
)
# a thousand steps, for a CPU: what differs from the paper is what differs in our own short trainings
SHORT_IN_NNUNET: dict[str, Any] = {
    **{name: value for name, value in SHORT.items() if name in SETTINGS and name != "weight_decay"},  # goes with Muon
    "epochs": 20,
    "steps_per_epoch": 50,
    "warmup_epochs": 1.0,
}
PAPER = {"autopet": "autopet2", "hecktor": "hecktor2022", "brats": "brats2021"}  # part of a data set's name → task


def choose_settings(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a trainer: its attributes, and over them what the environment asks for."""
    asked = parse_overrides(os.environ.get(RECIPE, "").split())
    if odd := [name for name in {**attributes, **asked} if name not in SETTINGS]:
        raise ConfigError(
            f"{odd[0]} is decided by nnU-Net and not by the recipe of its trainer; choose from {', '.join(SETTINGS)}"
        )
    return {**attributes, **asked}


def build_recipe(settings: Mapping[str, Any], preset: str) -> Recipe:
    return make_recipe({**settings, "crops": 1, "model": os.environ.get(PRESET) or preset})


def wanted_patch(attribute: Size | None) -> Size | None:
    """The patch of the environment or of the trainer; None leaves it to `fit_plans`."""
    text = os.environ.get(PATCH)
    return parse(tuple[Side, Side, Side], text, PATCH) if text else attribute


Side = Annotated[int, Range(STRIDES[-1], 2048)]


def fit_plans(
    plans: dict[str, Any],
    configuration: str,
    dataset_json: Mapping[str, Any],
    recipe: Recipe,
    *,
    patch: Size | None,
    outputs: int,
    batch: int | None,
) -> None:
    """Writes patch and network into nnU-Net's plans, in place; prediction builds the network from them.

    `patch` and `batch` are what was asked for; without, the patch is chosen here and the batch stays nnU-Net's.
    """
    entry = plans["configurations"][configuration]
    whole = _inherited(plans["configurations"], configuration)
    if len(whole["patch_size"]) != 3 or whole.get("previous_stage"):
        raise ConfigError(f"VeloxSeg is a 3-D network of one stage, and {shown(configuration)} is not; use 3d_fullres")
    channels = len(dataset_json.get("channel_names", dataset_json.get("modality", ())))
    chosen = patch or _paper_patch(plans) or _our_patch(whole)
    entry["patch_size"] = list(chosen)
    entry["architecture"] = architecture(network_config(recipe, channels, outputs, chosen), recipe)
    if recipe.batch_dice:
        entry["batch_dice"] = True
    if batch is not None:
        entry["batch_size"] = batch


def _inherited(configurations: Mapping[str, Any], name: str) -> dict[str, Any]:
    parent = configurations[name].get("inherits_from")
    return {**(_inherited(configurations, parent) if parent else {}), **configurations[name]}


def _paper_patch(plans: Mapping[str, Any]) -> Size | None:
    name = str(plans.get("dataset_name", "")).lower()
    for part, task in PAPER.items():
        if part in name:
            x, y, z = TASKS[task].patch
            a, b, c = ((z, y, x)[axis] for axis in plans["transpose_forward"])
            return a, b, c
    return None


def _our_patch(configuration: Mapping[str, Any]) -> Size:
    """What `veloxseg prepare` would choose for a median image of this size."""
    a, b, c = configuration["spacing"]
    return choose_patch((a, b, c), [a, b, c], list(configuration["median_image_size_in_voxels"]))
