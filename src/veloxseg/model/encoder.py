"""The dual encoder: a convolution stream that fuses modalities and a transformer stream in which they cooperate.

At every stage the transformer's features join the convolution's: enc_k = JLC(down(enc_{k-1}) + IN(PWC(E_1..E_M))).

Legend: M modality, B batch, C channel, XYZ space.
"""

from typing import NamedTuple

from torch import Tensor, nn

from veloxseg.kernels.mixing import has_mixing, mix
from veloxseg.model.config import STAGES, STRIDES, NetworkConfig
from veloxseg.model.jlc import jlc_stage
from veloxseg.model.layers import Conv3d, InstanceNorm
from veloxseg.model.transformer import PatchEmbedding, TransformerStage

__all__ = ["DownSampling", "DualEncoder", "EncoderStage", "Features", "Join"]


class Features(NamedTuple):
    """What one stage hands on."""

    fused: Tensor  # enc_k: (B, C, X, Y, Z)
    modal: Tensor | None  # E_1..E_M before patch merging: (M, B, X, Y, Z, C); None without a transformer stream


class DownSampling(nn.Sequential):
    """Conv(kernel 2p-1, stride p, padding p-1), then IN."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        conv = Conv3d(inputs, outputs, 2 * stride - 1, stride=stride, padding=stride - 1)
        super().__init__(conv, InstanceNorm())


class Join(nn.Sequential):
    """IN(PWC(E_1, ..., E_M)): the modal mixer that brings all modalities to the convolution stream's width."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(Conv3d(inputs, outputs, 1), InstanceNorm())

    def forward(self, e_MBXYZC: Tensor) -> Tensor:
        parts = e_MBXYZC.unbind()
        if has_mixing(parts, self[0]):
            return mix(parts, self[0])
        concatenated_BCXYZ = (
            e_MBXYZC.permute(1, 2, 3, 4, 0, 5).flatten(4).movedim(-1, 1)
        )  # B X Y Z (M C) → B (M C) X Y Z
        return self[1](self[0](concatenated_BCXYZ))


class EncoderStage(nn.Module):
    """One stage of both streams."""

    def __init__(self, config: NetworkConfig, stage: int) -> None:
        super().__init__()
        width = config.widths[stage]
        if stage == 0:
            self.down = DownSampling(sum(config.in_channels), width, STRIDES[0])
        else:
            self.down = DownSampling(config.widths[stage - 1], width, 2)
        self.transformer: TransformerStage | None = None
        self.join: Join | None = None
        if config.attention != "none":
            self.transformer = TransformerStage(config, stage)
            self.join = Join(config.modalities * config.transformer_widths[stage], width)
        self.blocks = jlc_stage(config, "encoder", stage)

    def forward(self, fused_BCXYZ: Tensor, modal_MBXYZC: Tensor | None) -> Features:
        down = self.down(fused_BCXYZ)
        if self.transformer is None or self.join is None or modal_MBXYZC is None:
            return Features(self.blocks(down), None)
        modal = self.transformer(modal_MBXYZC)
        return Features(self.blocks(down + self.join(modal)), modal)

    def merge(self, modal_MBXYZC: Tensor | None) -> Tensor | None:
        """The transformer's features for the next stage; None after the last, or without a transformer."""
        if self.transformer is None or self.transformer.merge is None:
            return None
        return self.transformer.merge(modal_MBXYZC)


class DualEncoder(nn.Module):
    """Image to the features of four stages."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.embedding = PatchEmbedding(config) if config.attention != "none" else None
        self.stages = nn.ModuleList(EncoderStage(config, stage) for stage in range(STAGES))

    def forward(self, image_BCXYZ: Tensor) -> list[Features]:
        fused = image_BCXYZ
        modal = self.embedding(image_BCXYZ) if self.embedding is not None else None
        features: list[Features] = []
        for stage in self.stages:
            features.append(stage(fused, modal))
            fused = features[-1].fused
            modal = stage.merge(features[-1].modal)  # type: ignore[operator]
        return features
