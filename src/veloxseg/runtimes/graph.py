"""The inference form of VeloxSeg: the same function, written so that OpenVINO and onnxruntime get a clean graph.

The native kernels have the same form, made by numpy: native/weights.py.

What differs from the network in `model/`, each exact up to rounding:
- constants are made once: position bias, up-sampling matrices, layer norms and 1/√C multiplied into the weights;
- tokens are plain (N, C) matrices, one per modality, so that every projection has a constant weight;
- biases in front of an instance norm do nothing and are dropped;
- for OpenVINO, the mean of an instance norm is taken in two steps, and groups of 4 channels become 8 (two groups, or
  two neighbouring voxels);
- with two classes the head gives the difference of their logits: same labels, same probabilities, half the work.

Legend: N token of the volume, W window, M modality, H head, L token of a window, C channel, XYZ space.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.model.config import STAGES, STRIDES, NetworkConfig, PairedWindow
from veloxseg.model.decoder import UpSampling, class_difference
from veloxseg.model.encoder import EncoderStage
from veloxseg.model.network import VeloxSeg
from veloxseg.model.pwa import PairedWindowAttention
from veloxseg.model.transformer import TransformerBlock
from veloxseg.model.windows import upsampling_matrix, window_count
from veloxseg.runtimes.graph_layers import (
    PLAIN,
    STYLES,
    Convolution,
    InstanceNorm,
    Style,
    convolution_blocks,
    layer_norm,
    linears,
)
from veloxseg.types import Size

__all__ = ["InferenceForm", "inference_form"]


def inference_form(network: nn.Module, runtime: str, *, difference: bool) -> nn.Module:
    """The network as it should be exported for a runtime.

    `difference`: two classes give one output, the second minus the first. Peers, and the ablations without a
    transformer stream, are exported as they are.
    """
    if isinstance(network, VeloxSeg) and network.config.attention != "none":
        return InferenceForm(network, STYLES.get(runtime, PLAIN), difference=difference).eval()
    return Difference(network).eval() if difference else network


class Difference(nn.Module):
    """Any network of two classes, with the difference of its logits as output."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.network(image)
        return logits[:, 1:] - logits[:, :1]


class Attention(nn.Module):
    """PWA over the (N, C) tokens of every modality."""

    bias_1HLL: Tensor

    def __init__(self, source: PairedWindowAttention) -> None:
        super().__init__()
        self.pairs, self.feature, self.heads, self.sizes = (source.pairs, source.feature, source.heads, source.sizes)
        self.project = linears(source.qkv)
        scale = torch.ones(sum(self.sizes))
        scale[: self.sizes[0]] = (self.sizes[0] // self.heads) ** -0.5  # the scale of Q, in every pair
        scale = scale.repeat(len(self.pairs))
        for linear in self.project:
            linear.scale(scale)  # type: ignore[operator]
        self.mixers = linears(source.mixer)
        self.register_buffer("bias_1HLL", source.bias.build().detach().contiguous())
        for i, pair in enumerate(self.pairs):
            matrix = upsampling_matrix(pair).mT.contiguous().to(self.bias_1HLL)
            self.register_buffer(f"upsampling_{i}", matrix if max(pair.small) > 1 else None)

    def forward(self, tokens: list[Tensor]) -> list[Tensor]:
        projected = [
            linear(layer_norm(x)).unflatten(0, self.feature) for linear, x in zip(self.project, tokens, strict=True)
        ]
        blocks = torch.stack(projected).chunk(len(self.pairs), -1)  # M X Y Z C each
        windows = torch.cat([gather(block, pair) for block, pair in zip(blocks, self.pairs, strict=True)])
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # W (M L) (H C) → W H (M L) C
            for part in windows.split(self.sizes, -1)
        )
        attended = (q @ k.transpose(-1, -2) + self.bias_1HLL).softmax(-1) @ v
        #   W H (M L) C → W M L (H C)
        attended_WMLC = attended.transpose(1, 2).unflatten(1, (len(tokens), -1)).flatten(3)
        counts = [math.prod(window_count(pair, self.feature)) for pair in self.pairs]
        scales = [
            scatter(part, pair, self.feature, getattr(self, f"upsampling_{i}"))
            for i, (part, pair) in enumerate(zip(attended_WMLC.split(counts), self.pairs, strict=True))
        ]
        joined_MNC = torch.cat(scales, -1)
        return [mixer(joined_MNC[m]) for m, mixer in enumerate(self.mixers)]


