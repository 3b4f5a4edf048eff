"""Slim UNETR: local convolution and sparse global attention in every block of a thin U.

Paper: Pang et al., "Slim UNETR: Scale Hybrid Transformers to Efficient 3D Medical Image Segmentation Under
Limited Computational Resources", IEEE TMI 2024. Layer sizes (widths 24/48/60/96, depths 1/2/3/2, heads
1/2/4/4, sampling 4/2/2/1, dropout 0.3) are facts looked up in the authors' public release
(aigzhusmart/Slim-UNETR); the code is ours. Matched at 2×96³, 2 classes: 1.77 M parameters and 3.83 G
multiply-accumulates as published. Real work is 0.97 G: three quarters of the published figure are
transposed convolutions counted on their output.

Two departures, which change no figure: the attention is scaled by 1/√(head width), as in the paper (the
release computes the scale and leaves it out), and the deepest tokens are laid back on the grid they came
from (the release reshapes them without transposing first, which shuffles voxels and channels).

    block: x + DW(x) → + local(x) → + FFN(x) → + DW(x) → + diffuse(attend(sample(x))) → + FFN(x)
"""

import torch
from torch import Tensor, nn

from veloxseg.peers.parts import check_channels, check_patch

__all__ = ["SlimUNETR", "build"]

WIDTHS = (24, 48, 60, 96)
DEPTHS = (1, 2, 3, 2)
HEADS = (1, 2, 4, 4)
SAMPLING = (4, 2, 2, 1)  # every r-th voxel per axis becomes a token of the global attention
STRIDES = (4, 2, 2, 2)


def build(in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> nn.Module:
    check_channels("slim-unetr", in_channels, classes)
    check_patch("slim-unetr", patch, 32)
    return SlimUNETR(sum(in_channels), classes, patch)


def pointwise(inputs: int, outputs: int) -> nn.Conv3d:
    return nn.Conv3d(inputs, outputs, kernel_size=1, bias=False)


def depthwise(width: int) -> nn.Conv3d:
    return nn.Conv3d(width, width, kernel_size=3, padding=1, groups=width, bias=False)


class SparseAttention(nn.Module):
    """Attention among every r-th voxel, spread over the r³ cells by a depth-wise transposed convolution."""

    def __init__(self, width: int, heads: int, sampling: int) -> None:
        super().__init__()
        self.heads = heads
        self.sample = nn.AvgPool3d(kernel_size=1, stride=sampling)
        self.queries_keys_values = pointwise(width, 3 * width)
        self.spread = nn.ConvTranspose3d(width, width, sampling, stride=sampling, groups=width)
        self.norm = nn.GroupNorm(1, width)
        self.mix = pointwise(width, width)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.sample(x)  # (B, C, X/r, Y/r, Z/r)
        grid = tokens.shape[2:]
        # (B, head, Q|K|V and channel, token)
        q, k, v = self.queries_keys_values(tokens).flatten(2).unflatten(1, (self.heads, -1)).chunk(3, dim=2)
        weights = (q.transpose(-2, -1) @ k * q.shape[2] ** -0.5).softmax(dim=-1)  # (B, head, query, key)
        mixed = (v @ weights.transpose(-2, -1)).flatten(1, 2).unflatten(2, grid)
        return self.mix(self.norm(self.spread(mixed)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, sampling: int) -> None:
        super().__init__()
        local = nn.Sequential(
            nn.BatchNorm3d(width),
            pointwise(width, width),
            depthwise(width),
            nn.BatchNorm3d(width),
            pointwise(width, width),
        )
        self.branches = nn.ModuleList(
            [
                depthwise(width),
                local,
                self.feed_forward(width),
                depthwise(width),
                SparseAttention(width, heads, sampling),
                self.feed_forward(width),
            ]
        )

    @staticmethod
    def feed_forward(width: int) -> nn.Sequential:
        return nn.Sequential(pointwise(width, 4 * width), nn.GELU(), pointwise(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        for branch in self.branches:
            x = x + branch(x)
        return x


class SlimUNETR(nn.Module):
    def __init__(self, inputs: int, classes: int, patch: tuple[int, int, int]) -> None:
        super().__init__()
        tokens = (patch[0] // 32) * (patch[1] // 32) * (patch[2] // 32)
        widths = (inputs, *WIDTHS)
        self.downs = nn.ModuleList(
            nn.Sequential(nn.Conv3d(widths[i], widths[i + 1], r, stride=r), nn.GroupNorm(1, widths[i + 1]))
            for i, r in enumerate(STRIDES)
        )
        outputs = (classes, *WIDTHS)
        self.ups = nn.ModuleList(
            nn.Sequential(nn.ConvTranspose3d(outputs[i + 1], outputs[i], r, stride=r), nn.GroupNorm(1, outputs[i]))
            for i, r in enumerate(STRIDES)
        )
        self.encoder = nn.ModuleList(self.stage(i) for i in range(4))
        self.decoder = nn.ModuleList(self.stage(i) for i in range(4))
        self.positions = nn.Parameter(torch.zeros(1, WIDTHS[-1], tokens))
        self.dropout = nn.Dropout(0.3)

    @staticmethod
    def stage(i: int) -> nn.Sequential:
        return nn.Sequential(*(Block(WIDTHS[i], HEADS[i], SAMPLING[i]) for _ in range(DEPTHS[i])))

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for down, stage in zip(self.downs, self.encoder, strict=True):
            x = stage(down(x))
            skips.append(x)
        grid = x.shape[2:]
        x = self.dropout(x.flatten(2) + self.positions).unflatten(2, grid)
        for i in (3, 2, 1, 0):
            x = self.decoder[i](x if i == 3 else x + skips[i])
            x = self.ups[i](x)
        return x
