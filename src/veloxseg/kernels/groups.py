"""The parallel group convolutions of a JLC block as one differentiable function.

    y = x + Σ_s GELU(IN(GroupConv_s(x)))

Legend: S branch, B batch, C channel, O output, I input, XYZ space.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from veloxseg.kernels.calling import address, channels_last, kernels_for, lanes, room, share
from veloxseg.kernels.library import BRANCHES, Branches, training_kernels

__all__ = ["group_branches", "has_branches"]

SIZES = (1, 3, 5)  # kernels that groups.c has


def has_branches(x_BCXYZ: Tensor, convs: Sequence[nn.Conv3d]) -> bool:
    """Whether the kernels compute such convolutions, for this tensor."""
    if kernels_for(x_BCXYZ) is None or x_BCXYZ.numel() == 0:
        return False
    vector, group_size, sizes = lanes(), convs[0].weight.shape[1], [conv.kernel_size[0] for conv in convs]
    whole = group_size % vector == 0 or (group_size in (4, 8) and group_size < vector)
    fits = whole and x_BCXYZ.shape[1] % max(vector, group_size) == 0
    return fits and len(sizes) <= BRANCHES and set(sizes) <= set(SIZES)


def group_branches(x_BCXYZ: Tensor, convs: Sequence[nn.Conv3d]) -> Tensor:
    """y. A single branch is the bare convolution, without norm and activation."""
    weights, biases = [conv.weight for conv in convs], [conv.bias for conv in convs]
    return _Branches.apply(channels_last(x_BCXYZ), len(weights), *weights, *biases)  # type: ignore[no-untyped-call]


def _packed(weight_OIxyz: Tensor) -> Tensor:
    """Weights as the kernels read them: (vector of outputs, x, y, z, I, lane)."""
    return weight_OIxyz.unflatten(0, (-1, lanes())).permute(0, 3, 4, 5, 2, 1).contiguous()


def _unpacked(packed: Tensor) -> Tensor:
    return packed.permute(0, 5, 4, 1, 2, 3).flatten(0, 1)


def _mirrored(weight_OIxyz: Tensor) -> Tensor:
    """The kernel that takes gradients of outputs to those of inputs: offsets reversed, each group transposed."""
    width = weight_OIxyz.shape[1]
    return weight_OIxyz.unflatten(0, (-1, width)).transpose(1, 2).flatten(0, 1).flip(2, 3, 4)


class _Branches(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[:count], parameters[count:]
        batch, channels, *size = x.shape
        out = torch.empty_like(x, memory_format=torch.channels_last_3d)
        kept = 0 if count == 1 else count
        raw_SB = x.new_empty(kept, batch, *size, channels)
        moments_S2B = x.new_empty(kept, 2, batch, channels)
        ctx.sizes = [weight.shape[-1] for weight in weights]
        job = _Job(x, ctx.sizes, weights[0].shape[1], raw_SB, moments_S2B)
        job.weights = [_packed(weight) for weight in weights]
        job.bias = biases[0] if count == 1 else None
        job.run("branches_forward", out)
        ctx.save_for_backward(x, raw_SB, moments_S2B, *weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient = channels_last(gradients[0])
        x, raw_SB, moments_S2B, *weights = ctx.saved_tensors
        batch, channels = x.shape[:2]
        out = torch.empty_like(x, memory_format=torch.channels_last_3d)
        job = _Job(x, ctx.sizes, weights[0].shape[1], raw_SB, moments_S2B)
        job.weights = [_packed(_mirrored(weight)) for weight in weights]
        job.weight_gradients = [x.new_empty(batch, *packed.shape) for packed in job.weights]
        job.gradient = gradient
        single = len(weights) == 1
        job.bias = x.new_zeros(channels) if single else None
        job.run("branches_backward", out)
        # a norm takes away whatever a bias adds, so that its gradient is zero
        biases = [gradient.sum((0, 2, 3, 4)) if single else x.new_zeros(channels) for _ in weights]
        return out, None, *(_unpacked(each.sum(0)) for each in job.weight_gradients), *biases


class _Job:
    """What groups.c needs to know, for all samples."""

    weights: list[Tensor]
    weight_gradients: list[Tensor]
    bias: Tensor | None
    gradient: Tensor | None

    def __init__(self, x: Tensor, sizes: list[int], width: int, raw_SB: Tensor, moments_S2B: Tensor) -> None:
        self.x, self.sizes, self.width, self.raw_SB, self.moments_S2B = x, sizes, width, raw_SB, moments_S2B
        self.gradient, self.weight_gradients = None, []

    def run(self, function: str, out: Tensor) -> None:
        kernels = training_kernels()
        assert kernels is not None
        batch, channels, *size = self.x.shape
        part = max(lanes(), self.width)
        border = max(self.sizes) // 2
        floats = part
        for side in size:
            floats *= side + 2 * border
        parts = channels // part if torch.get_num_threads() > 1 else 1
        structures = [self.structure(sample, out, border) for sample in range(batch)]

        def task(number: int) -> None:
            sample, share_of = divmod(number, parts)
            mine = Branches.from_buffer_copy(structures[sample])
            mine.inside = room(floats)
            step = channels // parts
            getattr(kernels, function)(ctypes.byref(mine), share_of * step, (share_of + 1) * step)

        share(task, range(batch * parts))

    def structure(self, sample: int, out: Tensor, border: int) -> Branches:
        batch, channels, *size = self.x.shape
        nx, ny, nz = size
        count, lane = len(self.sizes), lanes()
        whole = (batch, channels, nx, ny, nz)
        step = 4 * channels * nx * ny * nz * sample  # bytes
        s = Branches(nx=nx, ny=ny, nz=nz, channels=channels, width=self.width, branches=count, border=border)
        s.x, s.out = address(self.x, *whole) + step, address(out, *whole) + step
        if self.gradient is not None:
            s.gradient = address(self.gradient, *whole) + step
        if self.bias is not None:
            s.bias = address(self.bias, channels)
        else:
            raw = address(self.raw_SB, count, batch, *size, channels)
            moments = address(self.moments_S2B, count, 2, batch, channels)
        for i, k in enumerate(self.sizes):
            s.size[i] = k
            shape = (channels // lane, k, k, k, self.width, lane)
            s.weight[i] = address(self.weights[i], *shape)
            if self.weight_gradients:
                floats = channels * k**3 * self.width
                s.weight_gradient[i] = address(self.weight_gradients[i], batch, *shape) + 4 * floats * sample
            if self.bias is None:
                s.raw[i] = raw + 4 * i * batch * channels * nx * ny * nz + step
                s.mean[i] = moments + 4 * channels * (2 * i * batch + sample)
                s.scale[i] = moments + 4 * channels * ((2 * i + 1) * batch + sample)
        return s
