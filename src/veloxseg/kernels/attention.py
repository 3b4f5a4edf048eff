"""Window attention with a learned bias as a differentiable function that never stores its weights.

    softmax(Q Kᵀ / √C + P) V

Legend: N window, H head, L token, C channel.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from veloxseg.kernels.calling import address, dropout, kernels_for, lanes, room, share
from veloxseg.kernels.library import Attention, Dropout, training_kernels

__all__ = ["has_attention", "window_attention"]

MOST_CHANNELS = 64  # of a head: see attention.c
CHUNKS = 4  # of the windows, always: the sums of a bias's gradient must not depend on the number of threads
NEVER = -1e30  # the bias of a token that is none


def has_attention(tokens_NLC: Tensor, dk: int, dv: int) -> bool:
    return kernels_for(tokens_NLC) is not None and max(dk, dv) <= MOST_CHANNELS and tokens_NLC.numel() > 0


def window_attention(tokens_NLC: Tensor, bias_HLL: Tensor, dk: int, dv: int, dropout_rate: float) -> Tensor:
    """(N, L, H·dv). The channels of a token are those of all heads of Q, then K, then V."""
    padded = -(-bias_HLL.shape[-1] // lanes()) * lanes()
    bias = F.pad(bias_HLL, (0, padded - bias_HLL.shape[-1]), value=NEVER)
    return _Attention.apply(tokens_NLC.contiguous(), bias.contiguous(), dk, dv, dropout(dropout_rate))  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, bias: Tensor, dk: int, dv: int, drop: Dropout) -> Tensor:
        windows, length, _ = tokens.shape
        heads = len(bias)
        out = tokens.new_empty(windows, length, heads * dv)
        sums = tokens.new_empty(windows, heads, length)
        _run("attention_forward", tokens, bias, out, sums, (dk, dv), drop)
        ctx.save_for_backward(tokens, bias, out, sums)
        ctx.sizes, ctx.dropout = (dk, dv), drop
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        tokens, bias, out, sums = ctx.saved_tensors
        of_tokens = torch.empty_like(tokens)
        of_bias = bias.new_zeros(CHUNKS, *bias.shape)
        given = {"gradient": gradients[0].contiguous(), "qkv_gradient": of_tokens, "bias_gradient": of_bias}
        _run("attention_backward", tokens, bias, out, sums, ctx.sizes, ctx.dropout, **given)
        return of_tokens, of_bias.sum(0), None, None, None


def _run(
    function: str, tokens: Tensor, bias: Tensor, out: Tensor, sums: Tensor, sizes: tuple[int, int], drop: Dropout,
    **given: Tensor,
) -> None:  # fmt: skip
    kernels = training_kernels()
    assert kernels is not None
    (windows, length, row), (heads, _, padded), (dk, dv) = tokens.shape, bias.shape, sizes
    shapes = {
        "gradient": (windows, length, heads * dv),
        "qkv_gradient": (windows, length, row),
        "bias_gradient": (CHUNKS, heads, length, padded),
    }
    places = {name: address(tensor, *shapes[name]) for name, tensor in given.items()}
    places["qkv"] = address(tokens, windows, length, heads * (2 * dk + dv))
    places["bias"] = address(bias, heads, length, -(-length // lanes()) * lanes())
    places["out"] = address(out, windows, length, heads * dv)
    places["sums"] = address(sums, windows, heads, length)

    def task(chunk: int) -> None:
        mine = Attention(tokens=length, padded=padded, heads=heads, dk=dk, dv=dv, row=0, dropout=drop, **places)
        if "bias_gradient" in given:
            mine.bias_gradient = places["bias_gradient"] + 4 * chunk * heads * length * padded
        mine.room = room(padded * (2 * dk + 2 * dv + 8))
        getattr(kernels, function)(ctypes.byref(mine), windows * chunk // CHUNKS, windows * (chunk + 1) // CHUNKS)

    share(task, range(CHUNKS))
