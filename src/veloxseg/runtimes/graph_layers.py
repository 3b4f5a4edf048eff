"""Layers of the inference form (see graph.py): constant weights, and what each runtime likes best.

Legend: N token of the volume, C channel, XYZ space.
"""

import itertools
import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.model.jlc import JLC
from veloxseg.model.layers import ModalityLinear, NormLinear
from veloxseg.types import Size

__all__ = [
    "PLAIN",
    "STYLES",
    "Convolution",
    "InstanceNorm",
    "PlaneConvolution",
    "Style",
    "convolution_blocks",
    "layer_norm",
    "linears",
    "merge_groups",
]


@dataclass(frozen=True)
class Style:
    """Exact rewrites that help one runtime and hurt another; measured, preset B, one thread."""

    two_step_mean: bool
    least_group: int  # channels of a group convolution; narrower groups are merged with zero blocks
    planes: bool  # large group convolutions are computed as 2-D ones, plane by plane
    pairs: bool  # large convolutions with narrow groups take two neighbours along z as channels


PLAIN = Style(two_step_mean=False, least_group=1, planes=False, pairs=False)  # for a runtime that nobody has measured
STYLES = {
    # OpenVINO sums variances in one accumulator, which costs three digits on nearly empty windows; AVX2 has
    # registers of 8 numbers
    "openvino": Style(two_step_mean=True, least_group=8, planes=False, pairs=True),
    # onnxruntime's own norm is exact enough and its pooling slow; it has a direct convolution in 2-D only, in 3-D
    # it copies every voxel once for each weight
    "onnx": Style(two_step_mean=False, least_group=1, planes=True, pairs=False),
}

FEW_VOXELS = 2048  # their mean needs no two steps: a sum of so few loses a digit at most
PLANE_SIZE = 5  # kernels from this size on
PLANE_GROUP = 8  # channels: what the 2-D kernels need at least
PAIR_SIZE, PAIR_WIDTH = 5, 4  # kernel, and channels of a group: half a register


class Linear(nn.Module):
    """W x + b of one modality, with what a layer norm in front of it adds multiplied in."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, source: ModalityLinear, modality: int) -> None:
        super().__init__()
        own = min(modality, len(source.weight) - 1)  # the ablations share one set of weights
        weight = source.weight[own].detach().clone()
        bias = None if source.bias is None else source.bias[own].detach().clone()
        if isinstance(source, NormLinear):
            shift = weight @ source.norm_bias[modality].detach()
            bias = shift if bias is None else bias + shift
            weight = weight * source.norm_weight[modality].detach()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    def scale(self, factors_C: Tensor) -> None:
        """Multiplies the outputs."""
        self.weight *= factors_C[:, None].to(self.weight)
        if self.bias is not None:
            self.bias *= factors_C.to(self.bias)

    def add_to(self, y_NC: Tensor, x_NC: Tensor) -> Tensor:
        """y + b + W x. OpenVINO 2026.4 crashes on few tokens when it fuses two products with a bias each."""
        assert self.bias is not None
        return y_NC + self.bias + F.linear(x_NC, self.weight)

    def forward(self, x_NC: Tensor) -> Tensor:
        return F.linear(x_NC, self.weight, self.bias)


def linears(source: ModalityLinear) -> nn.ModuleList:
    """One per modality."""
    return nn.ModuleList(Linear(source, m) for m in range(source.modalities))


def layer_norm(x_NC: Tensor) -> Tensor:
    return F.layer_norm(x_NC, x_NC.shape[-1:], eps=1e-6)


class InstanceNorm(nn.Module):
    """(x - mean) / sqrt(variance + 1e-5) over space, by the runtime or with both means in two steps."""

    def __init__(self, size: Size, style: Style) -> None:
        super().__init__()
        self.two_step = style.two_step_mean or math.prod(size) == 1  # one voxel has no deviation: 0
        few = math.prod(size) <= FEW_VOXELS
        self.first = [side if few else max(d for d in range(1, 7) if side % d == 0) for side in size]
        self.second = [side // d for side, d in zip(size, self.first, strict=True)]

    def forward(self, x_1CXYZ: Tensor) -> Tensor:
        if not self.two_step:
            return F.instance_norm(x_1CXYZ, eps=1e-5)
        centred = x_1CXYZ - self.mean(x_1CXYZ)
        return centred * torch.rsqrt(self.mean(centred * centred) + 1e-5)

    def mean(self, x_1CXYZ: Tensor) -> Tensor:
        blocks = F.avg_pool3d(x_1CXYZ, self.first)
        return blocks if max(self.second) == 1 else F.avg_pool3d(blocks, self.second)


class Convolution(nn.Module):
    """A convolution with constant weights; `bias=False` drops a bias that an instance norm would take away."""

    weight: Tensor
    bias: Tensor | None

    def __init__(self, source: nn.Conv3d, style: Style, *, bias: bool = True) -> None:
        super().__init__()
        self.groups = source.groups
        weight = source.weight.detach()
        factor = style.least_group // weight.shape[1]
        if self.groups > 1 and factor > 1 and self.groups % factor == 0:
            weight, self.groups = merge_groups(weight, self.groups, factor)
        self.stride, self.padding = source.stride, source.padding
        self.register_buffer("weight", weight)
        self.register_buffer("bias", source.bias.detach() if bias and source.bias is not None else None)

    def forward(self, x_1CXYZ: Tensor) -> Tensor:
        return F.conv3d(x_1CXYZ, self.weight, self.bias, self.stride, self.padding, 1, self.groups)


class PlaneConvolution(nn.Module):
    """A group convolution of odd size k as a 2-D one: plane x sees the planes x - k//2 .. x + k//2 as channels."""

    weight: Tensor

    def __init__(self, source: nn.Conv3d) -> None:
        super().__init__()
        self.size, self.groups = source.kernel_size[0], source.groups
        weight = source.weight.detach()
        factor = PLANE_GROUP // weight.shape[1]
        if factor > 1 and self.groups % factor == 0:
            weight, self.groups = merge_groups(weight, self.groups, factor)
        #   outputs, C, kx, ky, kz  →  outputs, (kx C), ky, kz
        self.register_buffer("weight", weight.transpose(1, 2).flatten(1, 2).contiguous())

    def forward(self, x_1CXYZ: Tensor) -> Tensor:
        reach, planes = self.size // 2, x_1CXYZ.shape[2]
        padded = F.pad(x_1CXYZ[0].transpose(0, 1), (0, 0, 0, 0, 0, 0, reach, reach))  # X C Y Z
        grouped = padded.unflatten(1, (self.groups, -1))  # X group C Y Z
        beside = torch.stack([grouped[i : i + planes] for i in range(self.size)], 2)
        #   X group kx C Y Z  →  X (group kx C) Y Z
        y_XCYZ = F.conv2d(beside.flatten(1, 3), self.weight, None, 1, reach, 1, self.groups)
        return y_XCYZ.transpose(0, 1)[None]


