"""What is minimised: a network, its teachers where it has some, and the loss, as one module (image, label) → terms.

With the loss inside the module, autocast and DDP see one forward pass. The loss itself is computed in float32:
a Gram matrix or a Dice sum over a million voxels is beyond bf16.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from veloxseg.model.config import STAGES, NetworkConfig
from veloxseg.model.losses import SegmentationLoss, Target, choose_loss, sdkt_loss
from veloxseg.model.network import VeloxSeg
from veloxseg.model.sdkt import SDKTModel, SDKTOutput, deep_segmentations
from veloxseg.model_folder import build_network
from veloxseg.prepare.plan import Plan
from veloxseg.train.recipe import Recipe

__all__ = ["TERMS", "Objective", "PlainObjective", "TaughtObjective", "build_objective", "target_of"]

TERMS = ("total", "cross_entropy", "dice", "reconstruction", "transfer")  # the order of an objective's result


class Objective(nn.Module):
    """(image, label) → the loss terms in the order of TERMS."""

    @property
    def student(self) -> nn.Module:
        """The network that is kept."""
        raise NotImplementedError


class TaughtObjective(Objective):
    """VeloxSeg with its texture teachers: the paper's objective.

    `difference`: the loss takes two classes as the difference of their logits.
    """

    def __init__(self, config: NetworkConfig, recipe: Recipe, segmentation: SegmentationLoss, difference: bool) -> None:
        super().__init__()
        self.model = SDKTModel(config)
        self.outputs, self.difference = STAGES if recipe.deep_supervision else 1, difference
        self.loss = partial(
            sdkt_loss,
            segmentation=segmentation,
            transfer=recipe.transfer,
            reduction=recipe.reduction,
            reconstruction_weight=recipe.reconstruction_weight,
            transfer_weight=recipe.transfer_weight,
        )

    @property
    def student(self) -> nn.Module:
        return self.model.student

    def forward(self, image_BCXYZ: Tensor, label_BXYZ: Tensor) -> Tensor:
        output = self.model(image_BCXYZ, self.outputs, self.difference)
        with torch.autocast(image_BCXYZ.device.type, enabled=False):
            output = SDKTOutput(
                segmentations=[scores.float() for scores in output.segmentations],
                reconstruction=output.reconstruction.float(),
                student_features=output.student_features.float(),
                teacher_features=[features.float() for features in output.teacher_features],
            )
            terms = self.loss(output, image_BCXYZ, label_BXYZ)
            return torch.stack([getattr(terms, name) for name in TERMS])


class PlainObjective(Objective):
    """Any network without teachers; VeloxSeg's deep outputs count as in the paper, peers have one output."""

    def __init__(self, network: nn.Module, recipe: Recipe, segmentation: SegmentationLoss, difference: bool) -> None:
        super().__init__()
        self.network = network
        self.outputs, self.difference = STAGES if recipe.deep_supervision else 1, difference
        self.segmentation = segmentation

    @property
    def student(self) -> nn.Module:
        return self.network

    def forward(self, image_BCXYZ: Tensor, label_BXYZ: Tensor) -> Tensor:
        outputs = self.scores(image_BCXYZ)
        with torch.autocast(image_BCXYZ.device.type, enabled=False):
            pairs = [self.segmentation(scores.float(), label_BXYZ) for scores in outputs]
            cross_entropy = torch.stack([pair[0] for pair in pairs]).mean()
            dice = torch.stack([pair[1] for pair in pairs]).mean()
            nothing = torch.zeros_like(dice)
            return torch.stack([cross_entropy + dice, cross_entropy, dice, nothing, nothing])

    def scores(self, image_BCXYZ: Tensor) -> list[Tensor]:
        if not isinstance(self.network, VeloxSeg):
            return [self.network(image_BCXYZ)]
        self.network.check(image_BCXYZ)
        decoded = self.network.decode(self.network.encoder(image_BCXYZ))
        return deep_segmentations(self.network, decoded, self.outputs, self.difference)


def build_objective(architecture: str, settings: dict[str, Any], plan: Plan, recipe: Recipe) -> Objective:
    """The network of these settings with the loss that the recipe names and its labels ask for."""
    segmentation, difference = choose_loss(recipe.loss, target_of(plan, recipe.batch_dice))
    if architecture == "veloxseg" and recipe.teachers and settings["attention"] != "none":
        return TaughtObjective(NetworkConfig.from_json(settings), recipe, segmentation, difference)
    return PlainObjective(build_network(architecture, settings), recipe, segmentation, difference)


def target_of(plan: Plan, batch_dice: bool = False) -> Target:
    """What the plan's label values mean to a loss; they need not be 0, 1, 2, ..."""
    if plan.regions is not None:
        regions = tuple(tuple(values) for values in plan.regions.values())
        return Target(regions=regions, ignore=plan.ignore_label, batch_dice=batch_dice)
    values = tuple(plan.labels[name] for name in plan.outputs)
    return Target(values=values, ignore=plan.ignore_label, batch_dice=batch_dice)
