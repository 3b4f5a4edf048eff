"""Small layers that both streams share.

Legend: M modality, B batch, C channel, XYZ space.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["InstanceNorm", "ModalityLayerNorm", "ModalityLinear", "PixelShuffle3d", "initialise"]


class InstanceNorm(nn.Module):
    """Instance norm without affine parameters, eps 1e-5."""

    def forward(self, x_BCXYZ: Tensor) -> Tensor:
        return F.group_norm(x_BCXYZ, x_BCXYZ.shape[1], eps=1e-5)


class ModalityLinear(nn.Module):
    """A linear map of the channels (1×1×1 convolution) with weights of its own for each modality.

    All modalities go through one batched matrix product. With `shared` there is one set of weights.
    """

    def __init__(
        self, modalities: int, inputs: int, outputs: int, *, bias: bool = True, shared: bool = False
    ) -> None:
        super().__init__()
        self.modalities = modalities
        sets = 1 if shared else modalities
        self.weight = nn.Parameter(torch.empty(sets, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(sets, outputs)) if bias else None

    def forward(self, x_MBXYZC: Tensor) -> Tensor:
        shape = x_MBXYZC.shape
        weight_MCC = self.weight.mT.expand(self.modalities, -1, -1)
        x_MNC = x_MBXYZC.reshape(self.modalities, -1, shape[-1])
        if self.bias is None:
            y_MNC = torch.bmm(x_MNC, weight_MCC)
        else:
            y_MNC = torch.baddbmm(self.bias[:, None], x_MNC, weight_MCC)
        return y_MNC.reshape(*shape[:-1], -1)


class ModalityLayerNorm(nn.Module):
    """Layer norm over the channels, with an affine map of its own for each modality, eps 1e-6."""

    def __init__(self, modalities: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(modalities, width))
        self.bias = nn.Parameter(torch.zeros(modalities, width))

    def forward(self, x_MBXYZC: Tensor) -> Tensor:
        width = x_MBXYZC.shape[-1]
        normal = F.layer_norm(x_MBXYZC, (width,), eps=1e-6)
        view = (-1, 1, 1, 1, 1, width)
        return torch.addcmul(self.bias.view(view), normal, self.weight.view(view))


class PixelShuffle3d(nn.Module):
    """Unfolds channels into space: channel = output · r³ + i · r² + j · r + l for offsets i, j, l."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x_BCXYZ: Tensor) -> Tensor:
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
