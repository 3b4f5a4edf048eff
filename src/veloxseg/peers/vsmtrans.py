"""VSmTrans: attention in windows of four shapes and a convolution in every block, within Swin UNETR's frame.

Paper: Liu et al., "VSmTrans: A hybrid paradigm integrating self-attention and convolution for 3D medical image
segmentation", Medical Image Analysis 2024. Built from the paper and from facts of the authors' release
(qingze-bai/VSmTrans) and of VeloxSeg's (JinPLu/VeloxSeg): width 24, two blocks in each of four stages, heads 3,
6, 12, 24, cubes of 6, bars 1, 2, 3, 4 wide. The code is ours.

    tokens of 2³ ─ [2 × block ─ merge] ×4 ─ residual convolutions ─ decoder with skips, as in Swin UNETR ─ head

VSM block (variable-shape mixed): queries, keys and values are made once and cut into four quarters, which attend
in cubes and in bars that run the whole length of the x, y and z axis; the same maps also feed a 3×3×3
convolution; both are added with learned rates. Every second block shifts its windows by half.

Departures, which change no figure: merging takes all eight neighbours (the release takes two of them twice and
leaves two out), filling at the border is masked, scores are scaled by the width of a head, and the heads for
deep supervision are left out.

Matched at 2×96³, 2 classes: 12.73 M parameters (VeloxSeg's table has 12.48, as its counter leaves out position
tables; the same rule gives 12.48 here) and 91.44 G multiply-accumulates as published (91.44); real work by
FlopCounterMode/2 is 86.12 G. With 4 modalities and classes: 92.71 G (92.72). The table's figures for HECKTOR
(3.12 M, 28.79 G) come out with half this width, which is not offered here.
"""

# B batch, X Y Z grid, C channel, W window, L place in the window, H head

import torch
from torch import Tensor, nn
from torch.nn import functional

from veloxseg.peers.parts import InstanceNorm, check_channels, check_patch, cut_windows, place_windows, relative_offsets

__all__ = ["VSmTrans", "build"]

WIDTH = 24
HEADS = (3, 6, 12, 24)
CUBE = 6
BARS = (1, 2, 3, 4)
DEPTH = 2
DROPOUT = 0.1
DROP_PATH = 0.1
Grid = tuple[int, int, int]


def build(in_channels: tuple[int, ...], classes: int, patch: Grid) -> nn.Module:
    """VSmTrans for patches that 32 divides; its bars tie it to the patch."""
    check_channels("vsmtrans", in_channels, classes)
    check_patch("vsmtrans", patch, 32)
    return VSmTrans(sum(in_channels), classes, patch)


