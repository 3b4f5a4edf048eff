"""HCMA-UNet: a light convolutional U-Net whose encoder scans slices with Mamba and joins them by attention.

Paper: Li et al., "HCMA-UNet: A Hybrid CNN-Mamba UNet with Axial Self-Attention for Efficient Breast Cancer
Segmentation", ICME 2025 (arXiv 2501.00751); the four-way scan of a plane is that of Liu et al., "VMamba", 2024.
Built from the papers and from facts of VeloxSeg's public release (JinPLu/VeloxSeg): widths 32 to 512, four
stages of which the last keeps its resolution, state size 32. The code is ours.

    DenseConv ─ [halve ─ MISM ─ DenseConv] ×3 ─ [MISM ─ DenseConv] ─ decoder that adds the skips ─ head

MISM (multi-view axial self-attention Mamba): half of the channels see the volume as slices along x, a quarter
along y, a quarter along z (asymmetric split). Each view runs a visual state space block within the slices and
axial attention across them.

The selective scan is a chunked one in plain PyTorch (`scan.py`), so it runs without a GPU. Left out: the
feature loss of the paper, the heads for deep supervision, and a drop-path that the release draws only once,
when it is built.

Matched at 2×96³, 2 classes: 2.87 M parameters, which is the figure of the HCMA paper (VeloxSeg's table has
2.81, as its counter leaves out bare parameters; the same rule gives 2.81 here), and 26.15 G multiply-accumulates
as published (26.15). Real work by FlopCounterMode/2 is 15.29 G: half of the published figure are transposed
convolutions counted on their output. At 128×128×64: 31.00 G (31.00); with 4 modalities and classes: 26.69 G
(26.69). Neither count sees the element-wise recurrence: some 0.4 G more.
"""

# B batch, S slice, P Q axes of the slice, L position in the plane, K scan direction, D channel, N state

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from veloxseg.peers.parts import InstanceNorm, check_channels, check_patch
from veloxseg.peers.scan import selective_scan

__all__ = ["HCMAUNet", "build"]

WIDTHS = (32, 64, 128, 256, 512)
STRIDES = (2, 2, 2, 1)
DROPOUTS = (0.025, 0.05, 0.1, 0.1)
STATE = 32


