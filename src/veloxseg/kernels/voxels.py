"""What happens at full resolution: cells become voxels and voxels cells, and the loss of two classes.

Legend: B batch, C channel, N voxel, XYZ space.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from veloxseg.errors import ShapeError
from veloxseg.kernels.calling import address, channels_last, share
from veloxseg.kernels.library import training_kernels

__all__ = ["cells_of", "two_class_gradient", "two_class_sums", "voxels_of"]


# ---- cells ----------------------------------------------------------------------------------------------------------


def voxels_of(cells_BCXYZ: Tensor, side: int) -> Tensor:
    """Pixel shuffle: (B, C·side³, X, Y, Z) → (B, C, X·side, Y·side, Z·side)."""
    return _Voxels.apply(cells_BCXYZ, side)  # type: ignore[no-untyped-call]


def cells_of(voxels_BCXYZ: Tensor, side: int) -> Tensor:
    """The way back, channels side by side in memory: (B, C·side³, X, Y, Z). It has no gradient of its own."""
    batch, channels, *size = voxels_BCXYZ.shape
    small = [length // side for length in size]
    shape = (batch, channels * side**3, *small)
    cells = torch.empty(shape, memory_format=torch.channels_last_3d)
    _move(voxels_BCXYZ.contiguous(), cells, side, to_voxels=False)
    return cells


class _Voxels(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, cells: Tensor, side: int) -> Tensor:
        ctx.side = side
        batch, channels, *size = cells.shape
        voxels = cells.new_empty(batch, channels // side**3, *(length * side for length in size))
        _move(voxels, channels_last(cells), side, to_voxels=True)
        return voxels

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return cells_of(gradients[0], ctx.side), None


def _move(voxels: Tensor, cells: Tensor, side: int, *, to_voxels: bool) -> None:
    kernels = training_kernels()
    assert kernels is not None
    batch, channels, *size = cells.shape
    if channels % side**3:
        raise ShapeError(f"{channels} channels make no cells of {side}³ voxels; their number must be a multiple of it")
    of = address(voxels, batch, channels // side**3, *(length * side for length in size))
    at = address(cells, *cells.shape)
    step = 4 * cells.numel() // batch

    def task(sample: int) -> None:
        where = of + step * sample, at + step * sample
        kernels.cells(*where, channels // side**3, *size, side, to_voxels)

    share(task, range(batch))


# ---- the loss of two classes ----------------------------------------------------------------------------------------


def two_class_sums(d_BN: Tensor, label_BN: Tensor) -> Tensor:
    """(B, 4) in float64: the sums over voxels of log(1 + eᵈ) - d·t, p, t and p·t."""
    kernels = training_kernels()
    assert kernels is not None
    sums = torch.empty(len(d_BN), 4, dtype=torch.float64)
    d, label = address(d_BN, *d_BN.shape), _labels(d_BN, label_BN)
    voxels, to = d_BN.shape[1], sums.data_ptr()

    def task(b: int) -> None:
        kernels.two_class_sums(d + 4 * b * voxels, label + b * voxels, voxels, to + 32 * b)

    share(task, range(len(d_BN)))
    return sums


def two_class_gradient(d_BN: Tensor, label_BN: Tensor, entropy: float, both: list[float], once: list[float]) -> Tensor:
    """entropy · (p - t) + (both - 2t · once) · (p - p²), with numbers `both` and `once` of each sample."""
    kernels = training_kernels()
    assert kernels is not None
    out = torch.empty_like(d_BN)
    d, label, to = address(d_BN, *d_BN.shape), _labels(d_BN, label_BN), address(out, *d_BN.shape)
    voxels = d_BN.shape[1]

    def task(b: int) -> None:
        of = d + 4 * b * voxels, label + b * voxels, voxels
        kernels.two_class_gradient(*of, entropy, both[b], once[b], to + 4 * b * voxels)

    share(task, range(len(d_BN)))
    return out


def _labels(d_BN: Tensor, label_BN: Tensor) -> int:
    if label_BN.shape != d_BN.shape or label_BN.dtype != torch.uint8 or not label_BN.is_contiguous():
        raise ShapeError(f"labels {label_BN.dtype} {tuple(label_BN.shape)} must be dense uint8 {tuple(d_BN.shape)}")
    return label_BN.data_ptr()
