"""Feed-forward layers of both streams as one differentiable function each.

    JLC block:          y + Dropout(W₂ GELU(W₁ IN(y) + b₁) + b₂)
    transformer block:  y + Dropout(W₂ Dropout(GELU(W₁ LN(y) + b₁)) + b₂), weights of their own for each modality

Legend: S set of weights (modality), B batch, N voxel of a sample, C channel, H hidden channel, XYZ space.
"""

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from veloxseg.kernels.calling import address, channels_last, dropout, kernels_for, lanes, room, share
from veloxseg.kernels.library import Dropout, FeedForward, training_kernels

__all__ = ["feed_forward", "has_feed_forward", "token_feed_forward"]

BLOCK = 24  # see training.h
Shapes = dict[str, tuple[int, ...]]


class Kind(NamedTuple):
    """What differs between the two."""

    layer: bool  # layer norm, not instance norm
    residual: bool  # y is added
    dropout: Dropout
    hidden_dropout: Dropout


def has_feed_forward(y: Tensor, channels: int, hidden: int) -> bool:
    """Whether the kernels compute such a layer, for this tensor."""
    return kernels_for(y) is not None and y.numel() > 0 and channels % lanes() == 0 and hidden % lanes() == 0


def feed_forward(y_BCXYZ: Tensor, expand: nn.Conv3d, reduce: nn.Conv3d, rate: float) -> Tensor:
    """The layer of a JLC block, whose linear maps are 1×1×1 convolutions."""
    assert expand.bias is not None
    assert reduce.bias is not None
    kind = Kind(layer=False, residual=True, dropout=dropout(rate), hidden_dropout=dropout(0))
    y_1BXYZC = channels_last(y_BCXYZ).movedim(1, -1)[None]
    weights = (expand.weight.flatten(1).mT[None], reduce.weight.flatten(1).mT[None])
    parameters = (weights[0], expand.bias[None], weights[1], reduce.bias[None])
    return _FeedForward.apply(y_1BXYZC, *parameters, kind)[0].movedim(-1, 1)  # type: ignore[no-untyped-call]


def token_feed_forward(
    y_SBXYZC: Tensor, w1_SCH: Tensor, b1_SH: Tensor, w2_SHC: Tensor, b2_SC: Tensor, rate: float, *, residual: bool
) -> Tensor:
    """The layer of a transformer block; the affine part of its norm is in w1 and b1."""
    kind = Kind(layer=True, residual=residual, dropout=dropout(rate), hidden_dropout=dropout(rate))
    return _FeedForward.apply(y_SBXYZC.contiguous(), w1_SCH, b1_SH, w2_SHC, b2_SC, kind)  # type: ignore[no-untyped-call]


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, w1_SCH: Tensor, b1: Tensor, w2_SHC: Tensor, b2: Tensor, kind: Kind) -> Tensor:
        sets, batch, channels, hidden = y.shape[0], y.shape[1], y.shape[-1], b1.shape[-1]
        out = torch.empty_like(y)
        moments = y.new_empty(2, sets, batch, channels)
        before = y.new_empty(*y.shape[:-1], hidden)
        weights = {"weight1": w1_SCH.contiguous(), "bias1": b1.contiguous()}
        weights |= {"weight2": w2_SHC.contiguous(), "bias2": b2.contiguous()}
        shapes: Shapes = {
            "weight1": (channels, hidden),
            "bias1": (hidden,),
            "weight2": (hidden, channels),
            "bias2": (channels,),
        }
        _call("feed_forward", y, out, moments, before, kind, weights, shapes, {})
        ctx.save_for_backward(y, w1_SCH, w2_SHC, moments, before)
        ctx.kind = kind
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        y, w1_SCH, w2_SHC, moments, before = ctx.saved_tensors
        sets, batch, channels, hidden = y.shape[0], y.shape[1], y.shape[-1], before.shape[-1]
        out = torch.empty_like(y)
        given = {
            "gradient": gradients[0].contiguous(),
            "weight1_gradient": y.new_empty(sets, batch, hidden, channels),
            "bias1_gradient": y.new_empty(sets, batch, hidden),
            "weight2_gradient": y.new_empty(sets, batch, channels, hidden),
            "bias2_gradient": y.new_empty(sets, batch, channels),
        }
        weights = {"weight1": w1_SCH.mT.contiguous(), "weight2": w2_SHC.mT.contiguous()}
        shapes: Shapes = {"weight1": (hidden, channels), "weight2": (channels, hidden)}
        _call("feed_forward_backward", y, out, moments, before, ctx.kind, weights, shapes, given)
        w1, b1, w2, b2 = (given[f"{name}_gradient"].sum(1) for name in ("weight1", "bias1", "weight2", "bias2"))
        return out, w1.mT, b1, w2.mT, b2, None


def _call(
    function: str, y: Tensor, out: Tensor, moments: Tensor, before: Tensor, kind: Kind, weights: dict[str, Tensor],
    shapes: Shapes, given: dict[str, Tensor],
) -> None:  # fmt: skip
    """Calls the kernel for each sample of each set. `weights` are those of each set, `given` is of each sample."""
    kernels = training_kernels()
    assert kernels is not None
    sets, batch, *size, channels = y.shape
    hidden, samples, voxels = before.shape[-1], sets * batch, size[0] * size[1] * size[2]
    of_sample = {"y": address(y, *y.shape), "out": address(out, *y.shape)}
    of_sample["before"] = address(before, sets, batch, *size, hidden)
    of_sample["mean"] = address(moments, 2, sets, batch, channels)
    of_sample["scale"] = of_sample["mean"] + 4 * samples * channels
    bytes_of = {"y": 4 * voxels * channels, "out": 4 * voxels * channels, "before": 4 * voxels * hidden}
    bytes_of |= {"mean": 4 * channels, "scale": 4 * channels}
    for name, tensor in given.items():
        shape = y.shape if name == "gradient" else (sets, batch, *_parameter(name, channels, hidden))
        of_sample[name], bytes_of[name] = address(tensor, *shape), 4 * tensor.numel() // samples
    of_set = {name: address(tensor, sets, *shapes[name]) for name, tensor in weights.items()}

    def task(sample: int) -> None:
        places = {name: place + bytes_of[name] * sample for name, place in of_sample.items()}
        for name, place in of_set.items():
            places[name] = place + 4 * weights[name].numel() // sets * (sample // batch)
        structure = FeedForward(
            voxels=voxels, channels=channels, hidden=hidden, row=voxels * sample, layer=kind.layer,
            residual=kind.residual, dropout=kind.dropout, hidden_dropout=kind.hidden_dropout,
            room=room(BLOCK * (2 * channels + 3 * hidden + 1)), **places,
        )  # fmt: skip
        getattr(kernels, function)(ctypes.byref(structure))

    share(task, range(samples))


def _parameter(name: str, channels: int, hidden: int) -> tuple[int, ...]:
    return {
        "weight1_gradient": (hidden, channels),
        "bias1_gradient": (hidden,),
        "weight2_gradient": (channels, hidden),
        "bias2_gradient": (channels,),
    }[name]
