"""NestedFormer: one pooling encoder per modality, attention within and then across modalities at the bottom.

Paper: Xing et al., "NestedFormer: Nested Modality-Aware Transformer for Brain Tumor Segmentation", MICCAI 2022
(arXiv 2208.14876). Built from the paper and from facts of the authors' release (920232796/NestedFormer) and of
VeloxSeg's (JinPLu/VeloxSeg): widths 16, 16, 32, 64, 128, two blocks per scale, windows 3×3×2, 32 tokens per
modality. The code is ours.

    each modality ─ Global Poolformer encoder, 5 scales ─┬─ scales 1 to 4: fused by convolutions ──┐
                                                         └─ scale 5: NMaFA + convolutions ─ decoder ─ head

Global Poolformer: the mixer spreads each channel's mean over the volume with a weight and an offset per voxel.
NMaFA (nested modality-aware feature aggregation): spatial attention over all modalities in planes, along the
first axis and in windows; then its result queries a few learned tokens of every modality.

Two departures, which change no figure: where a grid is not divided by the windows (128 voxels give a grid of 8)
they shrink to the largest size that divides it, and the bias of the windows has a table of the window's own
offsets. Each modality may have several channels (the release takes one).

Matched at 2×96³, 2 classes: 4.78 M parameters (VeloxSeg's table has 4.71, as its counter leaves out position
tables and norms of its own kind; the same rule gives 4.71 here) and 58.62 G multiply-accumulates as published
(58.62); real work by FlopCounterMode/2 is 56.90 G. At 128×128×64: 69.48 G (69.48); with 4 modalities and
classes: 7.52 M as published (7.52), 88.43 G (88.43).
"""

# B batch, M modality, C channel, X Y Z grid, L token, H head

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from veloxseg.peers.parts import InstanceNorm, check_channels, check_patch, cut_windows, place_windows, relative_offsets

__all__ = ["NestedFormer", "build"]

WIDTHS = (16, 16, 32, 64, 128)
WINDOW = (3, 3, 2)
HEADS = 8
TOKENS = 32
DROPOUT = 0.1
Grid = tuple[int, int, int]


def build(in_channels: tuple[int, ...], classes: int, patch: Grid) -> nn.Module:
    """NestedFormer for patches that 16 divides; its pooling layers tie it to the patch."""
    check_channels("nestedformer", in_channels, classes)
    check_patch("nestedformer", patch, 16)
    return NestedFormer(in_channels, classes, patch)


