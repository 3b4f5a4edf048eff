"""VeloxSeg's trainers for nnU-Net: the paper's recipe in its loop. Imports nnU-Net (>= 2.8).

Data, augmentation, folds, checkpoints, validation and DDP are nnU-Net's. Ours are the network, its deep outputs at full
size, the teachers, AdamW, and a warm-up followed by a cosine. The loss of an output is nnU-Net's, which knows regions
and ignored voxels.
"""

from typing import Any

import torch
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch import nn
from torch.optim import AdamW, Optimizer

from veloxseg.nnunet.network import TaughtLoss
from veloxseg.nnunet.settings import SHORT_IN_NNUNET, build_recipe, choose_settings, fit_plans, wanted_patch
from veloxseg.train.recipe import Recipe
from veloxseg.train.schedule import learning_rate
from veloxseg.types import Size

__all__ = ["nnUNetTrainerVeloxSeg", "nnUNetTrainerVeloxSegShort"]

STEPS = 250  # of an epoch, as in nnU-Net


class WarmupCosine:
    """The paper's learning rate, set at the start of each epoch as nnU-Net does it."""

    def __init__(self, optimizer: Optimizer, recipe: Recipe) -> None:
        self.optimizer, self.recipe = optimizer, recipe
        self.step(0)

    def step(self, epoch: int) -> None:
        epochs = self.recipe.epochs
        rate = learning_rate(self.recipe, (epoch + 1) / epochs, min(0.5, self.recipe.warmup_epochs / epochs))
        for group in self.optimizer.param_groups:
            group["lr"] = rate


class nnUNetTrainerVeloxSeg(nnUNetTrainer):  # type: ignore[misc]  # nnU-Net is not typed
    """VeloxSeg-B by the paper's recipe. A trainer of your own derives from it and sets these three."""

    veloxseg_preset: str = "b"
    veloxseg_patch: Size | None = None  # along the axes of nnU-Net's plans; None: the paper's, or ours
    veloxseg_recipe: dict[str, Any] = {}  # noqa: RUF012  # settings of the recipe by name

    def __init__(
        self,
        plans: dict[str, Any],
        configuration: str,
        fold: int,
        dataset_json: dict[str, Any],
        device: torch.device = torch.device("cuda"),  # noqa: B008  # as in nnU-Net
    ) -> None:
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        settings = choose_settings(self.veloxseg_recipe)
        self.recipe = build_recipe(settings, self.veloxseg_preset)
        fit_plans(
            plans,
            configuration,
            dataset_json,
            self.recipe,
            patch=wanted_patch(self.veloxseg_patch),
            outputs=PlansManager(plans).get_label_manager(dataset_json).num_segmentation_heads,
            batch=settings.get("batch"),
        )
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.initial_lr, self.weight_decay = self.recipe.learning_rate, self.recipe.weight_decay
        self.num_epochs = self.recipe.epochs
        self.num_iterations_per_epoch = self.recipe.steps_per_epoch or STEPS
        self.num_val_iterations_per_epoch = max(1, self.num_iterations_per_epoch // 5)
        self.save_every = max(1, min(50, self.num_epochs // 4))

    def configure_optimizers(self) -> tuple[Optimizer, WarmupCosine]:
        optimizer = AdamW(self.network.parameters(), lr=self.initial_lr, weight_decay=self.weight_decay)
        return optimizer, WarmupCosine(optimizer, self.recipe)

    def _get_deep_supervision_scales(self) -> list[list[float]]:
        return [[1.0, 1.0, 1.0]]  # all outputs are at full size, as in the paper

    def _build_loss(self) -> nn.Module:
        self.enable_deep_supervision = False  # for nnU-Net's loss of a single output
        single = super()._build_loss()
        self.enable_deep_supervision = True
        return TaughtLoss(single, self.recipe)

    def _do_i_compile(self) -> bool:
        return False  # nobody has tried it with this network


class nnUNetTrainerVeloxSegShort(nnUNetTrainerVeloxSeg):
    """A thousand steps without teachers, for a CPU."""

    veloxseg_recipe = SHORT_IN_NNUNET
