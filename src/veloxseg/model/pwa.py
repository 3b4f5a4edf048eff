"""PWA: paired window attention, all scales and all modalities in one attention (Sec. 2.2, Appendix "Details of PWA").

    Q, K, V = PWC(LN(E_m));   A = softmax(Q̃ K̃ᵀ / √C_min + P) Ṽ;   E_m + Dropout(PWC(Scatter(A)_m))

Legend: M modality, B batch, W window, H head, L token of a window, C channel, XYZ space.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.model.config import NetworkConfig, Size
from veloxseg.model.layers import ModalityLayerNorm, ModalityLinear
from veloxseg.model.windows import gather, scatter, upsampling_matrix, window_count

__all__ = ["PairedWindowAttention", "RelativePositionBias", "WindowSoftmaxAttention"]

# larger up-sampling matrices (patches beyond 128³) would cost more memory than they save time
LARGEST_MATRIX = 2**22


class RelativePositionBias(nn.Module):
    """P: a learned number per head and offset between two tokens, the same for every pair of modalities."""

    index_LL: Tensor

    def __init__(self, tokens: Size, heads: int, modalities: int) -> None:
        super().__init__()
        self.modalities = modalities
        self.table = nn.Parameter(torch.empty(math.prod(2 * side - 1 for side in tokens), heads))
        nn.init.trunc_normal_(self.table, std=0.02)
        self.register_buffer("index_LL", _offset_index(tokens), persistent=False)

    def forward(self) -> Tensor:
        """(1, H, M·L, M·L)"""
        bias_HLL: Tensor = (
            self.table[self.index_LL.flatten()].unflatten(0, self.index_LL.shape).movedim(-1, 0)
        )
        return bias_HLL.repeat(1, self.modalities, self.modalities)[None]


def _offset_index(tokens: Size) -> Tensor:
    """Row of the table for each (query, key): offset query - key + L_a - 1 per axis, in row-major order."""
    axes = [torch.arange(side) for side in tokens]
    position_L3 = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 2)
    sides = torch.tensor(tokens)
    offset_LL3 = position_L3[:, None] - position_L3[None] + sides - 1
    strides = torch.tensor([(2 * tokens[1] - 1) * (2 * tokens[2] - 1), 2 * tokens[2] - 1, 1])
    return (offset_LL3 * strides).sum(-1)


class WindowSoftmaxAttention(nn.Module):
    """softmax(QKᵀ/√C + P) V over the M·L tokens of every window and head."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, q_BWHLC: Tensor, k_BWHLC: Tensor, v_BWHLC: Tensor, bias_1HLL: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        return F.scaled_dot_product_attention(
            q_BWHLC, k_BWHLC, v_BWHLC, attn_mask=bias_1HLL, dropout_p=dropout
        )


class PairedWindowAttention(nn.Module):
    """Maps the features of all modalities to their mixed attention, without the residual."""

    def __init__(self, config: NetworkConfig, stage: int) -> None:
        super().__init__()
        width, modalities = config.transformer_widths[stage], config.modalities
        self.feature = config.feature(stage)
        self.pairs = config.pairs(stage)
        self.heads = config.heads[stage]
        self.head_size = config.head_sizes[stage]
        ablation = (
            config.attention != "paired"
        )  # there the projections are narrow, and shared by the modalities
        unit = len(self.pairs) * self.heads * self.head_size
        self.value_size = self.head_size if ablation else self.head_size * math.ceil(width / unit)
        values = len(self.pairs) * self.heads * self.value_size

        self.norm = ModalityLayerNorm(modalities, width)
        # output channels of the one projection: (window pair, [Q, K, V], head, channel within head)
        self.qkv = ModalityLinear(modalities, width, 2 * unit + values, shared=ablation)
        self.bias = RelativePositionBias(self.pairs[0].tokens, self.heads, modalities)
        self.attention = WindowSoftmaxAttention(config.attention_dropout)
        self.mixer = ModalityLinear(modalities, values, width, shared=ablation)
        for i, pair in enumerate(self.pairs):
            small = math.prod(pair.big) * math.prod(pair.tokens) <= LARGEST_MATRIX
            matrix = upsampling_matrix(pair) if small and max(pair.small) > 1 else None
            self.register_buffer(f"upsampling_{i}", matrix, persistent=False)

    def forward(self, x_MBXYZC: Tensor) -> Tensor:
        modalities, tokens = x_MBXYZC.shape[0], math.prod(self.pairs[0].tokens)
        blocks = self.qkv(self.norm(x_MBXYZC)).chunk(len(self.pairs), -1)
        windows_BWLC = torch.cat(
            [gather(block, pair) for block, pair in zip(blocks, self.pairs, strict=True)], 1
        )
        sizes = (self.head_size, self.head_size, self.value_size)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(2, 3)  # B W L (H C) → B W H L C
            for part in windows_BWLC.split([self.heads * size for size in sizes], -1)
        )
        attended_BWHLC = self.attention(q, k, v, self.bias())
        attended_BWMLC = attended_BWHLC.transpose(2, 3).flatten(3).unflatten(2, (modalities, tokens))
        counts = [math.prod(window_count(pair, self.feature)) for pair in self.pairs]
        scales = [
            scatter(part, pair, self.feature, getattr(self, f"upsampling_{i}"))
            for i, (part, pair) in enumerate(zip(attended_BWMLC.split(counts, 1), self.pairs, strict=True))
        ]
        mixed: Tensor = self.mixer(torch.cat(scales, -1))
        return mixed
