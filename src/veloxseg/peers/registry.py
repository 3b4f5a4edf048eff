"""The networks that VeloxSeg is compared with: how each is built, and its source.

The paper's figures of each are in `published.py`; a test holds every peer to them.

Importing this module imports neither torch nor MONAI: a peer's module is loaded when it is built.
"""

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from veloxseg.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["FOUNDATION", "PEERS", "Peer", "build_peer", "read_pretrained"]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """What is known of a peer; `build` is "module:function" below `veloxseg.peers`."""

    build: str
    title: str
    paper: str
    venue: str
    year: int
    source: str
    closeness: str
    family: str = "basic"  # as the paper groups them: basic, multimodal or lightweight
    weights: str = ""  # where those are to be had that it starts from; "" for a peer that is trained from scratch
    reader: str = ""  # "module:function" that reads them
    kind: str = "CNN"  # what it computes with: CNN, Transformer, CNN-Transformer, CNN-KAN, CNN-Mamba, CNN-RWKV


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
        family="lightweight",
    ),
    "vnet": Peer(
        build="monai_peers:vnet",
        title="VNet",
        paper="Milletari et al., V-Net: Fully Convolutional Networks for Volumetric Image Segmentation",
        venue="3DV",
        year=2016,
        source=MONAI,
        closeness=EXACT,
    ),
    "mednext-s": Peer(
        build="monai_peers:mednext_s",
        title="MedNeXt-S",
        paper="Roy et al., MedNeXt: Transformer-driven Scaling of ConvNets for Medical Image Segmentation",
        venue="MICCAI",
        year=2023,
        source=MONAI,
        closeness="parameters equal; MACs 0.2 % below the published ones",
    ),
    "unetr": Peer(
        build="monai_peers:unetr",
        title="UNETR",
        paper="Hatamizadeh et al., UNETR: Transformers for 3D Medical Image Segmentation",
        venue="WACV",
        year=2022,
        source=MONAI,
        closeness="MACs equal; parameters 0.02 % above the published ones",
        kind="CNN-Transformer",
    ),
    "swin-unetr": Peer(
        build="monai_peers:swin_unetr",
        title="Swin UNETR",
        paper="Hatamizadeh et al., Swin UNETR: Swin Transformers for Segmentation of Brain Tumors in MRI",
        venue="MICCAI BrainLes",
        year=2021,
        source=MONAI + ", feature size 24",
        closeness=EXACT,
        kind="CNN-Transformer",
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
        closeness=EXACT,
        kind="CNN-Transformer",
    ),
    "unetr++": Peer(
        build="unetrpp:build",
        title="UNETR++",
        paper="Shaker et al., UNETR++: Delving into Efficient and Accurate 3D Medical Image Segmentation",
        venue="IEEE TMI",
        year=2024,
        source=OURS,
        closeness=EXACT,
        kind="CNN-Transformer",
    ),
    "u-kan": Peer(
        build="ukan:build",
        title="U-KAN",
        paper="Li et al., U-KAN Makes Strong Backbone for Medical Image Segmentation and Generation",
        venue="AAAI",
        year=2025,
        source=OURS,
        closeness=EXACT,
        kind="CNN-KAN",
    ),
    "nestedformer": Peer(
        build="nestedformer:build",
        title="NestedFormer",
        paper="Xing et al., NestedFormer: Nested Modality-Aware Transformer for Brain Tumor Segmentation",
        venue="MICCAI",
        year=2022,
        source=OURS,
        closeness=EXACT,
        family="multimodal",
        kind="CNN-Transformer",
    ),
    "a2fseg": Peer(
        build="a2fseg:build",
        title="A2FSeg",
        paper="Wang and Hong, A2FSeg: Adaptive Multi-Modal Fusion Network for Medical Image Segmentation",
        venue="MICCAI",
        year=2023,
        source=OURS,
        closeness="parameters equal; MACs 0.06 % below the published ones",
        family="multimodal",
    ),
    "h-denseformer": Peer(
        build="hdenseformer:build",
        title="H-DenseFormer",
        paper="Shi et al., H-DenseFormer: An Efficient Hybrid Densely Connected Transformer",
        venue="MICCAI",
        year=2023,
        source=OURS,
        closeness="parameters equal; MACs 0.02 % below the published ones",
        family="multimodal",
        kind="CNN-Transformer",
    ),
    "segformer-3d": Peer(
        build="segformer3d:build",
        title="SegFormer-3D",
        paper="Perera et al., SegFormer3D: an Efficient Transformer for 3D Medical Image Segmentation",
        venue="CVPR workshops",
        year=2024,
        source=OURS,
        closeness=EXACT,
        family="lightweight",
        kind="Transformer",
    ),
    "slim-unetr": Peer(
        build="slim_unetr:build",
        title="Slim UNETR",
        paper="Pang et al., Slim UNETR: Scale Hybrid Transformers to Efficient 3D Medical Image Segmentation",
        venue="IEEE TMI",
        year=2024,
        source=OURS,
        closeness=EXACT,
        family="lightweight",
        kind="CNN-Transformer",
    ),
    "superlightnet": Peer(
        build="superlightnet:build",
        title="SuperLightNet",
        paper="Yu et al., SuperLightNet: Lightweight Parameter Aggregation Network for Tumor Segmentation",
        venue="CVPR",
        year=2025,
        source=OURS,
        closeness=EXACT,
        family="lightweight",
    ),
    "hcma-unet": Peer(
        build="hcma_unet:build",
        title="HCMA-UNet",
        paper="Li et al., HCMA-UNet: A Hybrid CNN-Mamba UNet with Axial Self-Attention",
        venue="ICME",
        year=2025,
        source=OURS + ", the scan in plain PyTorch",
        closeness=EXACT,
        family="lightweight",
        kind="CNN-Mamba",
    ),
    "u-rwkv": Peer(
        build="urwkv:build",
        title="U-RWKV",
        paper="Ye et al., U-RWKV: Lightweight medical image segmentation with direction-adaptive RWKV",
        venue="MICCAI",
        year=2025,
        source=OURS + ", the scan in plain PyTorch",
        closeness="parameters equal; MACs 0.1 % below the published ones",
        family="lightweight",
        kind="CNN-RWKV",
    ),
}

