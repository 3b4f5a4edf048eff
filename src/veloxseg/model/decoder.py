"""The decoder, in the one shape that the student and the texture teachers share.

    u_4 = enc_4;   u_k = JLC_k(enc_k + IN(ConvTranspose(u_{k+1})))   for k = 3, 2, 1

The head turns u_1, at a quarter of the resolution, into voxels: Conv(kernel 3) to outputs · 4³ channels, then
pixel shuffle. (The ablation's transposed convolution costs more only by the paper's counter: see count.py.)
"""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.model.config import STAGES, STRIDES, NetworkConfig
from veloxseg.model.jlc import jlc_stage
from veloxseg.model.layers import Conv3d, InstanceNorm, PixelShuffle3d

__all__ = ["Decoder", "UpSampling", "class_difference", "logit_difference", "voxel_head"]


class UpSampling(nn.Sequential):
    """ConvTranspose(kernel 2, stride 2), then IN."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.ConvTranspose3d(inputs, outputs, 2, stride=2), InstanceNorm())


class Decoder(nn.Module):
    """Features of four stages (finest first) to decoded features u_1..u_4 (finest first)."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        stages = range(STAGES - 1)
        self.ups = nn.ModuleList(UpSampling(config.widths[k + 1], config.widths[k]) for k in stages)
        self.blocks = nn.ModuleList(jlc_stage(config, "decoder", k) for k in stages)

    def forward(self, encoded: Sequence[Tensor]) -> list[Tensor]:
        decoded = [encoded[-1]]
        for k in reversed(range(STAGES - 1)):
            decoded.insert(0, self.blocks[k](encoded[k] + self.ups[k](decoded[0])))
        return decoded


def voxel_head(config: NetworkConfig, outputs: int) -> nn.Module:
    """u_1 to `outputs` channels at full resolution."""
    stride = STRIDES[0]
    if config.head == "transposed":
        return nn.ConvTranspose3d(config.widths[0], outputs, stride, stride=stride)
    conv = Conv3d(config.widths[0], outputs * stride**3, 3, padding=1)
    return nn.Sequential(conv, PixelShuffle3d(stride))


def logit_difference(head: nn.Module, x_BCXYZ: Tensor) -> Tensor:
    """The second logit of a two-class head minus the first, (B, 1, ...): all that soft-max and arg-max depend on.

    The head is linear, so this is one convolution with the difference of the weights, at half the cost.
    """
    conv = head[0] if isinstance(head, nn.Sequential) else head
    if not isinstance(conv, Conv3d):
        logits: Tensor = head(x_BCXYZ)
        return logits[:, 1:] - logits[:, :1]
    assert conv.bias is not None
    weight, bias = class_difference(conv.weight), class_difference(conv.bias)
    y = F.conv3d(x_BCXYZ, weight, bias, padding=conv.padding)
    return head[1](y) if isinstance(head, nn.Sequential) else y


def class_difference(parameter: Tensor) -> Tensor:
    """Weight or bias of a two-class head, outputs in front, class by class: the second class minus the first."""
    first, second = parameter.chunk(2)
    return second - first