def gather(x_MXYZC: Tensor, pair: PairedWindow) -> Tensor:
    """One scale as (W, M·L, C): the whole volume is pooled, then cut."""
    if max(pair.small) > 1:
        x_MXYZC = F.max_pool3d(x_MXYZC.movedim(-1, 1), pair.small).movedim(1, -1)
    modalities, channels = x_MXYZC.shape[0], x_MXYZC.shape[-1]
    lx, ly, lz = pair.tokens
    nx, ny, nz = (side // count for side, count in zip(x_MXYZC.shape[1:4], pair.tokens, strict=True))
    cut = x_MXYZC.reshape(modalities, nx, lx, ny, ly, nz, lz, channels)
    #   M nx lx ny ly nz lz C  →  nx ny nz M lx ly lz C
    return cut.permute(1, 3, 5, 0, 2, 4, 6, 7).reshape(nx * ny * nz, modalities * lx * ly * lz, channels)


def scatter(x_WMLC: Tensor, pair: PairedWindow, feature: Size, upsampling_LS: Tensor | None) -> Tensor:
    """The way back of one scale: (W, M, L, C) → (M, N, C)."""
    modalities, channels = x_WMLC.shape[1], x_WMLC.shape[-1]
    nx, ny, nz = window_count(pair, feature)
    if upsampling_LS is None:
        #   nx ny nz M bx by bz C  →  M nx bx ny by nz bz C
        ordered = x_WMLC.reshape(nx, ny, nz, modalities, *pair.big, channels).permute(3, 0, 4, 1, 5, 2, 6, 7)
    else:
        big_WMCS = x_WMLC.transpose(-1, -2) @ upsampling_LS
        #   nx ny nz M C bx by bz  →  M nx bx ny by nz bz C
        ordered = big_WMCS.reshape(nx, ny, nz, modalities, channels, *pair.big).permute(3, 0, 5, 1, 6, 2, 7, 4)
    return ordered.reshape(modalities, -1, channels)


class TokenBlock(nn.Module):
    """A transformer block; its input is added twice, as in the paper's code."""

    def __init__(self, source: TransformerBlock) -> None:
        super().__init__()
        self.attention = Attention(source.attention)
        self.expand, self.reduce = linears(source.expand), linears(source.reduce)

    def forward(self, tokens: list[Tensor]) -> list[Tensor]:
        result = []
        for x, mixed, expand, reduce in zip(tokens, self.attention(tokens), self.expand, self.reduce, strict=True):
            y = 2 * x + mixed
            hidden = F.gelu(expand(layer_norm(y)))
            result.append(reduce.add_to(y, hidden))  # type: ignore[operator]
        return result


class EncoderLevel(nn.Module):
    """One stage of both streams."""

    join: Tensor

    def __init__(self, network: VeloxSeg, stage: int, style: Style) -> None:
        super().__init__()
        source = cast(EncoderStage, network.encoder.stages[stage])
        assert source.transformer is not None
        assert source.join is not None
        self.feature = network.config.feature(stage)
        self.down = Convolution(cast(nn.Conv3d, source.down[0]), style, bias=False)
        self.tokens = nn.ModuleList(TokenBlock(cast(TransformerBlock, block)) for block in source.transformer.blocks)
        self.norm = InstanceNorm(self.feature, style)
        self.register_buffer("join", cast(nn.Conv3d, source.join[0]).weight.detach().flatten(1))
        self.blocks = convolution_blocks(source.blocks, self.feature, style)
        merge = source.transformer.merge
        self.merges = linears(merge.reduce) if merge is not None else None

    def forward(self, fused: Tensor, tokens: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        for block in self.tokens:
            tokens = block(tokens)
        together = torch.cat(tokens, -1) if len(tokens) > 1 else tokens[0]
        joined = F.linear(together, self.join).unflatten(0, (1, *self.feature)).movedim(-1, 1)
        encoded: Tensor = self.blocks(self.norm(self.down(fused)) + self.norm(joined))
        return encoded, tokens

    def merge(self, tokens: list[Tensor]) -> list[Tensor]:
        """The 8 voxels of each cell side by side, for the next stage."""
        x, y, z = self.feature
        if self.merges is None:
            return []
        result = []
        for linear, one in zip(self.merges, tokens, strict=True):
            cells = one.reshape(x // 2, 2, y // 2, 2, z // 2, 2, -1)
            #   X i Y j Z l C  →  (X Y Z) (i j l C)
            merged = cells.permute(0, 2, 4, 1, 3, 5, 6).reshape(-1, 8 * one.shape[-1])
            result.append(linear(layer_norm(merged)))
        return result


class DecoderLevel(nn.Module):
    weight: Tensor

    def __init__(self, up: UpSampling, blocks: nn.Sequential, size: Size, style: Style) -> None:
        super().__init__()
        self.register_buffer("weight", cast(nn.ConvTranspose3d, up[0]).weight.detach())
        self.norm = InstanceNorm(size, style)
        self.blocks = convolution_blocks(blocks, size, style)

    def forward(self, deeper: Tensor, encoded: Tensor) -> Tensor:
        up = F.conv_transpose3d(deeper, self.weight, None, 2)
        return self.blocks(encoded + self.norm(up))


def head_parameters(head: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight and bias of the convolution in front of the pixel shuffle.

    A transposed convolution whose stride is its kernel is such a convolution too, with a kernel of one voxel.
    """
    if isinstance(head, nn.ConvTranspose3d):
        assert head.bias is not None
        weight = head.weight.detach().flatten(1).T  # C (K i j l) → (K i j l) C
        return weight[..., None, None, None].contiguous(), head.bias.detach().repeat_interleave(STRIDES[0] ** 3)
    conv = cast(nn.Conv3d, cast(nn.Sequential, head)[0])
    assert conv.bias is not None
    return conv.weight.detach(), conv.bias.detach()


class InferenceForm(nn.Module):
    """(1, C, *patch) → (1, classes, *patch), or (1, 1, *patch) with `difference`."""

    head_weight: Tensor
    head_bias: Tensor

    def __init__(self, network: VeloxSeg, style: Style, *, difference: bool) -> None:
        super().__init__()
        self.config: NetworkConfig = network.config
        embedding = network.encoder.embedding
        assert embedding is not None
        self.embeddings = nn.ModuleList(Convolution(conv, style) for conv in embedding.convs)  # type: ignore[arg-type]
        self.encoder = nn.ModuleList(EncoderLevel(network, stage, style) for stage in range(STAGES))
        self.decoder = nn.ModuleList(
            DecoderLevel(up, blocks, self.config.feature(k), style)  # type: ignore[arg-type]
            for k, (up, blocks) in enumerate(zip(network.decoder.ups, network.decoder.blocks, strict=True))
        )
        weight, bias = head_parameters(network.head)
        if difference:
            weight, bias = class_difference(weight), class_difference(bias)
        self.register_buffer("head_weight", weight)
        self.register_buffer("head_bias", bias)

    def forward(self, image: Tensor) -> Tensor:
        parts = image.split(self.config.in_channels, 1)
        tokens = [
            conv(part).movedim(1, -1).flatten(0, 3)  # 1 C X Y Z → (1 X Y Z) C
            for conv, part in zip(self.embeddings, parts, strict=True)
        ]
        encoded, fused = [], image
        for level in self.encoder:
            fused, tokens = level(fused, tokens)
            encoded.append(fused)
            tokens = level.merge(tokens)  # type: ignore[operator]
        decoded = encoded[-1]
        for k in reversed(range(STAGES - 1)):
            decoded = self.decoder[k](decoded, encoded[k])
        voxels = F.conv3d(decoded, self.head_weight, self.head_bias, padding=self.head_weight.shape[-1] // 2)
        r = STRIDES[0]
        split = voxels.movedim(1, -1).reshape(*self.config.feature(0), -1, r, r, r)
        #   X Y Z K i j l  →  1 K (X i) (Y j) (Z l)
        return split.permute(3, 0, 4, 1, 5, 2, 6).reshape(1, -1, *self.config.patch)
