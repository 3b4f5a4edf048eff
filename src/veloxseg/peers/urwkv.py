"""U-RWKV in 3-D: a light convolutional U-Net with one direction-adaptive RWKV module at its bottom.

Paper: Ye et al., "U-RWKV: Lightweight medical image segmentation with direction-adaptive RWKV", MICCAI 2025
(arXiv 2507.11415), a 2-D network. Built from the paper, from Vision-RWKV's equation of the attention, and
from facts of the 3-D version in VeloxSeg's public release (JinPLu/VeloxSeg): widths 8, 16, 64, 80, 128 and
six scan directions. The code is ours.

    stem ─ SASE 8 ─ SASE 16 ─ SASE 64 ─ SASE 80 ─ deep SASE 128 ─ DARM ─ decoder with skips ─ head

SASE (stage-adaptive): shallow stages keep detail by a depthwise convolution and a fourfold pointwise
expansion; the deep stage cascades depthwise convolutions of few channels. DARM (direction-adaptive): one
RWKV block reads the volume in six orders, fastest along each axis and back, and once more with the whole
volume reversed (Dual-RWKV); the six are averaged, the two added.

The recurrence is a chunked scan in plain PyTorch (`scan.py`), so it runs without a GPU. Two departures, which
change no figure: the second pass of Dual-RWKV reads the reversed volume (the release reads the same order
twice), and the token shift moves a sixth of the channels by one voxel along each direction, as Vision-RWKV
does in 2-D (the release reinterprets memory, which mixes channels and voxels).

Matched at 2×96³, 2 classes: 1.44 M parameters (1.44 published) and 20.68 G multiply-accumulates as published
(20.68); real work by FlopCounterMode/2 is 20.11 G. At 128×128×64: 24.51 G (24.51); with 4 modalities and
classes: 21.08 G (21.08). Neither count sees the element-wise recurrence, a few million more.
"""

# B batch, C channel, X Y Z grid, L token

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from veloxseg.peers.parts import check_channels, check_patch
from veloxseg.peers.scan import bidirectional_wkv

__all__ = ["URWKV", "build"]

WIDTHS = (8, 16, 64, 80, 128)


def build(in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> nn.Module:
    """U-RWKV for patches that 16 divides."""
    check_channels("u-rwkv", in_channels, classes)
    check_patch("u-rwkv", patch, 16)
    return URWKV(sum(in_channels), classes)


class URWKV(nn.Module):
    """(B, channels, X, Y, Z) to (B, classes, X, Y, Z)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        first, *_, last = WIDTHS
        self.stem = nn.Sequential(nn.Conv3d(channels, first, 3, padding=1), nn.BatchNorm3d(first), nn.GELU())
        inputs = (first, *WIDTHS[:-2])
        self.shallow = nn.ModuleList(ShallowStage(i, o) for i, o in zip(inputs, WIDTHS[:-1], strict=True))
        self.deep = DeepStage(WIDTHS[-2], last)
        self.directions = DirectionAdaptive(last)
        self.decoder = nn.ModuleList(
            DecoderStage(below, width) for below, width in zip(WIDTHS[:0:-1], WIDTHS[-2::-1], strict=True)
        )
        self.head = nn.Conv3d(first, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        features = self.stem(images)
        skips = []
        for stage in self.shallow:
            skips.append(stage(features))
            features = functional.max_pool3d(skips[-1], 2)
        features = self.directions(self.deep(features))
        for stage in self.decoder:
            features = stage(features, skips.pop())
        return self.head(features)


def pointwise(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv3d(inputs, outputs, 1), nn.BatchNorm3d(outputs))


class ShallowStage(nn.Module):
    """SASE where resolution is high: depthwise convolution, then a pointwise expansion by four."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.local = nn.Sequential(
            nn.Conv3d(inputs, inputs, 3, padding=1, groups=inputs), nn.GELU(), nn.BatchNorm3d(inputs)
        )
        self.mix = nn.Sequential(pointwise(inputs, 4 * inputs), nn.GELU(), pointwise(4 * inputs, outputs), nn.GELU())
        self.keeps_width = inputs == outputs

    def forward(self, features: Tensor) -> Tensor:
        mixed: Tensor = self.mix(features + self.local(features))
        return features + mixed if self.keeps_width else mixed