class VSmTrans(nn.Module):
    """(B, channels, X, Y, Z) to (B, classes, X, Y, Z)."""

    def __init__(self, channels: int, classes: int, patch: Grid) -> None:
        super().__init__()
        self.embed = nn.Conv3d(channels, WIDTH, 2, stride=2)
        self.embed_norm = nn.LayerNorm(WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        widths = [WIDTH * 2**stage for stage in range(5)]
        self.stages = nn.ModuleList(Stage(stage, patch) for stage in range(4))
        self.merges = nn.ModuleList(Merge(width) for width in widths[:-1])
        self.skips = nn.ModuleList([ResidualConv(channels, WIDTH), *(ResidualConv(w, w) for w in widths[:-1])])
        self.up = nn.ModuleList(
            nn.ConvTranspose3d(below, width, 2, stride=2, bias=False)
            for below, width in zip(widths[::-1], [*widths[-2::-1], WIDTH], strict=True)
        )
        self.decoder = nn.ModuleList(ResidualConv(2 * width, width) for width in [*widths[-2::-1], WIDTH])
        self.head = nn.Conv3d(WIDTH, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        tokens_BXYZC = self.dropout(self.embed_norm(self.embed(images).movedim(1, -1)))
        scales = [images]
        for stage, merge in zip(self.stages, self.merges, strict=True):
            tokens_BXYZC = stage(tokens_BXYZC)
            scales.append(as_features(tokens_BXYZC))
            tokens_BXYZC = merge(tokens_BXYZC)
        features = as_features(tokens_BXYZC)
        skips = [skip(scale) for skip, scale in zip(self.skips, scales, strict=True)]
        for up, stage in zip(self.up, self.decoder, strict=True):
            features = stage(torch.cat([up(features), skips.pop()], dim=1))
        return self.head(features)


def as_features(tokens_BXYZC: Tensor) -> Tensor:
    """Channels first, normalised in twelve groups without weights."""
    return functional.group_norm(tokens_BXYZC.movedim(-1, 1).contiguous(), 12)


class ResidualConv(nn.Module):
    """Two convolutions with instance norm and a residual path, which is convolved where the width changes."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(inputs, outputs, 3, padding=1, bias=False),
            InstanceNorm(outputs),
            nn.LeakyReLU(inplace=True),
            nn.Conv3d(outputs, outputs, 3, padding=1, bias=False),
            InstanceNorm(outputs),
        )
        self.residual = (
            nn.Identity()
            if inputs == outputs
            else nn.Sequential(nn.Conv3d(inputs, outputs, 1, bias=False), InstanceNorm(outputs))
        )

    def forward(self, features: Tensor) -> Tensor:
        return functional.leaky_relu(self.layers(features) + self.residual(features))


class Merge(nn.Module):
    """Eight neighbours become one token of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8 * width)
        self.reduce = nn.Linear(8 * width, 2 * width, bias=False)

    def forward(self, tokens_BXYZC: Tensor) -> Tensor:
        batch, x, y, z, _ = tokens_BXYZC.shape
        cells = cut_windows(tokens_BXYZC, (2, 2, 2)).reshape(batch, x // 2, y // 2, z // 2, -1)
        return self.reduce(self.norm(cells))


class Stage(nn.Sequential):
    """The blocks of one scale; every second one shifts its windows."""

    def __init__(self, stage: int, patch: Grid) -> None:
        grid = (patch[0] >> stage + 1, patch[1] >> stage + 1, patch[2] >> stage + 1)
        last = 4 * DEPTH - 1
        super().__init__(
            *(
                Block(
                    width=WIDTH * 2**stage,
                    heads=HEADS[stage],
                    bar=BARS[stage],
                    grid=grid,
                    shifted=index % 2 == 1,
                    drop_path=DROP_PATH * (stage * DEPTH + index) / last,
                )
                for index in range(DEPTH)
            )
        )


class Block(nn.Module):
    """Mixed attention and feed-forward, both residual, both left out for some samples in training."""

    def __init__(self, *, width: int, heads: int, bar: int, grid: Grid, shifted: bool, drop_path: float) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.LayerNorm(width), MixedAttention(width, heads, bar, grid, shifted))
        self.feed = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(DROPOUT),
            nn.Linear(4 * width, width),
            nn.Dropout(DROPOUT),
        )
        self.drop_path = drop_path

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.dropped(self.mix(tokens))
        return tokens + self.dropped(self.feed(tokens))

    def dropped(self, branch: Tensor) -> Tensor:
        if not self.training or self.drop_path == 0:
            return branch
        kept = torch.rand(len(branch), 1, 1, 1, 1, device=branch.device) >= self.drop_path
        return branch * kept / (1 - self.drop_path)


