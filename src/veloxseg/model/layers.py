"""Small layers that both streams share, written for CPUs.

Activations of the convolution stream are kept channels-last (voxel by voxel, channels side by side): oneDNN's grouped
convolutions are 2.5 to 3.5 times as fast there, and tokens of the transformer are the same memory seen otherwise.

Legend: M modality, B batch, N voxel, C channel, XYZ space.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.kernels.calling import kernels_for
from veloxseg.kernels.mixing import has_norm, instance_norm
from veloxseg.kernels.voxels import cells_of, voxels_of

__all__ = [
    "CellConv3d",
    "Conv3d",
    "Dropout",
    "InstanceNorm",
    "ModalityLinear",
    "NormLinear",
    "PixelShuffle3d",
    "channels_last",
    "initialise",
]

SPACE = (2, 3, 4)  # the axes of space in (B, C, X, Y, Z)
EPS = 1e-5


def channels_last(x_BCXYZ: Tensor) -> Tensor:
    """The same tensor with its channels side by side in memory; free if they are already."""
    return x_BCXYZ.contiguous(memory_format=torch.channels_last_3d)


class Conv3d(nn.Conv3d):
    """`nn.Conv3d` that reaches oneDNN for a single patch too: PyTorch takes a slower path for small batches of one."""

    def forward(self, x_BCXYZ: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or torch.is_grad_enabled() or not _onednn(x_BCXYZ):
            return super().forward(x_BCXYZ)
        sizes = (self.padding, self.stride, self.dilation)
        return torch.mkldnn_convolution(x_BCXYZ, self.weight, self.bias, *sizes, self.groups)  # type: ignore[arg-type]


def _onednn(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32 and bool(torch.backends.mkldnn.enabled)


class CellConv3d(Conv3d):
    """A convolution whose stride is its kernel: a linear map of cells that do not overlap.

    Training takes it as one matrix product, since oneDNN's gradient of such a weight takes seven times as long.
    """

    def __init__(self, inputs: int, outputs: int, side: int) -> None:
        super().__init__(inputs, outputs, side, stride=side)

    def forward(self, x_BCXYZ: Tensor) -> Tensor:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return super().forward(x_BCXYZ)
        batch, channels, *size = x_BCXYZ.shape
        side = self.kernel_size[0]
        if kernels_for(x_BCXYZ, self.weight) is not None and not x_BCXYZ.requires_grad:
            flat = cells_of(x_BCXYZ, side).movedim(1, -1)
            return F.linear(flat, self.weight.flatten(1), self.bias).movedim(-1, 1)
        nx, ny, nz = (length // side for length in size)
        cells = x_BCXYZ.reshape(batch, channels, nx, side, ny, side, nz, side)
        #   B C X i Y j Z l  →  B X Y Z (C i j l)
        flat = cells.permute(0, 2, 4, 6, 1, 3, 5, 7).reshape(batch, nx, ny, nz, -1)
        return F.linear(flat, self.weight.flatten(1), self.bias).movedim(-1, 1)


class InstanceNorm(nn.Module):
    """Instance norm without affine parameters, eps 1e-5.

    Not `F.instance_norm`: in torch 2.13 its backward is wrong for a batch of one with a channels-last gradient. And
    centred first: channels-last group norm takes the variance as E[x²] - E[x]², which is worthless in float32 when
    the mean is large against the deviation. In float32 also where the rest is bfloat16: rounded statistics of the
    deepest stage, which has few voxels, made gradients hundreds of times too large.
    """

    def forward(self, x_BCXYZ: Tensor) -> Tensor:
        if x_BCXYZ.dtype in (torch.bfloat16, torch.float16):
            x_BCXYZ = x_BCXYZ.float()
        if has_norm(x_BCXYZ):
            return instance_norm(x_BCXYZ)
        if x_BCXYZ.requires_grad and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return _Normalise.apply(x_BCXYZ)  # type: ignore[no-untyped-call]
        centred = x_BCXYZ - x_BCXYZ.mean(SPACE, keepdim=True)
        # not by F.group_norm, which refuses a single voxel
        return torch.group_norm(centred, int(x_BCXYZ.shape[1]), None, None, EPS)  # a constant in a traced graph


class _Normalise(torch.autograd.Function):
    """Instance norm with its gradient in closed form: a fifth of the time of channels-last group norm's.

    y = (x - E[x]) r,  r = 1/√(Var[x] + ε);   dx = r (dy - E[dy] - y E[y dy])
    """

    @staticmethod
    def forward(ctx: Any, x_BCXYZ: Tensor) -> Tensor:
        centred = x_BCXYZ - x_BCXYZ.mean(SPACE, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(SPACE, keepdim=True) + EPS)
        normal = centred.mul_(scale)
        ctx.save_for_backward(normal, scale)
        return normal

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,) = gradients
        normal, scale = ctx.saved_tensors
        along = (gradient * normal).mean(SPACE, keepdim=True)
        centred = gradient - gradient.mean(SPACE, keepdim=True)
        return torch.addcmul(centred, normal, along, value=-1).mul_(scale)


class Dropout(nn.Module):
    """Dropout that draws 16 random bits per element, where PyTorch draws 64: half the time on a CPU.

    The rate is rounded to a multiple of 2^-16.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.rate)
        words = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        keep = bits >= round(self.rate * 2**16) - 2**15
        return x * keep.to(x.dtype).mul_(1 / (1 - self.rate))


