"""A small network with weights that follow from a formula, so that its outputs can be stored in the project."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from veloxseg.model.config import NetworkConfig, preset

TINY = replace(
    preset("b"),
    patch=(32, 64, 32),
    base_width=8,
    transformer_width=8,
    group_sizes=(4, 8, 8, 16),
    heads=(1, 1, 2, 2),
    head_sizes=(4, 4, 8, 8),
    attention_dropout=0.0,
    projection_dropout=0.0,
    conv_dropout=0.0,
)
CONFIGS = {
    "paired": TINY,
    "early": replace(TINY, in_channels=(3,), classes=4),
    "unequal": replace(TINY, in_channels=(1, 2), kernel_sizes=(3,), depths=(2, 1, 1, 1)),
    "transposed": replace(TINY, head="transposed", transformer_depths=(1, 2, 1, 1)),
}


def formula(shape: torch.Size | tuple[int, ...], salt: int) -> Tensor:
    """Numbers in [-1, 1] without pattern that are the same on every machine."""
    count = torch.Size(shape).numel()
    values = torch.arange(count, dtype=torch.float64)
    return (torch.sin(values * 12.9898 + salt * 78.233) * 43758.5453).frac().reshape(shape)


def fill(network: nn.Module) -> None:
    """Weights from the formula, at the scale of the usual initialisation."""
    with torch.no_grad():
        for salt, (name, parameter) in enumerate(network.named_parameters()):
            fan_in = max(1, parameter[0].numel()) if parameter.ndim > 1 else 4
            scale = 1.5 / fan_in**0.5 if "table" not in name else 0.5
            centre = 1.0 if name.endswith("norm_weight") else 0.0
            parameter.copy_(centre + scale * formula(parameter.shape, salt))


def example(config: NetworkConfig, batch: int = 1) -> tuple[Tensor, Tensor]:
    """An image and a label."""
    image = formula((batch, sum(config.in_channels), *config.patch), 1) * 2
    label = (formula((batch, *config.patch), 2).abs() * config.classes).long().clamp(max=config.classes - 1)
    return image.float(), label
