"""The transformer stream: modalities cooperate, each with its own weights (Sec. 2.1).

Features of all modalities travel as one tensor (M, B, X, Y, Z, C): every step is one batched product.

Legend: M modality, B batch, C channel, XYZ space.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.kernels.feed_forward import has_feed_forward, token_feed_forward
from veloxseg.model.config import STRIDES, NetworkConfig
from veloxseg.model.layers import CellConv3d, Dropout, ModalityLinear, NormLinear
from veloxseg.model.pwa import PairedWindowAttention

__all__ = ["PatchEmbedding", "PatchMerging", "TransformerBlock", "TransformerStage"]


class PatchEmbedding(nn.Module):
    """Each modality has its own Conv(kernel 4, stride 4); a modality may have several channels."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.in_channels = config.in_channels
        width, stride = config.transformer_width, STRIDES[0]
        self.convs = nn.ModuleList(CellConv3d(c, width, stride) for c in config.in_channels)
        self.dropout = Dropout(config.projection_dropout)

    def forward(self, x_BCXYZ: Tensor) -> Tensor:
        parts = x_BCXYZ.split(self.in_channels, 1)
        embedded = [conv(part).movedim(1, -1) for conv, part in zip(self.convs, parts, strict=True)]
        return self.dropout(torch.stack(embedded))


class PatchMerging(nn.Module):
    """Halves the grid: the 8 voxels of each 2×2×2 cell side by side in the channels, LN, linear to 2C."""

    def __init__(self, modalities: int, width: int) -> None:
        super().__init__()
        self.reduce = NormLinear(modalities, 8 * width, 2 * width, bias=False)

    def forward(self, x_MBXYZC: Tensor) -> Tensor:
        m, b, x, y, z, c = x_MBXYZC.shape
        cells = x_MBXYZC.reshape(m, b, x // 2, 2, y // 2, 2, z // 2, 2, c)
        #   M B X i Y j Z l C  →  M B X Y Z (i j l C): offset-major, the last axis fastest
        merged = cells.permute(0, 1, 2, 4, 6, 3, 5, 7, 8).reshape(m, b, x // 2, y // 2, z // 2, 8 * c)
        return self.reduce(merged)


class TransformerBlock(nn.Module):
    """a = E + Dropout(PWA(E));  b = E + DropPath(a);  out = b + DropPath(FFN(LN(b)))

    The block's input is added twice: this is what the published figures were made with.
    """

    def __init__(self, config: NetworkConfig, stage: int, block: int) -> None:
        super().__init__()
        modalities, width = config.modalities, config.transformer_widths[stage]
        hidden = config.hidden_width("tokens", stage, block)
        self.drop_path = config.drop_path
        self.attention = PairedWindowAttention(config, stage)
        self.expand = NormLinear(modalities, width, hidden)
        self.reduce = ModalityLinear(modalities, hidden, width)
        self.dropout = Dropout(config.projection_dropout)

    def forward(self, e_MBXYZC: Tensor) -> Tensor:
        a = e_MBXYZC + self.dropout(self.attention(e_MBXYZC))
        b = e_MBXYZC + self._drop_path(a)
        if has_feed_forward(b, b.shape[-1], self.expand.weight.shape[1]):
            return self.feed_forward_fast(b)
        hidden = self.dropout(F.gelu(self.expand(b)))
        return b + self._drop_path(self.dropout(self.reduce(hidden)))

    def feed_forward_fast(self, b_MBXYZC: Tensor) -> Tensor:
        """The last two lines by a kernel of our own, in training."""
        weight1, bias1 = self.expand.folded()
        assert self.reduce.bias is not None
        whole = self.drop_path == 0 or not self.training  # else the branch may be left out, so b is added here
        branch = token_feed_forward(
            b_MBXYZC, weight1, bias1[:, 0], self.reduce.weight.mT, self.reduce.bias,
            self.dropout.rate if self.training else 0.0, residual=whole,
        )  # fmt: skip
        return branch if whole else b_MBXYZC + self._drop_path(branch)

    def _drop_path(self, x_MBXYZC: Tensor) -> Tensor:
        """Stochastic depth: leaves the branch out for some modalities and samples, in training."""
        if self.drop_path == 0 or not self.training:
            return x_MBXYZC
        keep = 1 - self.drop_path
        mask = x_MBXYZC.new_empty(*x_MBXYZC.shape[:2], 1, 1, 1, 1).bernoulli_(keep)
        return x_MBXYZC * mask / keep


class TransformerStage(nn.Module):
    """The blocks of one stage; `merge` brings the result to the next."""

    def __init__(self, config: NetworkConfig, stage: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(TransformerBlock(config, stage, block) for block in range(config.transformer_depths[stage]))
        )
        last = stage == len(STRIDES) - 1
        self.merge = None if last else PatchMerging(config.modalities, config.transformer_widths[stage])

    def forward(self, e_MBXYZC: Tensor) -> Tensor:
        return self.blocks(e_MBXYZC)
