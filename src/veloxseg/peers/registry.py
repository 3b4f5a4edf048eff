"""The networks that VeloxSeg is compared with: how each is built, its source, its published figures.

Published figures are those of the paper's table "Computational performance" (AutoPET-II, input 2×96³, 2
classes). They were made with a counter that sees layers and nothing else: it leaves out parameters that are
no layer's, group norms and attention products, and counts a transposed convolution on its output.
`model/count.py` counts in this way (`…_as_published`) and in the real way; a test holds every peer to the
published figures within 3 %.

Importing this module imports neither torch nor MONAI: a peer's module is loaded when it is built.
"""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veloxseg.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["PEERS", "Peer", "build_peer"]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """What is known of a peer; `build` is "module:function" below `veloxseg.peers`."""

    build: str
    title: str
    paper: str
    venue: str
    year: int
    source: str
    parameters: float | None = None  # published, in millions
    macs: float | None = None  # published, in G
    cpu: float | None = None  # published patches/s on the authors' CPU
    gpu: float | None = None  # published patches/s on the authors' GPU
    dice: float | None = None  # published, AutoPET-II, %
    closeness: str


MONAI = "MONAI's implementation"
OURS = "written by us; layer sizes from the authors' public release"
EXACT = "parameters and MACs equal the published ones to the printed digits"