class PairConvolution(nn.Module):
    """A group convolution of size 5 on voxels 2z and 2z + 1 as one with twice the channels, kernel (5, 5, 3).

    Groups of 4 channels fill half of a register of 8 numbers. Merging two groups doubles the work (the zero blocks);
    this adds a fifth: of the 6 values of z that 3 pairs hold, each output uses 5.
    """

    weight: Tensor

    def __init__(self, source: nn.Conv3d) -> None:
        super().__init__()
        self.groups = source.groups
        width = source.weight.shape[1]
        weight = source.weight.detach().unflatten(0, (self.groups, width))  # group, out, in, kx, ky, kz
        paired = weight.new_zeros(self.groups, 2, width, 2, width, PAIR_SIZE, PAIR_SIZE, 3)
        for first, second, pair in itertools.product(range(2), range(2), range(3)):
            # output voxel 2z + first sees the input voxel 2(z + pair - 1) + second
            if 0 <= (tap := 2 * (pair - 1) + second - first + PAIR_SIZE // 2) < PAIR_SIZE:
                paired[:, first, :, second, ..., pair] = weight[..., tap]
        self.register_buffer("weight", paired.flatten(3, 4).flatten(0, 2))

    def forward(self, x_1CXYZ: Tensor) -> Tensor:
        _, _, x, y, z = x_1CXYZ.shape
        grouped = x_1CXYZ.reshape(self.groups, -1, x, y, z // 2, 2)
        #   group C X Y Z' pair  →  1 (group pair C) X Y Z'
        paired = grouped.permute(0, 5, 1, 2, 3, 4).reshape(1, -1, x, y, z // 2)
        result = F.conv3d(paired, self.weight, None, 1, (2, 2, 1), 1, self.groups)
        split = result.reshape(self.groups, 2, -1, x, y, z // 2)
        return split.permute(0, 2, 3, 4, 5, 1).reshape(x_1CXYZ.shape)


def branch_convolution(source: nn.Conv3d, size: Size, style: Style, *, bias: bool) -> nn.Module:
    """A branch of JLC in the form that the runtime computes fastest."""
    narrow = source.groups > 1 and source.weight.shape[1] == PAIR_WIDTH
    if style.pairs and not bias and narrow and source.kernel_size[0] == PAIR_SIZE and size[2] % 2 == 0:
        return PairConvolution(source)
    if style.planes and not bias and source.groups > 1 and source.kernel_size[0] >= PLANE_SIZE:
        return PlaneConvolution(source)
    return Convolution(source, style, bias=bias)


def merge_groups(weight: Tensor, groups: int, factor: int) -> tuple[Tensor, int]:
    """The same convolution with `factor` groups in one, zeros between what does not belong together."""
    outputs, inputs = weight.shape[:2]
    merged = weight.new_zeros(outputs, inputs * factor, *weight.shape[2:])
    for output in range(outputs):
        place = output * groups // outputs % factor * inputs
        merged[output, place : place + inputs] = weight[output]
    return merged, groups // factor


class ConvolutionBlock(nn.Module):
    """JLC."""

    def __init__(self, source: JLC, size: Size, style: Style) -> None:
        super().__init__()
        self.norm = InstanceNorm(size, style)
        self.several = len(source.convs) > 1
        self.branches = nn.ModuleList(
            branch_convolution(cast(nn.Conv3d, conv), size, style, bias=not self.several) for conv in source.convs
        )
        self.expand = Convolution(source.expand, style)
        self.reduce = Convolution(source.reduce, style)

    def forward(self, x_1CXYZ: Tensor) -> Tensor:
        y = x_1CXYZ
        for convolution in self.branches:
            branch = convolution(x_1CXYZ)
            y = y + (F.gelu(self.norm(branch)) if self.several else branch)
        hidden = F.gelu(self.expand(self.norm(y)))
        return y + self.reduce(hidden)


def convolution_blocks(source: nn.Sequential, size: Size, style: Style) -> nn.Sequential:
    return nn.Sequential(*(ConvolutionBlock(cast(JLC, block), size, style) for block in source))