# Pre-trained elsewhere: `study peers` and `benchmark --models all` pass them by, as a user has to bring the weights.
FOUNDATION: dict[str, Peer] = {
    "dinov3-l": Peer(
        build="dinov3:build",
        title="DINOv3-L",
        paper="Siméoni et al., DINOv3",
        venue="arXiv",
        year=2025,
        source=OURS + "; frozen, on axial slices, with a linear head",
        closeness="the paper does not say how it fed slices and modalities",
        family="foundation",
        kind="Transformer",
        weights="huggingface.co/facebook/dinov3-vitl16-pretrain-lvd1689m (model.safetensors, by its licence)",
        reader="dinov3:read_weights",
    )
}


def build_peer(name: str, in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> "nn.Module":
    """The network `name`: (B, sum(in_channels), *patch) -> (B, classes, *patch), logits."""
    known = PEERS | FOUNDATION
    if name not in known:
        raise ConfigError(f"there is no peer {name!r}; choose one of {', '.join(sorted(known))}")
    return _load(known[name].build)(tuple(in_channels), classes, tuple(patch))


def read_pretrained(name: str, path: str) -> "dict[str, Tensor] | None":
    """Tensors of a foundation model from the file that its authors released; None if `name` is none."""
    peer = FOUNDATION.get(name)
    return None if peer is None else _load(peer.reader)(path)


def _load(place: str) -> Any:
    module, _, function = place.partition(":")
    return getattr(importlib.import_module(f"veloxseg.peers.{module}"), function)