PEERS: dict[str, Peer] = {
    "unet": Peer(
        build="monai_peers:unet",
        title="UNet",
        paper="Falk et al., U-Net: deep learning for cell counting, detection, and morphometry",
        venue="Nature Methods",
        year=2019,
        source=MONAI,
        parameters=5.75,
        macs=136.56,
        cpu=0.23,
        gpu=101.04,
        dice=59.41,
        closeness=EXACT,
    ),
    "unet-light": Peer(
        build="monai_peers:unet_light",
        title="UNet (light)",
        paper="Kerfoot et al., Left-Ventricle Quantification Using Residual U-Net",
        venue="STACOM",
        year=2018,
        source=MONAI + " (UNet), widths 8 to 128, 2 residual units",
        closeness="not in the paper's table; a UNet of a cost like VeloxSeg's, for training beside it",
    ),
    "vnet": Peer(
        build="monai_peers:vnet",
        title="VNet",
        paper="Milletari et al., V-Net: Fully Convolutional Networks for Volumetric Image Segmentation",
        venue="3DV",
        year=2016,
        source=MONAI,
        parameters=45.60,
        macs=322.22,
        cpu=0.14,
        gpu=58.99,
        dice=53.21,
        closeness=EXACT,
    ),
    "mednext-s": Peer(
        build="monai_peers:mednext_s",
        title="MedNeXt-S",
        paper="Roy et al., MedNeXt: Transformer-driven Scaling of ConvNets for Medical Image Segmentation",
        venue="MICCAI",
        year=2023,
        source=MONAI,
        parameters=5.54,
        macs=57.93,
        cpu=0.06,
        gpu=27.95,
        dice=53.94,
        closeness="parameters equal; MACs 0.2 % below the published ones",
    ),
    "unetr": Peer(
        build="monai_peers:unetr",
        title="UNETR",
        paper="Hatamizadeh et al., UNETR: Transformers for 3D Medical Image Segmentation",
        venue="WACV",
        year=2022,
        source=MONAI,
        parameters=95.76,
        macs=83.61,
        cpu=0.40,
        gpu=131.96,
        dice=51.49,
        closeness="MACs equal; parameters 0.02 % above the published ones",
    ),
    "swin-unetr": Peer(
        build="monai_peers:swin_unetr",
        title="Swin UNETR",
        paper="Hatamizadeh et al., Swin UNETR: Swin Transformers for Segmentation of Brain Tumors in MRI",
        venue="MICCAI BrainLes",
        year=2021,
        source=MONAI + ", feature size 24",
        parameters=15.51,
        macs=84.26,
        cpu=0.14,
        gpu=38.37,
        dice=62.24,
        closeness=EXACT,
    ),
    "segresnet": Peer(
        build="monai_peers:segresnet",
        title="SegResNet",
        paper="Myronenko, 3D MRI brain tumor segmentation using autoencoder regularization",
        venue="MICCAI BrainLes",
        year=2018,
        source=MONAI + ", 32 filters",
        closeness="not in the paper's table",
    ),
    "dynunet": Peer(
        build="monai_peers:dynunet",
        title="DynUNet",
        paper="Isensee et al., nnU-Net: a self-configuring method for biomedical image segmentation",
        venue="Nature Methods",
        year=2021,
        source=MONAI + ", stages by nnU-Net's rule for the patch",
        closeness="not in this table; the paper's nnU-Net (88.62 M) is another plan than this one for 96³",
    ),
    "vsmtrans": Peer(
        build="vsmtrans:build",
        title="VSmTrans",
        paper="Liu et al., VSmTrans: A hybrid paradigm integrating self-attention and convolution",
        venue="Medical Image Analysis",
        year=2024,
        source=OURS,
        parameters=12.48,
        macs=91.44,
        cpu=0.14,
        gpu=36.56,
        dice=62.46,
        closeness=EXACT,
    ),
    "unetr++": Peer(
        build="unetrpp:build",
        title="UNETR++",
        paper="Shaker et al., UNETR++: Delving into Efficient and Accurate 3D Medical Image Segmentation",
        venue="IEEE TMI",
        year=2024,
        source=OURS,
        parameters=19.97,
        macs=57.93,
        cpu=0.67,
        gpu=161.15,
        dice=36.50,
        closeness=EXACT,
    ),
    "u-kan": Peer(
        build="ukan:build",
        title="U-KAN",
        paper="Li et al., U-KAN Makes Strong Backbone for Medical Image Segmentation and Generation",
        venue="AAAI",
        year=2025,
        source=OURS,
        parameters=7.06,
        macs=22.90,
        cpu=0.82,
        gpu=187.06,
        dice=60.67,
        closeness=EXACT,
    ),
    "nestedformer": Peer(
        build="nestedformer:build",
        title="NestedFormer",
        paper="Xing et al., NestedFormer: Nested Modality-Aware Transformer for Brain Tumor Segmentation",
        venue="MICCAI",
        year=2022,
        source=OURS,
        parameters=4.71,
        macs=58.62,
        cpu=0.41,
        gpu=95.63,
        dice=61.38,
        closeness=EXACT,
    ),
    "a2fseg": Peer(
        build="a2fseg:build",
        title="A2FSeg",
        paper="Wang and Hong, A2FSeg: Adaptive Multi-Modal Fusion Network for Medical Image Segmentation",
        venue="MICCAI",
        year=2023,
        source=OURS,
        parameters=41.32,
        macs=207.97,
        cpu=0.17,
        gpu=52.02,
        dice=60.86,
        closeness="parameters equal; MACs 0.06 % below the published ones",
    ),
    "h-denseformer": Peer(
        build="hdenseformer:build",
        title="H-DenseFormer",
        paper="Shi et al., H-DenseFormer: An Efficient Hybrid Densely Connected Transformer",
        venue="MICCAI",
        year=2023,
        source=OURS,
        parameters=3.64,
        macs=71.91,
        cpu=0.44,
        gpu=123.35,
        dice=61.50,
        closeness="parameters equal; MACs 0.02 % below the published ones",
    ),
    "segformer-3d": Peer(
        build="segformer3d:build",
        title="SegFormer-3D",
        paper="Perera et al., SegFormer3D: an Efficient Transformer for 3D Medical Image Segmentation",
        venue="CVPR workshops",
        year=2024,
        source=OURS,
        parameters=4.50,
        macs=5.11,
        cpu=3.31,
        gpu=364.24,
        dice=40.44,
        closeness=EXACT,
    ),
    "slim-unetr": Peer(
        build="slim_unetr:build",
        title="Slim UNETR",
        paper="Pang et al., Slim UNETR: Scale Hybrid Transformers to Efficient 3D Medical Image Segmentation",
        venue="IEEE TMI",
        year=2024,
        source=OURS,
        parameters=1.77,
        macs=3.83,
        cpu=11.40,
        gpu=178.33,
        dice=52.53,
        closeness=EXACT,
    ),
    "superlightnet": Peer(
        build="superlightnet:build",
        title="SuperLightNet",
        paper="Yu et al., SuperLightNet: Lightweight Parameter Aggregation Network for Tumor Segmentation",
        venue="CVPR",
        year=2025,
        source=OURS,
        parameters=2.75,
        macs=19.42,
        cpu=0.27,
        gpu=55.48,
        dice=48.35,
        closeness=EXACT,
    ),
    "hcma-unet": Peer(
        build="hcma_unet:build",
        title="HCMA-UNet",
        paper="Li et al., HCMA-UNet: A Hybrid CNN-Mamba UNet with Axial Self-Attention",
        venue="ICME",
        year=2025,
        source=OURS + ", the scan in plain PyTorch",
        parameters=2.81,
        macs=26.15,
        gpu=54.51,
        dice=43.40,
        closeness=EXACT,
    ),
    "u-rwkv": Peer(
        build="urwkv:build",
        title="U-RWKV",
        paper="Ye et al., U-RWKV: Lightweight medical image segmentation with direction-adaptive RWKV",
        venue="MICCAI",
        year=2025,
        source=OURS + ", the scan in plain PyTorch",
        parameters=1.44,
        macs=20.68,
        gpu=82.09,
        dice=57.18,
        closeness="parameters equal; MACs 0.1 % below the published ones",
    ),
}


def build_peer(name: str, in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> "nn.Module":
    """The network `name`: (B, sum(in_channels), *patch) -> (B, classes, *patch), logits."""
    if name not in PEERS:
        raise ConfigError(f"there is no peer {name!r}; choose one of {', '.join(sorted(PEERS))}")
    module, _, function = PEERS[name].build.partition(":")
    return getattr(importlib.import_module(f"veloxseg.peers.{module}"), function)(
        tuple(in_channels), classes, tuple(patch)
    )
