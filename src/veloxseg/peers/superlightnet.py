"""SuperLightNet: Hadamard products with learned planes instead of attention, and learned skips.

Paper: Yu et al., "SuperLightNet: Lightweight Parameter Aggregation Network for Multimodal Brain Tumor
Segmentation", CVPR 2025. Layer sizes (width 24 doubling to 384, depths 1/1/2/2/2, expansion 2, decoder
groups of 12) are facts looked up in the authors' public release (WTU-MIS-Laboratory/SuperLightNet,
"small"); the code is ours. Matched at 2×96³, 2 classes: 19.42 G multiply-accumulates and 2.75 M parameters
as published. That counter sees layers only: with the planes, which are bare parameters, it is 2.97 M, the
figure of its authors.

As released, half of the channels are mixed slice by slice along one axis, once in each direction of the
slices. In training the axis is drawn anew for every pass; the release draws it in evaluation too, which
makes predictions random, so that here each block keeps one axis in evaluation. (Slices do not see each
other, so the second direction repeats the first one's result in reverse order. It is computed all the same:
this is the network that was measured.)
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.peers.parts import InstanceNorm, check_channels, check_patch

__all__ = ["SuperLightNet", "build"]

WIDTH = 24
DEPTHS = (1, 1, 2, 2, 2)
EXPANSION = 2
DECODER_GROUP = 12
PLANE = 8  # resolution of the learned planes


def build(in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> nn.Module:
    check_channels("superlightnet", in_channels, classes)
    check_patch("superlightnet", patch, 16)
    return SuperLightNet(sum(in_channels), classes)


class ChannelNorm(nn.Module):
    """Layer norm over the channel axis of a channels-first slice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, 1, 1))
        self.bias = nn.Parameter(torch.zeros(width, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-6) * self.weight + self.bias


class Plane(nn.Module):
    """A small learned plane, resized to its factor and smoothed by a depth-wise separable map."""

    def __init__(self, shape: tuple[int, ...], width: int, conv: type[nn.Conv1d] | type[nn.Conv2d]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.ones(1, *shape))
        self.smooth = nn.Sequential(conv(width, width, 3, padding=1, groups=width), nn.GELU(), conv(width, width, 1))

    def resized(self, size: tuple[int, int]) -> Tensor:
        return F.interpolate(self.values, size=size, mode="bilinear", align_corners=True)


class HadamardAttention(nn.Module):
    """A quarter of the channels each times a plane over (u, v), (channel, u), (channel, v), or convolved."""

    def __init__(self, width: int) -> None:
        super().__init__()
        quarter = width // 4
        self.norm_in = ChannelNorm(width)
        self.over_uv = Plane((quarter, width, PLANE), quarter, nn.Conv2d)
        self.over_u = Plane((1, quarter, width), quarter, nn.Conv1d)
        self.over_v = Plane((1, quarter, PLANE), quarter, nn.Conv1d)
        self.local = nn.Sequential(
            nn.Conv2d(quarter, quarter, 1), nn.GELU(), nn.Conv2d(quarter, quarter, 3, padding=1, groups=quarter)
        )
        self.norm_out = ChannelNorm(width)
        self.mix = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, groups=width), nn.GELU(), nn.Conv2d(width, width, 1)
        )

    def forward(self, slices: Tensor) -> Tensor:
        a, b, c, d = self.norm_in(slices).chunk(4, dim=1)  # each (slice, channel, u, v)
        channels, u, v = a.shape[1:]
        a = a * self.over_uv.smooth(self.over_uv.resized((u, v)))
        b = b * self.over_u.smooth(self.over_u.resized((channels, u)).squeeze(0)).unsqueeze(-1)
        c = c * self.over_v.smooth(self.over_v.resized((channels, v)).squeeze(0)).unsqueeze(-2)
        return self.mix(self.norm_out(torch.cat([a, b, c, self.local(d)], dim=1)))


class Block(nn.Module):
    def __init__(self, width: int, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.norm_half = InstanceNorm(width // 2)
        self.attention = HadamardAttention(width // 2)
        self.norm = InstanceNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Conv3d(width, EXPANSION * width, 1), nn.GELU(), nn.Conv3d(EXPANSION * width, width, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        mixed, kept = x.chunk(2, dim=1)
        axis = int(torch.randint(3, ())) if self.training else self.axis
        slices = self.norm_half(mixed).movedim(2 + axis, 0)  # (slice, B, C, u, v)
        folded = slices.flatten(0, 1)
        forth = self.attention(folded).unflatten(0, slices.shape[:2])
        back = self.attention(folded.flip(0)).unflatten(0, slices.shape[:2]).flip(1)
        mixed = (forth + back).movedim(0, 2 + axis)
        return self.feed_forward(self.norm(torch.cat([mixed, kept], dim=1)))


class Up(nn.Module):
    """Double the size, add the skip with a learned weight per channel, refine by a grouped convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.narrow = nn.Conv3d(inputs, outputs, 1, bias=False)
        self.skip_weight = nn.Parameter(torch.ones(1, outputs, 1, 1, 1))
        self.residual_weight = nn.Parameter(torch.ones(1))
        self.refine = nn.Sequential(
            InstanceNorm(outputs),
            nn.Conv3d(outputs, outputs, 3, padding=1, groups=outputs // DECODER_GROUP, bias=False),
            nn.GELU(),
            nn.Conv3d(outputs, outputs, 1, bias=False),
        )

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        x = F.interpolate(self.narrow(x), scale_factor=2, mode="trilinear", align_corners=False)
        x = x + skip * self.skip_weight
        return self.refine(x) + x * self.residual_weight


class SuperLightNet(nn.Module):
    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        widths = [WIDTH * 2**i for i in range(len(DEPTHS))]
        axes = iter(i % 3 for i in range(sum(DEPTHS)))
        self.stem = nn.Conv3d(inputs, WIDTH, 1)
        self.stages = nn.ModuleList(
            nn.Sequential(*(Block(width, next(axes)) for _ in range(depth)))
            for width, depth in zip(widths, DEPTHS, strict=True)
        )
        self.downs = nn.ModuleList(
            nn.Sequential(InstanceNorm(width), nn.Conv3d(width, 2 * width, 2, stride=2)) for width in widths[:-1]
        )
        self.ups = nn.ModuleList(Up(2 * width, width) for width in widths[:-1])
        self.head = nn.Sequential(
            nn.GroupNorm(WIDTH, WIDTH),
            nn.Conv3d(WIDTH, EXPANSION * WIDTH, 1),
            nn.GELU(),
            nn.Conv3d(EXPANSION * WIDTH, classes, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages[0](self.stem(x))
        skips = []
        for down, stage in zip(self.downs, list(self.stages)[1:], strict=True):
            skips.append(x)
            x = stage(down(x))
        for up, skip in zip(reversed(list(self.ups)), reversed(skips), strict=True):
            x = up(x, skip)
        return self.head(x)
