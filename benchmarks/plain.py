"""The network as one writes it first: each function undoes one of the rewrites for CPUs of `veloxseg.model`.

The authors' code is not here, so this stands for an eager network without special care. Same numbers, other speed.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.model import jlc, layers, pwa

__all__ = ["explicit_attention", "make_plain", "plain_group_norm", "separate_norm_linear"]


def explicit_attention(self: nn.Module, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return ((q * q.shape[-1] ** -0.5) @ k.mT + bias).softmax(-1) @ v


def plain_group_norm(self: nn.Module, x: Tensor) -> Tensor:
    return F.instance_norm(x, eps=layers.EPS)


def separate_norm_linear(self: layers.NormLinear, x: Tensor) -> Tensor:
    shape = (-1, 1, 1, 1, 1, x.shape[-1])
    normal = F.layer_norm(x, x.shape[-1:], eps=1e-6) * self.norm_weight.view(shape) + self.norm_bias.view(shape)
    return layers.ModalityLinear.forward(self, normal)


def make_plain(network: nn.Module) -> None:
    """Undoes all of them, for the rest of this process."""
    layers.Conv3d.forward = nn.Conv3d.forward  # type: ignore[method-assign]
    layers.InstanceNorm.forward = plain_group_norm  # type: ignore[assignment]
    layers.NormLinear.forward = separate_norm_linear  # type: ignore[assignment]
    pwa.WindowAttention.forward = explicit_attention  # type: ignore[assignment]
    pwa.RelativePositionBias.forward = pwa.RelativePositionBias.build  # type: ignore[method-assign]
    jlc.channels_last = lambda x: x.contiguous()
    for module in network.modules():
        if isinstance(module, pwa.PairedWindowAttention):
            module.drop_upsampling_matrices()
