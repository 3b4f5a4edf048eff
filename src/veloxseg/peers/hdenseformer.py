"""H-DenseFormer: a U-Net that is fed, at every scale, by one densely connected transformer per modality.

Paper: Shi et al., "H-DenseFormer: An Efficient Hybrid Densely Connected Transformer for Multimodal Tumor
Segmentation", MICCAI 2023 (arXiv 2307.01486). Built from the paper and from facts of the authors' release
(shijun18/H-DenseFormer) and of VeloxSeg's (JinPLu/VeloxSeg): 16 filters, the smaller of the authors' two sizes,
tokens of 16³ voxels, growth 32, 24 dense layers in six blocks of four. The code is ours.

    each modality ─ patches of 16³ ─ 6 × DCT block ─┐
                                                    ├─ ×2 ─ ×2 ─ ×2 ─ ×2   added to the encoder's four scales
    all modalities ─ U-Net encoder ─────────────────┴─ U-Net decoder ─ head

DCT block (densely connected transformer): every layer sees the concatenation of the block's input and of what
all earlier layers have made, cut to 32 channels before it attends, so that depth costs little.

Left out: the heads for deep supervision, which only training would use. Each modality may have several
channels (the release takes one).

Matched at 2×96³, 2 classes: 3.67 M parameters (VeloxSeg's table has 3.64, as its counter leaves out position
tables; the same rule gives 3.64 here) and 71.90 G multiply-accumulates as published (71.91; the heads left out
are the rest). Real work by FlopCounterMode/2 is 52.95 G: transposed convolutions are counted on their output.
At 128×128×64: 85.22 G (85.23); with 4 modalities and classes: 5.39 M as published (5.39), 73.16 G (73.18).
"""

# B batch, L token, C channel, H head

import torch
from torch import Tensor, nn
from torch.nn import functional

from veloxseg.peers.parts import InstanceNorm, check_channels, check_patch

__all__ = ["HDenseFormer", "build"]

FILTERS = 16
TOKEN = 16  # voxels along the edge of a token
GROWTH = 32
HEADS = 8
BLOCKS = 6
LAYERS = 4
DROPOUT = 0.5