class NestedFormer(nn.Module):
    """(B, sum(in_channels), X, Y, Z) to (B, classes, X, Y, Z)."""

    def __init__(self, in_channels: tuple[int, ...], classes: int, patch: Grid) -> None:
        super().__init__()
        self.in_channels = list(in_channels)
        modalities, deepest = len(in_channels), WIDTHS[-1]
        self.encoders = nn.ModuleList(ModalityEncoder(channels, patch) for channels in in_channels)
        grid = shrunk(patch, 16)
        self.spatial = SpatialAttention(modalities * deepest, deepest, grid)
        self.across = ModalityAttention(modalities, deepest, grid)
        self.fuse = nn.ModuleList(double_convolution(modalities * width, width) for width in WIDTHS)
        self.up = nn.ModuleList(nn.ConvTranspose3d(width, width // 2, 2, stride=2) for width in WIDTHS[:0:-1])
        self.decoder = nn.ModuleList(
            double_convolution(width + below // 2, width)
            for below, width in zip(WIDTHS[:0:-1], WIDTHS[-2::-1], strict=True)
        )
        self.head = nn.Conv3d(WIDTHS[0], classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        modalities = torch.split(images, self.in_channels, dim=1)
        scales = [encoder(image) for encoder, image in zip(self.encoders, modalities, strict=True)]
        joined = [torch.cat(scale, dim=1) for scale in zip(*scales, strict=True)]
        skips = [fuse(features) for fuse, features in zip(self.fuse, joined, strict=True)]
        deepest = [scale[-1] for scale in scales]
        features = skips.pop() + self.across(self.spatial(joined[-1]), deepest)
        for up, stage in zip(self.up, self.decoder, strict=True):
            features = stage(torch.cat([skips.pop(), up(features)], dim=1))
        return self.head(features)


def shrunk(patch: Grid, factor: int) -> Grid:
    return patch[0] // factor, patch[1] // factor, patch[2] // factor


def double_convolution(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [nn.Conv3d(width, outputs, 3, padding=1), InstanceNorm(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class ModalityEncoder(nn.Module):
    """Two convolutions at full size, then four scales of Global Poolformer. Returns all five, finest first."""

    def __init__(self, channels: int, patch: Grid) -> None:
        super().__init__()
        self.stem = double_convolution(channels, WIDTHS[0])
        self.scales = nn.ModuleList(
            nn.Sequential(
                nn.Conv3d(finer, width, 2, stride=2),
                ChannelNorm(width),
                *(PoolBlock(width, shrunk(patch, 2**scale)) for _ in range(2)),
            )
            for scale, (finer, width) in enumerate(pairwise(WIDTHS), start=1)
        )

    def forward(self, image: Tensor) -> list[Tensor]:
        features = [self.stem(image)]
        for scale in self.scales:
            features.append(scale(features[-1]))
        return features


class ChannelNorm(nn.Module):
    """Layer norm over the channels of (B, C, X, Y, Z)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        variance, mean = torch.var_mean(features, dim=1, keepdim=True, correction=0)
        weight, bias = self.weight.view(-1, 1, 1, 1), self.bias.view(-1, 1, 1, 1)
        return torch.addcmul(bias, (features - mean) * torch.rsqrt(variance + 1e-6), weight)


class PoolBlock(nn.Module):
    """Global pooling as mixer, then a pointwise feed-forward part."""

    def __init__(self, width: int, grid: Grid) -> None:
        super().__init__()
        self.mixer_norm = ChannelNorm(width)
        self.spread = nn.Linear(1, math.prod(grid))
        self.feed = nn.Sequential(
            ChannelNorm(width),
            nn.Conv3d(width, 2 * width, 1),
            nn.GELU(),
            nn.Dropout(DROPOUT),
            nn.Conv3d(2 * width, width, 1),
            nn.Dropout(DROPOUT),
        )

    def forward(self, features: Tensor) -> Tensor:
        normal = self.mixer_norm(features)
        means = normal.mean(dim=(2, 3, 4)).unsqueeze(-1)  # (B, C, 1)
        features = features + normal + self.spread(means).view_as(features)
        fed: Tensor = self.feed(features)
        return features + fed


class Attention(nn.Module):
    """Multi-head attention of `queries` over `others`, (B…, L, C) each, with an optional bias (L, L)."""

    def __init__(self, width: int, *, projection_bias: bool = True) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width, bias=projection_bias) for _ in range(3))
        self.softmax = nn.Softmax(dim=-1)
        self.mix = nn.Linear(width, width)

    def forward(self, queries: Tensor, others: Tensor, bias: Tensor | None = None) -> Tensor:
        query, key, value = (
            projected.reshape(*projected.shape[:-1], HEADS, -1).transpose(-2, -3)  # (B…, H, L, C/H)
            for projected in (self.query(queries), self.key(others), self.value(others))
        )
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        weights = self.softmax(scores if bias is None else scores + bias)
        return self.mix((weights @ value).transpose(-2, -3).flatten(-2))


def feed_forward(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(DROPOUT), nn.Linear(2 * width, width), nn.Dropout(DROPOUT)
    )


class SpatialAttention(nn.Module):
    """First half of NMaFA: all modalities as one volume of tokens, mixed in planes, lines and windows."""

    def __init__(self, inputs: int, width: int, grid: Grid) -> None:
        super().__init__()
        self.embed = nn.Conv3d(inputs, width, 1)
        self.plane_position = nn.Parameter(torch.zeros(grid[1], grid[2], width))
        self.line_position = nn.Parameter(torch.zeros(grid[0], 1, 1, width))
        self.blocks = nn.ModuleList(SpatialBlock(width, grid) for _ in range(2))

    def forward(self, features: Tensor) -> Tensor:
        tokens_BXYZC = self.embed(features).movedim(1, -1)
        first, second = self.blocks
        tokens_BXYZC = first(tokens_BXYZC, self.plane_position, self.line_position)
        return second(tokens_BXYZC, 0, 0)


class SpatialBlock(nn.Module):
    """Attention in the plane, along the line and in the window, added; then feed-forward."""

    def __init__(self, width: int, grid: Grid) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.plane, self.line = Attention(width), Attention(width)
        self.window = WindowAttention(width, grid)
        self.feed = nn.Sequential(nn.LayerNorm(width, eps=1e-6), feed_forward(width))

    def forward(self, tokens_BXYZC: Tensor, plane_position: Tensor | int, line_position: Tensor | int) -> Tensor:
        normal = self.norm(tokens_BXYZC)
        planes = (normal + plane_position).flatten(2, 3)  # (B, X, YZ, C)
        lines = (normal + line_position).movedim(1, 3)  # (B, Y, Z, X, C)
        in_planes = self.plane(planes, planes).view_as(normal)
        along_lines = self.line(lines, lines).movedim(3, 1)
        tokens: Tensor = tokens_BXYZC + in_planes + along_lines + self.window(normal)
        fed: Tensor = self.feed(tokens)
        return tokens + fed


class WindowAttention(nn.Module):
    """Attention in windows of 3×3×2, or per axis the largest divisor of the grid below that."""

    def __init__(self, width: int, grid: Grid) -> None:
        super().__init__()
        x, y, z = (
            max(edge for edge in range(1, largest + 1) if size % edge == 0)
            for size, largest in zip(grid, WINDOW, strict=True)
        )
        self.grid, self.window = grid, (x, y, z)
        self.attention = Attention(width, projection_bias=False)
        self.table = nn.Parameter(torch.randn(math.prod(2 * edge - 1 for edge in self.window)))
        self.register_buffer("offsets", relative_offsets(self.window), persistent=False)
        self.offsets: Tensor

    def forward(self, tokens_BXYZC: Tensor) -> Tensor:
        windows = cut_windows(tokens_BXYZC, self.window)
        mixed = self.attention(windows, windows, self.table[self.offsets])
        return place_windows(mixed, self.window, self.grid)


class ModalityAttention(nn.Module):
    """Second half of NMaFA: the spatial tokens query a few learned tokens of every modality."""

    def __init__(self, modalities: int, width: int, grid: Grid) -> None:
        super().__init__()
        self.embed = nn.ModuleList(nn.Conv3d(width, width, 1) for _ in range(modalities))
        self.position = nn.Parameter(torch.zeros(modalities, width, *grid))
        self.dropout = nn.Dropout(DROPOUT)
        self.select = nn.Conv3d(width, TOKENS, 3, padding=1)
        self.attention = Attention(width)
        self.attention_norm = nn.LayerNorm(width, eps=1e-6)
        self.feed = feed_forward(width)
        self.feed_norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, tokens_BXYZC: Tensor, modalities: list[Tensor]) -> Tensor:
        learned_BLC = torch.cat([self.learn(index, features) for index, features in enumerate(modalities)], dim=1)
        queries_BLC = tokens_BXYZC.flatten(1, 3)
        attended = self.attention_norm(queries_BLC + self.attention(queries_BLC, learned_BLC))
        tokens: Tensor = self.feed_norm(attended + self.feed(attended))
        return tokens.view_as(tokens_BXYZC).movedim(-1, 1)

    def learn(self, modality: int, features_BCXYZ: Tensor) -> Tensor:
        """Means of the volume under learned gates, one gate per token: (B, tokens, C)."""
        embedded = self.dropout(self.embed[modality](features_BCXYZ) + self.position[modality])
        gates_BLV = torch.sigmoid(self.select(embedded)).flatten(2)
        volume_BVC = embedded.flatten(2).mT
        return gates_BLV @ volume_BVC / volume_BVC.shape[1]