class ModalityLinear(nn.Module):
    """A linear map of the channels (1×1×1 convolution) with weights of its own for each modality.

    All modalities go through one batched matrix product. With `shared` there is one set of weights.
    """

    def __init__(self, modalities: int, inputs: int, outputs: int, *, bias: bool = True, shared: bool = False) -> None:
        super().__init__()
        self.modalities = modalities
        sets = 1 if shared else modalities
        self.weight = nn.Parameter(torch.empty(sets, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(sets, outputs)) if bias else None

    def forward(self, x_MBXYZC: Tensor) -> Tensor:
        bias_M1C = None if self.bias is None else self.bias[:, None]
        return self.multiply(x_MBXYZC, self.weight.mT, bias_M1C)

    def multiply(self, x_MBXYZC: Tensor, weight_MCC: Tensor, bias_M1C: Tensor | None) -> Tensor:
        x_MNC = x_MBXYZC.reshape(self.modalities, -1, x_MBXYZC.shape[-1])
        weight_MCC = weight_MCC.expand(self.modalities, -1, -1)
        y_MNC = torch.bmm(x_MNC, weight_MCC) if bias_M1C is None else torch.baddbmm(bias_M1C, x_MNC, weight_MCC)
        return y_MNC.reshape(*x_MBXYZC.shape[:-1], -1)


class NormLinear(ModalityLinear):
    """Layer norm over the channels (affine, eps 1e-6), then the linear map: W (w ⊙ x̂ + b) + c.

    Every layer norm of the network stands before a linear map, so its affine part is multiplied into the weights,
    (W ⊙ w) x̂ + (W b + c), which spares two passes over the features.
    """

    def __init__(self, modalities: int, inputs: int, outputs: int, *, bias: bool = True, shared: bool = False) -> None:
        super().__init__(modalities, inputs, outputs, bias=bias, shared=shared)
        self.norm_weight = nn.Parameter(torch.ones(modalities, inputs))
        self.norm_bias = nn.Parameter(torch.zeros(modalities, inputs))

    def forward(self, x_MBXYZC: Tensor) -> Tensor:
        normal = F.layer_norm(x_MBXYZC, x_MBXYZC.shape[-1:], eps=1e-6)
        return self.multiply(normal, *self.folded())

    def folded(self) -> tuple[Tensor, Tensor]:
        """The weight (M, C, C) and bias (M, 1, C) of the linear map of the plainly normalised input."""
        weight_MCC = self.weight.mT
        bias_M1C = self.norm_bias[:, None] @ weight_MCC
        if self.bias is not None:
            bias_M1C = bias_M1C + self.bias[:, None]
        return self.norm_weight[..., None] * weight_MCC, bias_M1C


class PixelShuffle3d(nn.Module):
    """Unfolds channels into space: channel = output · r³ + i · r² + j · r + l for offsets i, j, l."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x_BCXYZ: Tensor) -> Tensor:
        if kernels_for(x_BCXYZ) is not None:
            return voxels_of(x_BCXYZ, self.factor)
        batch, _, x, y, z = x_BCXYZ.shape
        r = self.factor
        split = x_BCXYZ.reshape(batch, -1, r, r, r, x, y, z)  # B output i j l X Y Z
        return split.permute(0, 1, 5, 2, 6, 3, 7, 4).reshape(batch, -1, x * r, y * r, z * r)


def initialise(network: nn.Module) -> None:
    """Kaiming normal (fan-in, slope 0.01) for everything that is a convolution in the paper; zero bias."""
    gain = nn.init.calculate_gain("leaky_relu", 0.01)
    for module in network.modules():
        if isinstance(module, nn.Conv3d | nn.ConvTranspose3d):
            nn.init.kaiming_normal_(module.weight, a=0.01)
        elif isinstance(module, ModalityLinear):
            nn.init.normal_(module.weight, std=gain / math.sqrt(module.weight.shape[-1]))
        else:
            continue
        if module.bias is not None:
            nn.init.zeros_(module.bias)
