"""UNETR++: attention over voxels and over channels from the same queries and keys.

Paper: Shaker et al., "UNETR++: Delving into Efficient and Accurate 3D Medical Image Segmentation", IEEE TMI
2024. Layer sizes (widths 32/64/128/256, three blocks per stage, 4 heads, projections to 64/64/64/32 tokens)
are facts looked up in the authors' public release (Amshaker/unetr_plus_plus, its tumour configuration); the
code is ours. Matched at 2×96³, 2 classes: 57.93 G multiply-accumulates and 19.97 M parameters as published.
That counter sees layers only: with the position tables and token projections, which are bare parameters, it
is 29.54 M; and half of the multiply-accumulates are transposed convolutions counted on their output, real
work is 29.83 G.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.peers.parts import InstanceNorm, check_channels, check_patch

__all__ = ["UNETRPlusPlus", "build"]

WIDTHS = (32, 64, 128, 256)
PROJECTED_TOKENS = (64, 64, 64, 32)
HEADS = 4
BLOCKS = 3
FINE_WIDTH = 16  # at full resolution
DROPOUT = 0.1


def build(in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> nn.Module:
    check_channels("unetr++", in_channels, classes)
    check_patch("unetr++", patch, 32)
    return UNETRPlusPlus(sum(in_channels), classes, patch)


def conv3(inputs: int, outputs: int) -> nn.Conv3d:
    return nn.Conv3d(inputs, outputs, 3, padding=1, bias=False)


class ResidualConvolutions(nn.Module):
    """norm(conv(act(norm(conv(x))))) + x, with a projected shortcut where the width changes."""

    def __init__(self, inputs: int, outputs: int, norm: type[nn.Module]) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv3(inputs, outputs), norm(outputs), nn.LeakyReLU(0.01), conv3(outputs, outputs), norm(outputs)
        )
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv3d(inputs, outputs, 1, bias=False), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.body(x) + self.shortcut(x), 0.01)


class PairedAttention(nn.Module):
    """Channel attention (c×c) and spatial attention (tokens × P projected tokens) share queries and keys."""

    def __init__(self, tokens: int, width: int, projected: int) -> None:
        super().__init__()
        self.shared = nn.Linear(width, 4 * width, bias=False)  # Q, K, V for channels, V for voxels
        self.project = nn.Parameter(torch.empty(tokens, projected).uniform_(-(projected**-0.5), projected**-0.5))
        self.channel_temperature = nn.Parameter(torch.ones(HEADS, 1, 1))
        self.spatial_temperature = nn.Parameter(torch.ones(HEADS, 1, 1))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        # each (B, head, c, S)
        q, k, v_channel, v_spatial = self.shared(x).unflatten(2, (4, HEADS, -1)).permute(2, 0, 3, 4, 1).unbind(0)
        k_short, v_short = k @ self.project, v_spatial @ self.project  # (B, head, c, P)
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        across = (q @ k.transpose(-2, -1) * self.channel_temperature).softmax(dim=-1)  # (B, head, c, c)
        along = (q.transpose(-2, -1) @ k_short * self.spatial_temperature).softmax(dim=-1)  # (B, head, S, P)
        by_channel = self.dropout(across) @ v_channel  # (B, head, c, S)
        by_voxel = v_short @ self.dropout(along).transpose(-2, -1)  # (B, head, c, S)
        return (by_channel + by_voxel).flatten(1, 2).transpose(1, 2)  # (B, S, C)


class Block(nn.Module):
    def __init__(self, tokens: int, width: int, projected: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(1, tokens, width))
        self.norm = nn.LayerNorm(width)
        self.attention = PairedAttention(tokens, width, projected)
        self.scale = nn.Parameter(torch.full((width,), 1e-6))
        self.convolutions = ResidualConvolutions(width, width, nn.BatchNorm3d)
        self.mix = nn.Sequential(nn.Dropout3d(DROPOUT), nn.Conv3d(width, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        grid = x.shape[2:]
        tokens = x.flatten(2).transpose(1, 2) + self.positions  # (B, S, C)
        tokens = tokens + self.scale * self.attention(self.norm(tokens))
        x = tokens.transpose(1, 2).unflatten(2, grid)
        return x + self.mix(self.convolutions(x))


class UNETRPlusPlus(nn.Module):
    def __init__(self, inputs: int, classes: int, patch: tuple[int, int, int]) -> None:
        super().__init__()
        tokens = [patch[0] * patch[1] * patch[2] // (4 * 2**i) ** 3 for i in range(4)]
        # one group of the first norm per input channel, as in the release, where that divides the width
        groups = inputs if WIDTHS[0] % inputs == 0 else 1
        self.downs = nn.ModuleList(
            [nn.Sequential(nn.Conv3d(inputs, WIDTHS[0], 4, stride=4, bias=False), nn.GroupNorm(groups, WIDTHS[0]))]
        )
        self.ups = nn.ModuleList([nn.ConvTranspose3d(WIDTHS[0], FINE_WIDTH, 4, stride=4, bias=False)])
        for thin, wide in pairwise(WIDTHS):
            self.downs.append(nn.Sequential(nn.Conv3d(thin, wide, 2, stride=2, bias=False), nn.GroupNorm(thin, wide)))
            self.ups.append(nn.ConvTranspose3d(wide, thin, 2, stride=2, bias=False))
        self.encoder = nn.ModuleList(self.stage(tokens[i], WIDTHS[i], PROJECTED_TOKENS[i]) for i in range(len(WIDTHS)))
        self.decoder = nn.ModuleList(
            self.stage(tokens[i], WIDTHS[i], PROJECTED_TOKENS[i]) for i in range(len(WIDTHS) - 1)
        )
        self.fine = ResidualConvolutions(inputs, FINE_WIDTH, InstanceNorm)
        self.finish = ResidualConvolutions(FINE_WIDTH, FINE_WIDTH, InstanceNorm)
        self.classify = nn.Conv3d(FINE_WIDTH, classes, 1)

    @staticmethod
    def stage(tokens: int, width: int, projected: int) -> nn.Sequential:
        return nn.Sequential(*(Block(tokens, width, projected) for _ in range(BLOCKS)))

    def forward(self, image: Tensor) -> Tensor:
        skips = [self.fine(image)]
        x = image
        for down, stage in zip(self.downs, self.encoder, strict=True):
            x = stage(down(x))
            skips.append(x)
        for i in (3, 2, 1):
            x = self.decoder[i - 1](self.ups[i](x) + skips[i])
        x = self.finish(self.ups[0](x) + skips[0])
        return self.classify(x)
