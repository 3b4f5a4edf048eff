"""VeloxSeg as nnU-Net meets it: in training a list of outputs and what the teachers give, in prediction logits.

nnU-Net switches between the two by `network.decoder.deep_supervision`. It predicts with a network that it builds
without deep supervision and loads strictly, so the weights have the same names in both; teachers exist in training
only, and loading drops theirs.
"""

import dataclasses
import itertools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.errors import ConfigError
from veloxseg.model.config import STAGES, STRIDES, NetworkConfig, preset
from veloxseg.model.losses import TRANSFERS
from veloxseg.model.network import VeloxSeg
from veloxseg.model.sdkt import SDKTOutput, TextureTeacher, deep_segmentations
from veloxseg.train.recipe import Recipe
from veloxseg.types import Size

__all__ = ["CLASS_NAME", "NnunetVeloxSeg", "Outputs", "TaughtLoss", "architecture", "network_config", "student_weights"]

TEACHERS = "teachers."


class Outputs(list[Tensor]):
    """Logits at full size, finest first; and what the teachers' loss needs, if there are teachers."""

    taught: SDKTOutput | None = None
    image: Tensor


class NnunetVeloxSeg(VeloxSeg):
    """(B, C, a, b, c) → logits; with deep supervision `Outputs`. Arguments are as nnU-Net calls an architecture."""

    def __init__(
        self,
        input_channels: int,
        num_classes: int,
        deep_supervision: bool = True,
        *,
        config: dict[str, Any],
        outputs: int = STAGES,
        teachers: bool = False,
        strides: Any = None,  # for nnU-Net, which reads them in the plans
    ) -> None:
        settings = NetworkConfig.from_json(config)
        if (sum(settings.in_channels), settings.classes) != (input_channels, num_classes):
            raise ConfigError(
                f"the plans' network takes {sum(settings.in_channels)} channels and gives {settings.classes} outputs, "
                f"the data set has {input_channels} and {num_classes}; were plans of another data set copied?"
            )
        super().__init__(settings)
        self.outputs = outputs
        self.deep_heads.requires_grad_(outputs > 1)  # parameters without a gradient would stop DDP
        if teachers and deep_supervision:
            self.teachers = nn.ModuleList(TextureTeacher(settings, channels) for channels in settings.in_channels)
        self.decoder.deep_supervision = deep_supervision  # type: ignore[assignment]
        self._register_load_state_dict_pre_hook(self._without_teachers)  # type: ignore[no-untyped-call]

    def _without_teachers(self, state: dict[str, Any], prefix: str, *_: Any) -> None:
        if not hasattr(self, "teachers"):
            for name in [name for name in state if name.startswith(prefix + TEACHERS)]:
                del state[name]

    def forward(self, image_BCXYZ: Tensor) -> Any:
        if not self.decoder.deep_supervision:
            return super().forward(image_BCXYZ)
        self.check(image_BCXYZ)
        features = self.encoder(image_BCXYZ)
        decoded = self.decode(features)
        result = Outputs(deep_segmentations(self, decoded, self.outputs))
        result.image = image_BCXYZ
        if self.training and hasattr(self, "teachers"):
            taught = [teacher(features, m) for m, teacher in enumerate(self.teachers)]
            result.taught = SDKTOutput(
                segmentations=list(result),
                reconstruction=torch.cat([reconstruction for reconstruction, _ in taught], 1),
                student_features=decoded[0],
                teacher_features=[features for _, features in taught],
            )
        return result


CLASS_NAME = f"{__name__}.{NnunetVeloxSeg.__name__}"


class TaughtLoss(nn.Module):
    """nnU-Net's own loss, which knows classes, regions and ignored voxels, of every output; and the teachers' terms."""

    def __init__(self, segmentation: nn.Module, recipe: Recipe) -> None:
        super().__init__()
        self.segmentation, self.recipe = segmentation, recipe

    def forward(self, outputs: Outputs, target: Any) -> Tensor:
        full = target[0] if isinstance(target, list | tuple) else target
        loss = torch.stack([self.segmentation(scores, full) for scores in outputs]).mean()
        if outputs.taught is None:
            return loss
        taught, recipe = outputs.taught, self.recipe
        with torch.autocast(outputs.image.device.type, enabled=False):  # Gram matrices are beyond half precision
            exact = SDKTOutput(
                segmentations=[],
                reconstruction=taught.reconstruction.float(),
                student_features=taught.student_features.float(),
                teacher_features=[features.float() for features in taught.teacher_features],
            )
            reconstruction = F.mse_loss(exact.reconstruction, outputs.image.float())
            transfer = TRANSFERS[recipe.transfer](exact, full[:, 0], recipe.reduction)
            return loss + recipe.reconstruction_weight * reconstruction + recipe.transfer_weight * transfer


def network_config(recipe: Recipe, channels: int, classes: int, patch: Size) -> NetworkConfig:
    """The recipe's preset, fitted to the data, and what was set."""
    chosen = preset(recipe.model)
    early = recipe.fusion == "early" or (recipe.fusion == "auto" and chosen.modalities == 1)
    streams = (channels,) if early else (1,) * channels
    sizes: dict[str, Any] = {"in_channels": streams, "classes": classes, "patch": patch, "windows": ()}
    rates = dict.fromkeys(("attention_dropout", "projection_dropout", "conv_dropout"), recipe.dropout)
    return dataclasses.replace(chosen, **(sizes | rates | recipe.network))


def architecture(config: NetworkConfig, recipe: Recipe) -> dict[str, Any]:
    """The entry `architecture` of nnU-Net's plans."""
    steps = [STRIDES[0], *(after // before for before, after in itertools.pairwise(STRIDES))]
    return {
        "network_class_name": CLASS_NAME,
        "arch_kwargs": {
            "config": config.to_json(),
            "outputs": STAGES if recipe.deep_supervision else 1,
            "teachers": recipe.teachers and config.attention != "none",
            "strides": [[1, 1, 1], *([step] * 3 for step in steps)],
        },
        "_kw_requires_import": [],
    }


def student_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of the network that is kept."""
    return {name: tensor for name, tensor in weights.items() if not name.startswith(TEACHERS)}