class DeepStage(nn.Module):
    """SASE where semantics matter: squeeze by eight, a cascade of depthwise convolutions, excite."""

    squeeze = 8

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        squeezed = outputs // self.squeeze
        self.reduce = pointwise(inputs, squeezed)
        self.cascade = nn.ModuleList(
            nn.Conv3d(squeezed // 2, squeezed // 2, 3, padding=1, groups=squeezed // 2) for _ in range(self.squeeze - 1)
        )
        self.excite = pointwise(self.squeeze * squeezed // 2, outputs)

    def forward(self, features: Tensor) -> Tensor:
        squeezed = self.reduce(features)
        even, odd = squeezed[:, 0::2], squeezed[:, 1::2]
        gathered, scale = [even + odd], odd
        for convolution in self.cascade:
            scale = convolution(scale)
            gathered.append(scale)
        return self.excite(torch.cat(gathered, dim=1))


class DirectionAdaptive(nn.Module):
    """DARM: one RWKV block in six reading orders, then a channel mix; and all that on the reversed volume."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spatial = SpatialMix(width)
        self.spatial_norm = nn.LayerNorm(width)
        self.spatial_scale = nn.Parameter(torch.ones(width))
        self.channel = ChannelMix(width)
        self.channel_norm = nn.LayerNorm(width)
        self.channel_scale = nn.Parameter(torch.ones(width))

    def forward(self, features_BCXYZ: Tensor) -> Tensor:
        tokens_BXYZC = features_BCXYZ.movedim(1, -1)
        space = (1, 2, 3)
        both = self.one_way(tokens_BXYZC) + self.one_way(tokens_BXYZC.flip(space)).flip(space)
        return both.movedim(-1, 1).contiguous()

    def one_way(self, tokens_BXYZC: Tensor) -> Tensor:
        orders = [self.read(tokens_BXYZC, fastest, back) for fastest in (3, 2, 1) for back in (False, True)]
        tokens = torch.stack(orders).mean(0)
        mixed: Tensor = self.channel(self.channel_norm(tokens))
        return tokens + self.channel_scale * mixed

    def read(self, tokens_BXYZC: Tensor, fastest: int, back: bool) -> Tensor:
        """Mix along the order in which axis `fastest` runs fastest, forwards or `back`."""
        ordered = tokens_BXYZC.flip(fastest) if back else tokens_BXYZC
        ordered = ordered.movedim(fastest, 3)
        mixed: Tensor = self.spatial(self.spatial_norm(ordered))
        ordered = (ordered + self.spatial_scale * mixed).movedim(3, fastest)
        return ordered.flip(fastest) if back else ordered


class SpatialMix(nn.Module):
    """RWKV's attention: a token gathers the values of all others, weighted by their keys and distance."""

    def __init__(self, width: int) -> None:
        super().__init__()
        position = torch.arange(width) / width
        self.key_mix, self.value_mix = nn.Parameter(position.clone()), nn.Parameter(position.clone())
        self.receptance_mix = nn.Parameter(position.sqrt())
        self.key, self.value, self.receptance, self.output = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.norm = nn.LayerNorm(width)
        # Spread of ranges over the channels, from almost no decay to a fast one, as in RWKV-4's first layer.
        self.decay = nn.Parameter(-5 + 8 * (torch.arange(width) / (width - 1)) ** 0.7)
        self.bonus = nn.Parameter(math.log(0.3) + 0.5 * ((torch.arange(width) + 1) % 3 - 1))

    def forward(self, tokens_BXYZC: Tensor) -> Tensor:
        shifted = shift_by_a_voxel(tokens_BXYZC)
        key = self.key(torch.lerp(shifted, tokens_BXYZC, self.key_mix)).flatten(1, 3)  # (B, L, C)
        value = self.value(torch.lerp(shifted, tokens_BXYZC, self.value_mix)).flatten(1, 3)
        receptance = self.receptance(torch.lerp(shifted, tokens_BXYZC, self.receptance_mix))
        gathered = self.norm(bidirectional_wkv(self.decay, self.bonus, key, value)).view_as(tokens_BXYZC)
        return self.output(torch.sigmoid(receptance) * gathered)


class ChannelMix(nn.Module):
    """RWKV's feed-forward part: squared ReLU, gated by the receptance."""

    def __init__(self, width: int) -> None:
        super().__init__()
        position = torch.arange(width) / width
        self.key_mix, self.receptance_mix = nn.Parameter(position.clone()), nn.Parameter(position.clone())
        self.key = nn.Linear(width, 4 * width, bias=False)
        self.norm = nn.LayerNorm(4 * width)
        self.value = nn.Linear(4 * width, width, bias=False)
        self.receptance = nn.Linear(width, width, bias=False)

    def forward(self, tokens_BXYZC: Tensor) -> Tensor:
        shifted = shift_by_a_voxel(tokens_BXYZC)
        key = self.norm(self.key(torch.lerp(shifted, tokens_BXYZC, self.key_mix)).relu().square())
        gate = torch.sigmoid(self.receptance(torch.lerp(shifted, tokens_BXYZC, self.receptance_mix)))
        return gate * self.value(key)


def shift_by_a_voxel(tokens_BXYZC: Tensor) -> Tensor:
    """Move a sixth of the channels by one voxel along each of six directions; zeros enter at the border."""
    parts = list(tokens_BXYZC.tensor_split(6, dim=-1))
    for index, (axis, forward) in enumerate((axis, way) for axis in (1, 2, 3) for way in (True, False)):
        part, size = parts[index], tokens_BXYZC.shape[axis]
        border = torch.zeros_like(part.narrow(axis, 0, 1))
        kept = part.narrow(axis, 0 if forward else 1, size - 1)
        parts[index] = torch.cat([border, kept] if forward else [kept, border], dim=axis)
    return torch.cat(parts, dim=-1)


class DecoderStage(nn.Module):
    """Up by two, join the skip, fuse in two groups of channels, expand by four and come back."""

    def __init__(self, below: int, width: int) -> None:
        super().__init__()
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="nearest"),
            nn.Conv3d(below, width, 3, padding=1),
            nn.BatchNorm3d(width),
            nn.GELU(),
        )
        joined = 2 * width
        self.fuse = nn.Sequential(
            nn.Conv3d(joined, joined, 3, padding=1, groups=2),
            nn.GELU(),
            nn.BatchNorm3d(joined),
            nn.Conv3d(joined, 4 * width, 1),
            nn.GELU(),
            nn.BatchNorm3d(4 * width),
            nn.Conv3d(4 * width, width, 1),
            nn.GELU(),
            nn.BatchNorm3d(width),
        )

    def forward(self, features: Tensor, skip: Tensor) -> Tensor:
        return self.fuse(torch.cat([skip, self.up(features)], dim=1))
