"""Any network with the instance norms that our own graphs have. Imports torch.

OpenVINO sums a norm in one accumulator, which costs three digits on windows that are nearly constant, and these are
common at the border of a scan. Our graphs take the means in two steps (runtimes/graph_layers.py); so does, after this,
a network of nnU-Net.
"""

import copy

import torch
from torch import Tensor, nn

from veloxseg.runtimes.graph_layers import PLAIN, STYLES, InstanceNorm
from veloxseg.types import Size

__all__ = ["exact_norms"]

EPSILON = 1e-5  # of our norm


class Scale(nn.Module):
    """What an affine norm does after it has normalised."""

    weight: Tensor
    bias: Tensor

    def __init__(self, norm: nn.InstanceNorm3d) -> None:
        super().__init__()
        self.register_buffer("weight", norm.weight.detach().view(1, -1, 1, 1, 1))
        self.register_buffer("bias", norm.bias.detach().view(1, -1, 1, 1, 1))

    def forward(self, x_1CXYZ: Tensor) -> Tensor:
        return x_1CXYZ * self.weight + self.bias


def exact_norms(network: nn.Module, window_1CXYZ: Tensor, runtime: str) -> nn.Module:
    """A copy of the network for a runtime; the window tells the size of the features that each norm meets."""
    network = copy.deepcopy(network).eval()
    sizes: dict[nn.Module, Size] = {}

    def remember(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x, y, z = inputs[0].shape[2:]
        sizes[module] = (x, y, z)

    norms = [m for m in network.modules() if isinstance(m, nn.InstanceNorm3d) and m.eps == EPSILON]
    hooks = [norm.register_forward_pre_hook(remember) for norm in norms]
    with torch.no_grad():
        network(window_1CXYZ)
    for hook in hooks:
        hook.remove()
    exact = {norm: _exact(norm, sizes[norm], runtime) for norm in norms if norm in sizes}
    for parent in list(network.modules()):  # nnU-Net keeps a norm under several parents
        for name, child in list(parent.named_children()):
            if child in exact:
                setattr(parent, name, exact[child])
    return network


def _exact(norm: nn.InstanceNorm3d, size: Size, runtime: str) -> nn.Module:
    ours = InstanceNorm(size, STYLES.get(runtime, PLAIN))
    return nn.Sequential(ours, Scale(norm)) if norm.affine else ours
