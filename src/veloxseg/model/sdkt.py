"""SDKT: spatially decoupled knowledge transfer from self-supervised texture teachers (Sec. 2.4). Training only.

    GM(X) = X Xᵀ / (C·H·W·D)                                                (Eq. 3)

One teacher per modality reconstructs its image from the encoder's features; the Gram matrices of its decoded
features and the student's are brought together by the loss. The inference weights hold none of it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.errors import ConfigError
from veloxseg.kernels.mixing import has_mixing, mix
from veloxseg.model.config import STAGES, NetworkConfig
from veloxseg.model.decoder import Decoder, logit_difference, voxel_head
from veloxseg.model.encoder import Features
from veloxseg.model.layers import Conv3d, InstanceNorm, initialise
from veloxseg.model.network import VeloxSeg
from veloxseg.types import Size

__all__ = ["SDKTModel", "SDKTOutput", "TextureTeacher", "gram_matrix"]


def gram_matrix(x_BCXYZ: Tensor) -> Tensor:
    """Relations between channels, blind to where they occur: (B, C, C)."""
    flat_BCN = x_BCXYZ.flatten(2)
    return flat_BCN @ flat_BCN.mT / flat_BCN[0].numel()


class TextureTeacher(nn.Module):
    """Reconstructs one modality from its own transformer features and the fused ones."""

    def __init__(self, config: NetworkConfig, channels: int) -> None:
        super().__init__()
        self.inputs = nn.ModuleList(
            nn.Sequential(Conv3d(config.transformer_widths[k] + width, width, 1), InstanceNorm())
            for k, width in enumerate(config.widths)
        )
        self.decoder = Decoder(config)
        self.head = voxel_head(config, channels)
        initialise(self)

    def forward(self, features: list[Features], modality: int) -> tuple[Tensor, Tensor]:
        """The reconstruction and u_1."""
        encoded = []
        for k in range(STAGES):
            fused, modal = features[k]
            assert modal is not None
            parts = (modal[modality], fused.movedim(1, -1))
            conv, norm = self.inputs[k].children()
            if has_mixing(parts, conv):
                encoded.append(mix(parts, conv))
            else:
                encoded.append(norm(conv(torch.cat(parts, -1).movedim(-1, 1))))
        decoded = self.decoder(encoded)[0]
        return self.head(decoded), decoded


@dataclass(frozen=True, kw_only=True)
class SDKTOutput:
    """What the losses need."""

    segmentations: list[Tensor]  # logits at full size, finest first
    reconstruction: Tensor  # like the input
    student_features: Tensor  # u_1 of the student: (B, C, X, Y, Z)
    teacher_features: list[Tensor]  # u_1 of each teacher

    @property
    def student_gram(self) -> Tensor:
        return gram_matrix(self.student_features)

    @property
    def teacher_grams(self) -> list[Tensor]:
        return [gram_matrix(features) for features in self.teacher_features]


class SDKTModel(nn.Module):
    """The student with its teachers. `model.student` is the plain network, whose weights are all that is kept."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        if config.attention == "none":
            raise ConfigError(
                "the teachers read the transformer stream, which attention='none' leaves out; train VeloxSeg itself"
            )
        self.config = config
        self.student = VeloxSeg(config)
        self.teachers = nn.ModuleList(TextureTeacher(config, channels) for channels in config.in_channels)

    def forward(self, image_BCXYZ: Tensor, outputs: int = STAGES, difference: bool = False) -> SDKTOutput:
        """`outputs` and `difference`: see `deep_segmentations`."""
        self.student.check(image_BCXYZ)
        features = self.student.encoder(image_BCXYZ)
        decoded = self.student.decode(features)
        taught = [teacher(features, m) for m, teacher in enumerate(self.teachers)]
        return SDKTOutput(
            segmentations=deep_segmentations(self.student, decoded, outputs, difference),
            reconstruction=torch.cat([reconstruction for reconstruction, _ in taught], 1),
            student_features=decoded[0],
            teacher_features=[features for _, features in taught],
        )


def deep_segmentations(
    network: VeloxSeg, decoded: list[Tensor], outputs: int = STAGES, difference: bool = False
) -> list[Tensor]:
    """The logits and the three deep outputs, all at full size, finest first; of these the first `outputs`.

    With `difference`, two classes are one channel, the second logit minus the first.
    """

    def scores(head: nn.Module, features: Tensor) -> Tensor:
        return logit_difference(head, features) if difference else head(features)

    results = [scores(network.head, decoded[0])]
    for head, features in zip(network.deep_heads[: outputs - 1], decoded[1:outputs], strict=True):
        results.append(upsample(scores(head, features), network.config.patch))
    return results


def upsample(x_BCXYZ: Tensor, size: Size) -> Tensor:
    """Trilinear interpolation with aligned corners, axis by axis as matrix products: five times as fast to train."""
    for axis, length in zip((2, 3, 4), size, strict=True):
        basis = torch.eye(x_BCXYZ.shape[axis], dtype=x_BCXYZ.dtype, device=x_BCXYZ.device)[:, None]
        matrix = F.interpolate(basis, size=length, mode="linear", align_corners=True)[:, 0]  # (from, to)
        x_BCXYZ = torch.tensordot(x_BCXYZ, matrix, dims=([axis], [0])).movedim(-1, axis)
    return x_BCXYZ
