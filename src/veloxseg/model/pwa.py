"""PWA: paired window attention, all scales and modalities in one attention (Sec. 2.2, Appendix "Details of PWA").

    Q, K, V = PWC(LN(E_m));   A = softmax(Q̃ K̃ᵀ / √C_min + P) Ṽ;   E_m + Dropout(PWC(Scatter(A)_m))

Legend: M modality, B batch, W window, N windows of the whole batch, H head, L token of a window, C channel, XYZ space.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.kernels.attention import has_attention, window_attention
from veloxseg.model.config import NetworkConfig
from veloxseg.model.layers import Dropout, ModalityLinear, NormLinear
from veloxseg.model.windows import gather, scatter, upsampling_matrix, window_count
from veloxseg.types import Size

__all__ = ["PairedWindowAttention", "RelativePositionBias", "WindowAttention"]

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
        self.built: tuple[Tensor, Tensor] | None = None  # the table that it was built from, and the bias

    def forward(self) -> Tensor:
        """(1, H, M·L, M·L). At evaluation it is built once, and again only when the table has changed."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or self.table.is_inference():
            return self.build()
        # the values are compared, since a fused optimiser changes them without a trace in the tensor's version
        if self.built is None or self.built[0].dtype != self.table.dtype or not torch.equal(self.built[0], self.table):
            self.built = (self.table.detach().clone(), self.build())
        return self.built[1]

    def build(self) -> Tensor:
        bias_HLL: Tensor = self.table[self.index_LL.flatten()].unflatten(0, self.index_LL.shape).movedim(-1, 0)
        return bias_HLL.repeat(1, self.modalities, self.modalities)[None]


def _offset_index(tokens: Size) -> Tensor:
    """Row of the table for each (query, key): offset query - key + L_a - 1 per axis, in row-major order."""
    axes = [torch.arange(side) for side in tokens]
    position_L3 = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 2)
    offset_LL3 = position_L3[:, None] - position_L3[None] + torch.tensor(tokens) - 1
    strides = torch.tensor([(2 * tokens[1] - 1) * (2 * tokens[2] - 1), 2 * tokens[2] - 1, 1])
    return (offset_LL3 * strides).sum(-1)


class WindowAttention(nn.Module):
    """softmax(QKᵀ/√C + P) V over the M·L tokens of every window and head."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def forward(self, q_NHLC: Tensor, k_NHLC: Tensor, v_NHLC: Tensor, bias_1HLL: Tensor) -> Tensor:
        if not torch.is_grad_enabled():  # the fused kernel, which has no gradient for a bias
            return F.scaled_dot_product_attention(q_NHLC, k_NHLC, v_NHLC, attn_mask=bias_1HLL)
        scores_NHLL = (q_NHLC * q_NHLC.shape[-1] ** -0.5) @ k_NHLC.mT + bias_1HLL
        return self.dropout(scores_NHLL.softmax(-1)) @ v_NHLC


class PairedWindowAttention(nn.Module):
    """Maps the features of all modalities to their mixed attention, without the residual."""

    def __init__(self, config: NetworkConfig, stage: int) -> None:
        super().__init__()
        width, modalities = config.transformer_widths[stage], config.modalities
        self.feature = config.feature(stage)
        self.pairs = config.pairs(stage)
        self.heads = config.heads[stage]
        head_size = config.head_sizes[stage]
        ablation = config.attention != "paired"  # there the projections are narrow, and shared by the modalities
        unit = len(self.pairs) * self.heads * head_size
        value_size = head_size if ablation else head_size * math.ceil(width / unit)
        values = len(self.pairs) * self.heads * value_size
        self.sizes = [self.heads * size for size in (head_size, head_size, value_size)]  # Q, K, V of one pair

        # output channels of the one projection: (window pair, [Q, K, V], head, channel within head)
        self.qkv = NormLinear(modalities, width, 2 * unit + values, shared=ablation)
        self.bias = RelativePositionBias(self.pairs[0].tokens, self.heads, modalities)
        self.attention = WindowAttention(config.attention_dropout)
        self.mixer = ModalityLinear(modalities, values, width, shared=ablation)
        for i, pair in enumerate(self.pairs):
            small = math.prod(pair.big) * math.prod(pair.tokens) <= LARGEST_MATRIX
            matrix = upsampling_matrix(pair) if small and max(pair.small) > 1 else None
            self.register_buffer(f"upsampling_{i}", matrix, persistent=False)

    def drop_upsampling_matrices(self) -> None:
        """Interpolate by the library's kernel instead."""
        for i in range(len(self.pairs)):
            setattr(self, f"upsampling_{i}", None)

    def forward(self, x_MBXYZC: Tensor) -> Tensor:
        blocks = self.qkv(x_MBXYZC).chunk(len(self.pairs), -1)
        windows_BWLC = torch.cat([gather(block, pair) for block, pair in zip(blocks, self.pairs, strict=True)], 1)
        batch, windows, modalities = *windows_BWLC.shape[:2], x_MBXYZC.shape[0]
        #   (B W) (M L) (H C) → B W M L (H C)
        attended_BWMLC = self.attend(windows_BWLC.flatten(0, 1)).reshape(batch, windows, modalities, -1, self.sizes[-1])
        counts = [math.prod(window_count(pair, self.feature)) for pair in self.pairs]
        scales = [
            scatter(part, pair, self.feature, getattr(self, f"upsampling_{i}"))
            for i, (part, pair) in enumerate(zip(attended_BWMLC.split(counts, 1), self.pairs, strict=True))
        ]
        return self.mixer(torch.cat(scales, -1))

    def attend(self, tokens_NLC: Tensor) -> Tensor:
        """Attention within each window, (N, L, H·C); in training by a kernel of our own, which stores no weights."""
        dk, _, dv = (size // self.heads for size in self.sizes)
        if has_attention(tokens_NLC, dk, dv):
            rate = self.attention.dropout.rate if self.training else 0.0
            return window_attention(tokens_NLC, self.bias()[0], dk, dv, rate)
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # N L (H C) → N H L C
            for part in tokens_NLC.split(self.sizes, -1)
        )
        return self.attention(q, k, v, self.bias()).transpose(1, 2).flatten(2)