def build(in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> nn.Module:
    """H-DenseFormer for patches that 16 divides; its position tables tie it to the patch."""
    check_channels("h-denseformer", in_channels, classes)
    check_patch("h-denseformer", patch, TOKEN)
    return HDenseFormer(in_channels, classes, patch)


class HDenseFormer(nn.Module):
    """(B, sum(in_channels), X, Y, Z) to (B, classes, X, Y, Z)."""

    def __init__(self, in_channels: tuple[int, ...], classes: int, patch: tuple[int, int, int]) -> None:
        super().__init__()
        self.in_channels = list(in_channels)
        widths = [FILTERS * 2**scale for scale in range(4)]
        tokens = (patch[0] // TOKEN) * (patch[1] // TOKEN) * (patch[2] // TOKEN)
        self.paths = nn.ModuleList(ModalityPath(channels, widths[2], tokens) for channels in in_channels)
        joined = len(in_channels) * widths[2]
        self.raise_to = nn.ModuleList(
            RaiseTwofold(low, high) for low, high in zip([joined, *widths[:0:-1]], widths[::-1], strict=True)
        )
        self.encoder = nn.ModuleList(
            double_convolution(low, high) for low, high in zip([sum(in_channels), *widths], widths, strict=False)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose3d(2 * width, width, 3, stride=2, padding=1, output_padding=1) for width in widths[-2::-1]
        )
        self.decoder = nn.ModuleList(double_convolution(2 * width, width) for width in widths[-2::-1])
        self.head = nn.Conv3d(FILTERS, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        modalities = torch.split(images, self.in_channels, dim=1)
        context = torch.cat([path(image) for path, image in zip(self.paths, modalities, strict=True)], dim=1)
        contexts = []  # coarsest first
        for layer in self.raise_to:
            context = layer(context)
            contexts.append(context)
        features, skips = images, []
        for stage in self.encoder:
            features = stage(features) + contexts.pop()
            skips.append(features)
            features = functional.max_pool3d(features, 2)
        features = skips.pop()
        for up, stage in zip(self.up, self.decoder, strict=True):
            features = stage(torch.cat([up(features), skips.pop()], dim=1))
        return self.head(features)


class ModalityPath(nn.Module):
    """One modality to tokens, through the dense blocks, and back to a grid of 1/16."""

    def __init__(self, channels: int, width: int, tokens: int) -> None:
        super().__init__()
        self.embed = nn.Conv3d(channels, width, TOKEN, stride=TOKEN)
        self.position = nn.Parameter(torch.zeros(tokens, width))
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(DenseBlock(width) for _ in range(BLOCKS)))

    def forward(self, image: Tensor) -> Tensor:
        grid_BCXYZ = self.embed(image)
        tokens_BLC = self.blocks(self.dropout(grid_BCXYZ.flatten(2).mT + self.position))
        return tokens_BLC.mT.reshape(grid_BCXYZ.shape)


class DenseBlock(nn.Module):
    """DCT block: four small transformer layers that see all that came before them in the block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(width + index * GROWTH) for index in range(LAYERS))
        self.out = feed_forward(width + LAYERS * GROWTH, width)

    def forward(self, tokens_BLC: Tensor) -> Tensor:
        for layer in self.layers:
            tokens_BLC = torch.cat([tokens_BLC, layer(tokens_BLC)], dim=-1)
        return self.out(tokens_BLC)


class DenseLayer(nn.Module):
    """Reduce to the growth, attend, and pass the feed-forward part twice: once as residual, once as output."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce = nn.Linear(width, GROWTH)
        self.attention_norm = nn.LayerNorm(GROWTH)
        self.queries_keys_values = nn.Linear(GROWTH, 3 * GROWTH, bias=False)
        self.softmax = nn.Softmax(dim=-1)
        self.mix = nn.Sequential(nn.Linear(GROWTH, GROWTH), nn.Dropout(DROPOUT))
        self.feed = nn.Sequential(nn.LayerNorm(GROWTH), feed_forward(GROWTH, GROWTH))

    def forward(self, tokens_BLC: Tensor) -> Tensor:
        tokens = self.reduce(tokens_BLC)
        tokens = tokens + self.attend(self.attention_norm(tokens))
        tokens = tokens + self.feed(tokens)
        return self.feed(tokens)

    def attend(self, tokens_BLC: Tensor) -> Tensor:
        batch, length, _ = tokens_BLC.shape
        projected = self.queries_keys_values(tokens_BLC).view(batch, length, 3, HEADS, GROWTH // HEADS)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # each (B, H, L, C/H)
        weights = self.softmax(query @ key.mT * (GROWTH // HEADS) ** -0.5)
        return self.mix((weights @ value).transpose(1, 2).flatten(2))


def feed_forward(inputs: int, outputs: int) -> nn.Sequential:
    hidden = 2 * GROWTH
    return nn.Sequential(
        nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(DROPOUT), nn.Linear(hidden, outputs), nn.Dropout(DROPOUT)
    )


class RaiseTwofold(nn.Module):
    """Convolution, instance norm, ReLU, then twice the resolution by trilinear interpolation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.convolve = nn.Sequential(nn.Conv3d(inputs, outputs, 3, padding=1), InstanceNorm(outputs), nn.ReLU())

    def forward(self, features: Tensor) -> Tensor:
        return functional.interpolate(self.convolve(features), scale_factor=2, mode="trilinear")


def double_convolution(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width in (inputs, outputs):
        layers += [
            nn.Conv3d(width, outputs, 3, padding=1, bias=False),
            InstanceNorm(outputs, affine=True),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)