def build(in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> nn.Module:
    """HCMA-UNet for patches that 8 divides; its position tables tie it to the patch."""
    check_channels("hcma-unet", in_channels, classes)
    check_patch("hcma-unet", patch, math.prod(STRIDES))
    return HCMAUNet(sum(in_channels), classes, patch)


class HCMAUNet(nn.Module):
    """(B, channels, X, Y, Z) to (B, classes, X, Y, Z)."""

    def __init__(self, channels: int, classes: int, patch: tuple[int, int, int]) -> None:
        super().__init__()
        self.stem = DenseConv(channels, WIDTHS[0], 0.0)
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        shrink = 1
        for width, wider, stride, dropout in zip(WIDTHS, WIDTHS[1:], STRIDES, DROPOUTS, strict=False):
            shrink *= stride
            grid = tuple(size // shrink for size in patch)
            self.encoder.append(EncoderStage(width, wider, stride, grid, dropout))
            self.decoder.insert(0, DecoderStage(wider, width, stride))
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Conv3d(WIDTHS[0], classes, 1))

    def forward(self, images: Tensor) -> Tensor:
        features = self.stem(images)
        skips = []
        for stage in self.encoder:
            skip, features = stage(features)
            skips.append(skip)
        for stage in self.decoder:
            features = stage(features, skips.pop())
        return self.head(features)


class DenseConv(nn.Module):
    """Depthwise convolution, expansion by four and reduction, each fed with all that came before."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.local = nn.Sequential(
            nn.Conv3d(inputs, inputs, 3, padding=1, groups=inputs),
            InstanceNorm(inputs, affine=True),
            nn.Dropout(dropout),
        )
        self.expand = nn.Sequential(nn.Conv3d(2 * inputs, 4 * inputs, 1), nn.GELU(), nn.Dropout(2 * dropout))
        self.reduce = nn.Conv3d(6 * inputs, outputs, 1)
        initialise(self)

    def forward(self, features: Tensor) -> Tensor:
        dense = torch.cat([features, self.local(features)], dim=1)
        return self.reduce(torch.cat([dense, self.expand(dense)], dim=1))


class EncoderStage(nn.Module):
    """Halve, scan, widen. Returns the scanned feature, which the decoder adds, and the widened one."""

    def __init__(self, width: int, wider: int, stride: int, grid: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        self.pool = nn.AvgPool3d(stride)
        self.halve = ResNeXtConv(width, stride)
        self.scan = MultiViewMamba(width, grid)
        self.widen = DenseConv(width, wider, dropout)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        scanned = self.scan(self.pool(features) + self.halve(features))
        return scanned, self.widen(scanned)


class DecoderStage(nn.Module):
    """Reduce to the skip's width, add it, go up."""

    def __init__(self, wider: int, width: int, stride: int) -> None:
        super().__init__()
        self.reduce = nn.Sequential(nn.Conv3d(wider, width, 1), InstanceNorm(width, affine=True), nn.LeakyReLU())
        self.up = nn.ConvTranspose3d(width, width, stride, stride)

    def forward(self, features: Tensor, skip: Tensor) -> Tensor:
        return self.up(self.reduce(features) + skip)


class ResNeXtConv(nn.Module):
    """Expand by two, convolve in pairs of channels with the stride, reduce; residual without a stride."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*self._layers(width, stride))
        self.residual = stride == 1
        initialise(self)

    @staticmethod
    def _layers(width: int, stride: int) -> Iterator[nn.Module]:
        wide = 2 * width
        for convolution in (
            nn.Conv3d(width, wide, 1),
            nn.Conv3d(wide, wide, 3, stride, padding=1, groups=width),
            nn.Conv3d(wide, width, 1),
        ):
            yield convolution
            yield InstanceNorm(convolution.out_channels, affine=True)
            yield nn.LeakyReLU()

    def forward(self, features: Tensor) -> Tensor:
        convolved: Tensor = self.layers(features)
        return features + convolved if self.residual else convolved


def initialise(module: nn.Module) -> None:
    for layer in module.modules():
        if isinstance(layer, nn.Conv3d):
            nn.init.trunc_normal_(layer.weight, std=0.06)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class MultiViewMamba(nn.Module):
    """MISM: three views of the volume, each with its share of the channels, fused point by point."""

    def __init__(self, width: int, grid: tuple[int, ...]) -> None:
        super().__init__()
        self.shares = [width // 2, width // 4, width // 4]
        self.views = nn.ModuleList(View(share, axis, grid[axis]) for axis, share in enumerate(self.shares))
        self.fuse = nn.Sequential(nn.Conv3d(width, width, 1), nn.LeakyReLU(), InstanceNorm(width))

    def forward(self, features: Tensor) -> Tensor:
        parts = torch.split(features, self.shares, dim=1)
        seen = [view(part) for view, part in zip(self.views, parts, strict=True)]
        fused: Tensor = self.fuse(torch.cat(seen, dim=1))
        return features + fused


class View(nn.Module):
    """Slices along one axis: a state space block within each slice, attention from slice to slice."""

    def __init__(self, width: int, axis: int, slices: int) -> None:
        super().__init__()
        self.axis = axis
        self.within = StateSpaceBlock(width)
        self.query, self.key, self.value = (nn.Conv3d(width, width, 1) for _ in range(3))
        self.position = nn.Parameter(nn.init.xavier_uniform_(torch.empty(slices, width)))
        self.softmax = nn.Softmax(dim=-1)
        self.balance = nn.Parameter(torch.zeros(1))

    def forward(self, features_BCXYZ: Tensor) -> Tensor:
        slices_BSPQC = features_BCXYZ.movedim(1, -1).movedim(1 + self.axis, 1)
        within_BSPQC = self.within(slices_BSPQC.flatten(0, 1)).view(slices_BSPQC.shape)
        scanned_BCXYZ = within_BSPQC.movedim(1, 1 + self.axis).movedim(-1, 1).contiguous()
        across_BCXYZ = self.across(scanned_BCXYZ)
        gate = torch.sigmoid(self.balance)
        return gate * across_BCXYZ + (1 - gate) * features_BCXYZ

    def across(self, features_BCXYZ: Tensor) -> Tensor:
        """Attention of each voxel over the line of voxels that runs through the slices."""
        query, key, value = (
            layer(features_BCXYZ).movedim(1, -1).movedim(1 + self.axis, 3)  # (B, P, Q, S, C)
            for layer in (self.query, self.key, self.value)
        )
        query, key = query + self.position, key + self.position
        weights = self.softmax(query @ key.mT / math.sqrt(query.shape[-1]))  # (B, P, Q, S, S)
        joined: Tensor = weights @ value
        return joined.movedim(3, 1 + self.axis).movedim(-1, 1)


class StateSpaceBlock(nn.Module):
    """Halve the channels, add the scanned plane, come back; residual around all of it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.Linear(width, width // 2)
        self.norm = nn.LayerNorm(width // 2, eps=1e-6)
        self.scan = PlaneScan(width // 2)
        self.up = nn.Linear(width // 2, width)

    def forward(self, plane_BPQC: Tensor) -> Tensor:
        narrow = self.down(plane_BPQC)
        narrow = narrow + self.scan(self.norm(narrow))
        raised: Tensor = self.up(narrow)
        return plane_BPQC + raised


class PlaneScan(nn.Module):
    """VMamba's scan: the plane by rows, by columns, and both backwards, each with parameters of its own."""

    directions = 4

    def __init__(self, width: int) -> None:
        super().__init__()
        inner, rank = width // 2, math.ceil(width / 16)
        self.inner, self.rank = inner, rank
        self.enter = nn.Linear(width, 2 * inner, bias=False)
        self.local = nn.Conv2d(inner, inner, 3, padding=1, groups=inner)
        bound = 1 / math.sqrt(inner)
        self.selection = nn.Parameter(torch.empty(4, inner, rank + 2 * STATE).uniform_(-bound, bound))
        self.step = nn.Parameter(torch.empty(4, rank, inner).uniform_(-(rank**-0.5), rank**-0.5))
        # softplus(bias) is spread logarithmically over steps from 0.001 to 0.1.
        first_steps = torch.exp(torch.empty(4, inner).uniform_(math.log(1e-3), math.log(1e-1)))
        self.step_bias = nn.Parameter(first_steps + torch.log(-torch.expm1(-first_steps)))
        self.log_rate = nn.Parameter(torch.arange(1.0, STATE + 1).log().repeat(4, inner, 1))
        self.skip = nn.Parameter(torch.ones(4, inner))
        self.norm = nn.LayerNorm(inner)
        self.leave = nn.Linear(inner, width, bias=False)

    def forward(self, plane_BPQC: Tensor) -> Tensor:
        plane, gate = self.enter(plane_BPQC).chunk(2, dim=-1)
        plane_BDPQ = nn.functional.silu(self.local(plane.movedim(-1, 1)))
        scanned: Tensor = self.norm(self.four_ways(plane_BDPQ))  # (B, P, Q, D)
        return self.leave(scanned * nn.functional.silu(gate))

    def four_ways(self, plane_BDPQ: Tensor) -> Tensor:
        rows, columns = plane_BDPQ.shape[2:]
        by_rows = plane_BDPQ.flatten(2)
        by_columns = plane_BDPQ.mT.flatten(2)
        sequences_BLKD = torch.stack([by_rows, by_columns, by_rows.flip(-1), by_columns.flip(-1)], dim=1).permute(
            0, 3, 1, 2
        )
        selected = torch.einsum("blkd,kds->blks", sequences_BLKD, self.selection)
        low_rank, write_BLKN, read_BLKN = torch.split(selected, [self.rank, STATE, STATE], dim=-1)
        step_BLKD = nn.functional.softplus(torch.einsum("blkr,krd->blkd", low_rank, self.step) + self.step_bias)
        scanned = selective_scan(sequences_BLKD, step_BLKD, -torch.exp(self.log_rate), write_BLKN, read_BLKN)
        scanned = scanned + sequences_BLKD * self.skip
        forward_rows, forward_columns, back_rows, back_columns = scanned.unbind(2)  # each (B, L, D)
        along_rows = (forward_rows + back_rows.flip(1)).reshape(-1, rows, columns, self.inner)
        along_columns = (forward_columns + back_columns.flip(1)).reshape(-1, columns, rows, self.inner)
        return along_rows + along_columns.transpose(1, 2)
