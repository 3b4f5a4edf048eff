"""The peers that MONAI ships, with the arguments that give the parameter figures of the paper's table.

All are MONAI's defaults but for the light UNet, Swin UNETR, whose feature size is 24, and DynUNet, whose stages follow
nnU-Net's rule for the patch. MONAI is an optional part: `pip install 'veloxseg[monai]'`.
"""

from typing import Any

import torch
from torch import Tensor, nn

from veloxseg.extras import require
from veloxseg.peers.parts import check_patch

__all__ = ["dynunet", "mednext_s", "segresnet", "swin_unetr", "unet", "unet_light", "unetr", "vnet"]

Channels = tuple[int, ...]
Patch = tuple[int, int, int]


def unet(in_channels: Channels, classes: int, patch: Patch) -> nn.Module:
    check_patch("unet", patch, 16)
    return make("BasicUNet", spatial_dims=3, in_channels=sum(in_channels), out_channels=classes)


def unet_light(in_channels: Channels, classes: int, patch: Patch) -> nn.Module:
    """MONAI's residual UNet, which halves the volume in its first layer, at a cost near VeloxSeg's."""
    check_patch("unet-light", patch, 16)
    return make(
        "UNet",
        spatial_dims=3,
        in_channels=sum(in_channels),
        out_channels=classes,
        channels=(8, 16, 32, 64, 128),
        strides=(2, 2, 2, 2),
        num_res_units=2,
    )


def vnet(in_channels: Channels, classes: int, patch: Patch) -> nn.Module:
    check_patch("vnet", patch, 16)
    channels = sum(in_channels)
    if 16 % channels:  # VNet repeats the input to 16 channels, so other counts get a 1×1×1 map to 16 first
        body = make("VNet", spatial_dims=3, in_channels=16, out_channels=classes)
        return nn.Sequential(nn.Conv3d(channels, 16, 1), body)
    return make("VNet", spatial_dims=3, in_channels=channels, out_channels=classes)


def unetr(in_channels: Channels, classes: int, patch: Patch) -> nn.Module:
    check_patch("unetr", patch, 16)
    return make("UNETR", in_channels=sum(in_channels), out_channels=classes, img_size=patch)


def swin_unetr(in_channels: Channels, classes: int, patch: Patch) -> nn.Module:
    check_patch("swin-unetr", patch, 32)
    return make("SwinUNETR", in_channels=sum(in_channels), out_channels=classes, feature_size=24)


def mednext_s(in_channels: Channels, classes: int, patch: Patch) -> nn.Module:
    check_patch("mednext-s", patch, 16)
    return make("MedNeXtSmall", spatial_dims=3, in_channels=sum(in_channels), out_channels=classes)


def segresnet(in_channels: Channels, classes: int, patch: Patch) -> nn.Module:
    check_patch("segresnet", patch, 8)
    return make("SegResNet", init_filters=32, in_channels=sum(in_channels), out_channels=classes)


def dynunet(in_channels: Channels, classes: int, patch: Patch) -> nn.Module:
    """nnU-Net's plain U-Net: an axis is halved while at least 4 voxels remain; widths 32 … 320."""
    strides = nnunet_strides(patch)
    network = make(
        "DynUNet",
        spatial_dims=3,
        in_channels=sum(in_channels),
        out_channels=classes,
        kernel_size=[(3, 3, 3)] * len(strides),
        strides=strides,
        upsample_kernel_size=strides[1:],
        filters=[min(320, 32 * 2**i) for i in range(len(strides))],
    )
    # `skip_layers`, which computes, holds these too: every weight would have two names
    for again in ("input_block", "downsamples", "bottleneck", "upsamples"):
        delattr(network, again)
    return network


def nnunet_strides(patch: Patch) -> list[tuple[int, ...]]:
    """The stride of every stage: the first keeps the size, each further one halves what can be halved."""
    size = list(patch)
    strides: list[tuple[int, ...]] = [(1, 1, 1)]
    while any(halves := [axis >= 8 and axis % 2 == 0 for axis in size]):
        strides.append(tuple(2 if half else 1 for half in halves))
        size = [axis // 2 if half else axis for axis, half in zip(size, halves, strict=True)]
    return strides


def make(name: str, **arguments: Any) -> nn.Module:
    require("monai", name)
    import monai.networks.nets as nets

    network: nn.Module = getattr(nets, name)(**arguments)
    for module in network.modules():
        if isinstance(module, nn.InstanceNorm3d):
            module.register_forward_hook(keep_gradient_contiguous)
    return network


def keep_gradient_contiguous(module: nn.Module, inputs: tuple[Tensor, ...], normalised: Any) -> None:
    """A channels-last gradient into PyTorch's instance norm at batch 1 comes out wrong (see `parts`)."""
    if normalised.requires_grad and torch.is_grad_enabled():
        normalised.register_hook(lambda gradient: gradient.contiguous())
