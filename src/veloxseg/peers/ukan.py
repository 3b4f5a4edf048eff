"""U-KAN in three dimensions: a convolutional U whose deepest stages mix channels by learned splines.

Paper: Li et al., "U-KAN Makes Strong Backbone for Medical Image Segmentation and Generation", AAAI 2025,
which is two-dimensional; here every layer has its third axis. Layer sizes (widths 16/32/128/160/256, three
spline layers per block, splines of order 3 on 5 intervals of [−1, 1]) are facts looked up in the authors'
public release (CUHK-AIM-Group/U-KAN) and public ports to 3-D; the code is ours. Matched at 2×96³, 2
classes: 22.90 G multiply-accumulates and 7.06 M parameters as published. That counter does not see the
spline layers, which are bare parameters: with them it is 11.05 M and 23.83 G.

A spline layer replaces W·x by Σ over input channels of φ(x), where each φ is a learned curve
    φ(x) = w · silu(x) + s · Σ_j c_j · B_j(x)
with B_j the cubic B-splines on a uniform grid, which have a closed form.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.peers.parts import check_channels, check_patch

__all__ = ["UKAN3D", "build"]

CONV_WIDTHS = (16, 32, 128)
KAN_WIDTHS = (160, 256)
INTERVALS = 5
ORDER = 3


def build(in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> nn.Module:
    check_channels("u-kan", in_channels, classes)
    check_patch("u-kan", patch, 32)
    return UKAN3D(sum(in_channels), classes)


def cubic_splines(x: Tensor) -> Tensor:
    """The values of the 8 cubic B-splines that live on 5 intervals of [−1, 1]: (…, C) -> (…, C, 8)."""
    spacing = 2 / INTERVALS
    count = INTERVALS + ORDER
    centres = torch.arange(count, dtype=x.dtype, device=x.device) * spacing - 1 - spacing  # the outermost peak outside
    distance = ((x.unsqueeze(-1) - centres) / spacing).abs()
    inner = (4 - 6 * distance**2 + 3 * distance**3) / 6
    outer = (2 - distance).clamp(min=0) ** 3 / 6
    return torch.where(distance < 1, inner, outer)


class SplineLinear(nn.Module):
    """A Kolmogorov–Arnold layer: one learned curve per pair of input and output channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base = nn.Parameter(torch.empty(width, width))
        self.curves = nn.Parameter(torch.randn(width, width, INTERVALS + ORDER) * 0.1 / INTERVALS)
        self.scale = nn.Parameter(torch.empty(width, width))
        nn.init.kaiming_uniform_(self.base, a=math.sqrt(5))
        nn.init.kaiming_uniform_(self.scale, a=math.sqrt(5))

    def forward(self, tokens: Tensor) -> Tensor:
        curves = (self.curves * self.scale.unsqueeze(-1)).flatten(1)
        return F.linear(F.silu(tokens), self.base) + F.linear(cubic_splines(tokens).flatten(-2), curves)


class SplineBlock(nn.Module):
    """norm → three times (splines over channels, depth-wise convolution over voxels) → + input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.splines = nn.ModuleList(SplineLinear(width) for _ in range(3))
        self.convolutions = nn.ModuleList(
            nn.Sequential(nn.Conv3d(width, width, 3, padding=1, groups=width), nn.BatchNorm3d(width), nn.ReLU())
            for _ in range(3)
        )
        self.norm_out = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        tokens = x.flatten(2).transpose(1, 2)  # (B, S, C)
        mixed = self.norm(tokens)
        for spline, convolution in zip(self.splines, self.convolutions, strict=True):
            volume = spline(mixed).transpose(1, 2).unflatten(2, grid)
            mixed = convolution(volume).flatten(2).transpose(1, 2)
        return self.norm_out(tokens + mixed).transpose(1, 2).unflatten(2, grid)


class Embed(nn.Module):
    """Halves the grid by an overlapping convolution and normalises the tokens."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.project = nn.Conv3d(inputs, outputs, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.project(x)
        return self.norm(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, x.shape[2:])


def convolutions(inputs: int, middle: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv3d(inputs, middle, 3, padding=1),
        nn.BatchNorm3d(middle),
        nn.ReLU(),
        nn.Conv3d(middle, outputs, 3, padding=1),
        nn.BatchNorm3d(outputs),
        nn.ReLU(),
    )


class UKAN3D(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        a, b, c = CONV_WIDTHS
        d, e = KAN_WIDTHS
        self.encoder = nn.ModuleList([convolutions(inputs, a, a), convolutions(a, b, b), convolutions(b, c, c)])
        self.embeds = nn.ModuleList([Embed(c, d), Embed(d, e)])
        self.encoder_splines = nn.ModuleList([SplineBlock(d), SplineBlock(e)])
        self.decoder_splines = nn.ModuleList([SplineBlock(d), SplineBlock(c)])
        widths = (e, d, c, b, a, a)
        self.decoder = nn.ModuleList(convolutions(widths[i], widths[i], widths[i + 1]) for i in range(5))
        self.classify = nn.Conv3d(a, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for convolve in self.encoder:
            x = F.max_pool3d(convolve(x), 2)
            levels.append(x)
        for embed, splines in zip(self.embeds, self.encoder_splines, strict=True):
            x = splines(embed(x))
            levels.append(x)
        levels.pop()  # the deepest is x itself
        for i, convolve in enumerate(self.decoder):
            x = F.interpolate(convolve(x), scale_factor=2, mode="trilinear", align_corners=False)
            if levels:
                x = x + levels.pop()
            if i < len(self.decoder_splines):
                x = self.decoder_splines[i](x)
        return self.classify(x)