class MixedAttention(nn.Module):
    """Four shapes of attention and one convolution on the same queries, keys and values."""

    def __init__(self, width: int, heads: int, bar: int, grid: Grid, shifted: bool) -> None:
        super().__init__()
        self.queries_keys_values = nn.Linear(width, 3 * width)
        x, y, z = grid
        shapes = ((CUBE, CUBE, CUBE), (bar, y, bar), (bar, bar, z), (x, bar, bar))
        self.shapes = nn.ModuleList(ShapedAttention(width // 4, heads, shape, grid, shifted) for shape in shapes)
        self.attended = nn.Sequential(nn.Linear(width, width), nn.Dropout(DROPOUT))
        self.reduce = nn.Sequential(nn.GELU(), nn.Linear(3 * width, width), nn.LayerNorm(width, eps=1e-6))
        self.convolve = nn.Sequential(
            nn.Conv3d(width, width, 3, padding=1), nn.BatchNorm3d(width), nn.LeakyReLU(inplace=True)
        )
        self.attention_rate = nn.Parameter(torch.tensor(0.5))
        self.convolution_rate = nn.Parameter(torch.tensor(0.5))
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, tokens_BXYZC: Tensor) -> Tensor:
        projected = self.queries_keys_values(tokens_BXYZC)
        quarters = projected.chunk(4, dim=-1)
        seen = [shape(quarter) for shape, quarter in zip(self.shapes, quarters, strict=True)]
        attended = self.attended(torch.cat(seen, dim=-1))
        local_BCXYZ = self.convolve(self.reduce(projected).movedim(-1, 1).contiguous())
        return self.dropout(self.attention_rate * attended + self.convolution_rate * local_BCXYZ.movedim(1, -1))


class ShapedAttention(nn.Module):
    """Attention within windows of one shape, shifted by half if asked, with a bias for relative positions."""

    def __init__(self, width: int, heads: int, shape: Grid, grid: Grid, shifted: bool) -> None:
        super().__init__()
        self.heads = heads
        x, y, z = (min(edge, size) for edge, size in zip(shape, grid, strict=True))
        self.window = (x, y, z)
        self.fill = [-size % edge for size, edge in zip(grid, self.window, strict=True)]
        self.shift = [edge // 2 if shifted and edge < size else 0 for size, edge in zip(grid, self.window, strict=True)]
        self.table = nn.Parameter(torch.empty((2 * x - 1) * (2 * y - 1) * (2 * z - 1), heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        self.register_buffer("offsets", relative_offsets(self.window), persistent=False)
        self.register_buffer("regions", self.label_regions(grid), persistent=False)
        self.offsets: Tensor
        self.regions: Tensor
        self.masked = any(self.fill) or any(self.shift)
        self.softmax = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(DROPOUT)

    def label_regions(self, grid: Grid) -> Tensor:
        """(W, L) labels; tokens attend to their own label, so not across the seam of the shift nor to filling."""
        label = torch.zeros(1, 1, 1, dtype=torch.long)
        for axis, (size, fill, shift) in enumerate(zip(grid, self.fill, self.shift, strict=True)):
            place = torch.arange(size + fill)
            wrapped, filling = place < shift, place >= size
            along = (wrapped + 2 * filling).roll(-shift)
            label = 4 * label + along.view([-1 if other == axis else 1 for other in range(3)])
        return cut_windows(label[None, ..., None], self.window).squeeze(-1)

    def forward(self, projected_BXYZC: Tensor) -> Tensor:
        batch, *grid, _ = projected_BXYZC.shape
        fill_x, fill_y, fill_z = self.fill
        filled = functional.pad(projected_BXYZC, (0, 0, 0, fill_z, 0, fill_y, 0, fill_x))
        rolled = filled.roll([-shift for shift in self.shift], dims=(1, 2, 3))
        windows = cut_windows(rolled, self.window)  # (B W, L, 3 C)
        query, key, value = windows.reshape(*windows.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = query @ key.mT * query.shape[-1] ** -0.5 + self.table[self.offsets].permute(2, 0, 1)
        if self.masked:
            apart_WLL = self.regions[:, :, None] != self.regions[:, None, :]
            scores = scores.unflatten(0, (batch, -1)).masked_fill(apart_WLL[:, None], -torch.inf).flatten(0, 1)
        weights = self.dropout(self.softmax(scores))  # (B W, H, L, L)
        attended = (weights @ value).transpose(1, 2).flatten(2)
        size_x, size_y, size_z = filled.shape[1:4]
        placed = place_windows(attended, self.window, (size_x, size_y, size_z))
        return placed.roll(self.shift, dims=(1, 2, 3))[:, : grid[0], : grid[1], : grid[2]]
