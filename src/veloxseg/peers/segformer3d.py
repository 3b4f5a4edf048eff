"""SegFormer-3D: a pyramid of transformers with shortened keys, and a decoder of linear maps only.

Paper: Perera, Navard and Yilmaz, "SegFormer3D: an Efficient Transformer for 3D Medical Image Segmentation",
CVPR workshops 2024. Layer sizes (widths 32/64/160/256, two blocks per stage, heads 1/2/5/8, keys shortened
4/2/1/1 times per axis, decoder width 256) are facts looked up in the authors' public release
(OSUPCVLab/SegFormer3D); the code is ours. Matched at 2×96³, 2 classes: 4.50 M parameters and 5.11 G
multiply-accumulates as published; with the attention products, which that counter does not see, it is 5.56
G.

The release needs cubes; here the grid is handed on, so that any patch of multiples of 32 works.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.peers.parts import check_channels, check_patch

__all__ = ["SegFormer3D", "build"]

WIDTHS = (32, 64, 160, 256)
HEADS = (1, 2, 5, 8)
SHORTENING = (4, 2, 1, 1)
BLOCKS = 2
EXPANSION = 4
DECODER_WIDTH = 256


def build(in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> nn.Module:
    check_channels("segformer-3d", in_channels, classes)
    check_patch("segformer-3d", patch, 32)
    return SegFormer3D(sum(in_channels), classes)


def to_tokens(volume: Tensor) -> Tensor:
    return volume.flatten(2).transpose(1, 2)  # (B, C, X, Y, Z) -> (B, S, C)


def to_volume(tokens: Tensor, grid: torch.Size) -> Tensor:
    return tokens.transpose(1, 2).reshape(tokens.shape[0], tokens.shape[2], *grid)  # (B, S, C) -> (B, C, X, Y, Z)


class Attention(nn.Module):
    """Every voxel asks; keys and values come from a grid that is `shortening` times coarser."""

    def __init__(self, width: int, heads: int, shortening: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.project = nn.Linear(width, width)
        self.shorten = nn.Conv3d(width, width, shortening, stride=shortening) if shortening > 1 else None
        self.norm = nn.LayerNorm(width) if shortening > 1 else None

    def forward(self, tokens: Tensor, grid: torch.Size) -> Tensor:
        q = self.query(tokens).unflatten(2, (self.heads, -1)).transpose(1, 2)  # (B, head, S, c)
        if self.shorten is not None and self.norm is not None:
            tokens = self.norm(to_tokens(self.shorten(to_volume(tokens, grid))))
        k, v = self.key_value(tokens).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return self.project(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class MixFeedForward(nn.Module):
    """A feed-forward layer that learns positions from a depth-wise convolution in its middle."""

    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = EXPANSION * width
        self.widen = nn.Linear(width, hidden)
        self.mix = nn.Conv3d(hidden, hidden, 3, padding=1, groups=hidden)
        self.norm = nn.BatchNorm3d(hidden)
        self.narrow = nn.Linear(hidden, width)

    def forward(self, tokens: Tensor, grid: torch.Size) -> Tensor:
        volume = self.norm(self.mix(to_volume(self.widen(tokens), grid)))
        return self.narrow(F.gelu(to_tokens(volume)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, shortening: int) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads, shortening)
        self.norm_feed_forward = nn.LayerNorm(width)
        self.feed_forward = MixFeedForward(width)

    def forward(self, tokens: Tensor, grid: torch.Size) -> Tensor:
        tokens = tokens + self.attention(self.norm_attention(tokens), grid)
        return tokens + self.feed_forward(self.norm_feed_forward(tokens), grid)


class Stage(nn.Module):
    def __init__(self, inputs: int, index: int) -> None:
        super().__init__()
        width = WIDTHS[index]
        kernel, stride = (7, 4) if index == 0 else (3, 2)
        self.embed = nn.Conv3d(inputs, width, kernel, stride=stride, padding=kernel // 2)
        self.norm_in = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, HEADS[index], SHORTENING[index]) for _ in range(BLOCKS))
        self.norm_out = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        grid = x.shape[2:]
        tokens = self.norm_in(to_tokens(x))
        for block in self.blocks:
            tokens = block(tokens, grid)
        return to_volume(self.norm_out(tokens), grid)


class SegFormer3D(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.stages = nn.ModuleList(Stage((inputs, *WIDTHS)[i], i) for i in range(4))
        self.unify = nn.ModuleList(
            nn.Sequential(nn.Linear(width, DECODER_WIDTH), nn.LayerNorm(DECODER_WIDTH)) for width in WIDTHS
        )
        self.fuse = nn.Sequential(
            nn.Conv3d(4 * DECODER_WIDTH, DECODER_WIDTH, 1, bias=False), nn.BatchNorm3d(DECODER_WIDTH), nn.ReLU()
        )
        self.classify = nn.Conv3d(DECODER_WIDTH, classes, 1)
        self.enlarge = nn.Upsample(scale_factor=4, mode="trilinear", align_corners=False)
        self.apply(initialise)

    def forward(self, x: Tensor) -> Tensor:
        levels: list[Tensor] = []
        for stage, unify in zip(self.stages, self.unify, strict=True):
            x = stage(x)
            level = to_volume(unify(to_tokens(x)), x.shape[2:])
            if levels:  # all levels meet on the finest grid, a quarter of the patch
                level = F.interpolate(level, size=levels[0].shape[2:], mode="trilinear", align_corners=False)
            levels.append(level)
        return self.enlarge(self.classify(self.fuse(torch.cat(levels, dim=1))))


def initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv3d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
