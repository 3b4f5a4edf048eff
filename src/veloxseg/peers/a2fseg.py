"""A2FSeg: one nnU-Net per modality, their mean decoded once more, and a voxel-wise vote between the modalities.

Paper: Wang and Hong, "A2FSeg: Adaptive Multi-Modal Fusion Network for Medical Image Segmentation", MICCAI 2023.
Built from the paper and from facts of the authors' release (Zirui0623/A2FSeg) and of VeloxSeg's
(JinPLu/VeloxSeg): nnU-Net's plain U-Net with widths 16, 32, 64, 128, 256, 320. The code is ours.

    each modality ─ U-Net ─┬─ features of all scales ─ mean over modalities ─ fusion decoder ─ fused feature ─┐
                           └─ full-size feature ─ attention map against the fused feature ─ weighted sum ──────┴─ head

The mean lets any subset of modalities through (average fusion); the maps weigh the modalities against each other
at every voxel by a softmax (adaptive fusion). Here all modalities are always present.

Departures, which change no figure: instance norm as in nnU-Net (VeloxSeg's release has batch norm), the vote
takes in all modalities (the release stops after two), and the heads of the single networks, which serve only
their own losses, are left out.

Matched at 2×96³, 2 classes: 41.32 M parameters (41.32 published) and 207.85 G multiply-accumulates as published
(207.97; the heads left out are the rest); real work by FlopCounterMode/2 is 188.65 G. At 128×128×64: 246.34 G
(246.48); with 4 modalities and classes: 74.54 M (74.55), 360.80 G (361.18).
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from veloxseg.peers.parts import InstanceNorm, check_channels, check_patch

__all__ = ["A2FSeg", "build"]

WIDTHS = (16, 32, 64, 128, 256, 320)


def build(in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> nn.Module:
    """A2FSeg for patches that 32 divides."""
    check_channels("a2fseg", in_channels, classes)
    check_patch("a2fseg", patch, 32)
    return A2FSeg(in_channels, classes)


class A2FSeg(nn.Module):
    """(B, sum(in_channels), X, Y, Z) to (B, classes, X, Y, Z)."""

    def __init__(self, in_channels: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.in_channels = list(in_channels)
        width = WIDTHS[0]
        self.encoders = nn.ModuleList(Encoder(channels) for channels in in_channels)
        self.decoders = nn.ModuleList(Decoder() for _ in in_channels)
        self.fusion_decoder = Decoder()
        self.maps = nn.ModuleList(
            nn.Sequential(convolution(2 * width, width), nn.Conv3d(width, width, 3, padding=1), nn.LeakyReLU())
            for _ in in_channels
        )
        self.softmax = nn.Softmax(dim=1)
        self.join = convolution(2 * width, width)
        self.head = nn.Conv3d(width, classes, 1, bias=False)
        for layer in self.modules():
            if isinstance(layer, nn.Conv3d | nn.ConvTranspose3d):
                nn.init.kaiming_normal_(layer.weight, a=0.01)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, images: Tensor) -> Tensor:
        modalities = torch.split(images, self.in_channels, dim=1)
        scales = [
            decoder(encoder(image))
            for encoder, decoder, image in zip(self.encoders, self.decoders, modalities, strict=True)
        ]
        means = [torch.stack(scale).mean(0) for scale in zip(*scales, strict=True)]
        fused = self.fusion_decoder(means)[0]
        own = [scale[0] for scale in scales]  # full size, one per modality
        maps = [layer(torch.cat([feature, fused], dim=1)) for layer, feature in zip(self.maps, own, strict=True)]
        weights_BMCXYZ = self.softmax(torch.stack(maps, dim=1))
        weighted = (weights_BMCXYZ * torch.stack(own, dim=1)).sum(1)
        return self.head(self.join(torch.cat([weighted, fused], dim=1)))


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, 3, stride, padding=1), InstanceNorm(outputs, affine=True), nn.LeakyReLU(inplace=True)
    )


class Encoder(nn.Module):
    """Six scales of two convolutions each. Returns all, finest first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            nn.Sequential(convolution(finer, width, 1 if index == 0 else 2), convolution(width, width))
            for index, (finer, width) in enumerate(pairwise((channels, *WIDTHS)))
        )

    def forward(self, image: Tensor) -> list[Tensor]:
        features = [image]
        for stage in self.stages:
            features.append(stage(features[-1]))
        return features[1:]


class Decoder(nn.Module):
    """Up again, joining the given feature at every scale. Takes and returns all six, finest first."""

    def __init__(self) -> None:
        super().__init__()
        steps = list(pairwise(WIDTHS[::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose3d(below, width, 2, stride=2, bias=False) for below, width in steps)
        self.stages = nn.ModuleList(
            nn.Sequential(convolution(2 * width, width), convolution(width, width)) for _, width in steps
        )

    def forward(self, given: list[Tensor]) -> list[Tensor]:
        features = [given[-1]]
        for up, stage, skip in zip(self.up, self.stages, given[-2::-1], strict=True):
            features.append(stage(torch.cat([up(features[-1]), skip], dim=1)))
        return features[::-1]
