"""IN(PWC(x_1, ..., x_K)) as one differentiable function, without putting the tensors side by side; and IN alone.

A bias in front of the norm has no effect, so that its gradient is zero.

Legend: B batch, C channel, O output, XYZ space.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from veloxseg.kernels.calling import address, channels_last, kernels_for, lanes, share
from veloxseg.kernels.library import INPUTS, Mixing, training_kernels

__all__ = ["has_mixing", "has_norm", "instance_norm", "mix"]


def has_mixing(inputs_BXYZC: Sequence[Tensor], conv: nn.Module) -> bool:
    """Whether the kernels compute it, for a 1×1×1 convolution of all channels."""
    if len(inputs_BXYZC) > INPUTS or kernels_for(*inputs_BXYZC) is None or not isinstance(conv, nn.Conv3d):
        return False
    whole = all(x.numel() > 0 and x.shape[-1] % lanes() == 0 for x in inputs_BXYZC)
    return whole and conv.out_channels % lanes() == 0


def mix(inputs_BXYZC: Sequence[Tensor], conv: nn.Module) -> Tensor:
    """(B, O, X, Y, Z)."""
    assert isinstance(conv, nn.Conv3d)
    dense = [x.contiguous() for x in inputs_BXYZC]
    return _Mix.apply(conv.weight.flatten(1), conv.bias, *dense).movedim(-1, 1)  # type: ignore[no-untyped-call]


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight_OC: Tensor, bias_O: Tensor, *inputs: Tensor) -> Tensor:
        shape = (*inputs[0].shape[:-1], len(weight_OC))
        raw, out = weight_OC.new_empty(shape), weight_OC.new_empty(shape)
        moments = weight_OC.new_empty(2, shape[0], shape[-1])
        _call("mix_forward", inputs, weight_OC.t().contiguous(), raw, out, moments, {})
        ctx.save_for_backward(weight_OC, raw, moments, *inputs)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        weight_OC, raw, moments, *inputs = ctx.saved_tensors
        channels = [x.shape[-1] for x in inputs]
        weights = torch.cat([part.flatten() for part in weight_OC.split(channels, 1)]).view(sum(channels), -1)
        of_weight_BCO = raw.new_empty(len(raw), sum(channels), raw.shape[-1])
        given = {"gradient": gradients[0].contiguous(), "weight_gradient": of_weight_BCO}
        of_inputs = [torch.empty_like(x) for x in inputs]
        _call("mix_backward", inputs, weights, raw, torch.empty_like(raw), moments, given, of_inputs)
        return of_weight_BCO.sum(0).t(), raw.new_zeros(raw.shape[-1]), *of_inputs


def _call(
    function: str, inputs: Sequence[Tensor], weight: Tensor, raw: Tensor, out: Tensor, moments: Tensor,
    given: dict[str, Tensor], of_inputs: Sequence[Tensor] = (),
) -> None:  # fmt: skip
    kernels = training_kernels()
    assert kernels is not None
    batch, *size, outputs = raw.shape
    voxels, channels = size[0] * size[1] * size[2], [x.shape[-1] for x in inputs]
    shapes = {"gradient": tuple(raw.shape), "weight_gradient": (batch, sum(channels), outputs)}
    places = {name: address(tensor, *shapes[name]) for name, tensor in given.items()}
    steps = {name: 4 * tensor.numel() // batch for name, tensor in given.items()}
    places |= {"raw": address(raw, *raw.shape), "out": address(out, *raw.shape)}
    steps |= {"raw": 4 * voxels * outputs, "out": 4 * voxels * outputs}
    places["mean"] = address(moments, 2, batch, outputs)
    places["scale"] = places["mean"] + 4 * batch * outputs
    steps |= {"mean": 4 * outputs, "scale": 4 * outputs}
    of_weight = address(weight, sum(channels), outputs)
    x_places = [address(x, batch, *size, c) for x, c in zip(inputs, channels, strict=True)]
    gradients = [address(x, batch, *size, c) for x, c in zip(of_inputs, channels, strict=True)] if of_inputs else []

    def task(sample: int) -> None:
        here = {name: place + steps[name] * sample for name, place in places.items()}
        structure = Mixing(voxels=voxels, outputs=outputs, inputs=len(inputs), weight=of_weight, **here)
        for k, c in enumerate(channels):
            structure.channels[k] = c
            structure.x[k] = x_places[k] + 4 * voxels * c * sample
            if gradients:
                structure.x_gradient[k] = gradients[k] + 4 * voxels * c * sample
        getattr(kernels, function)(ctypes.byref(structure))

    share(task, range(batch))


# ---- instance norm ---------------------------------------------------------------------------------------------------


def has_norm(x_BCXYZ: Tensor) -> bool:
    return x_BCXYZ.dim() == 5 and kernels_for(x_BCXYZ) is not None and x_BCXYZ.shape[1] % lanes() == 0


def instance_norm(x_BCXYZ: Tensor) -> Tensor:
    return _Norm.apply(channels_last(x_BCXYZ))  # type: ignore[no-untyped-call]


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        out = torch.empty_like(x, memory_format=torch.channels_last_3d)
        moments = x.new_empty(2, *x.shape[:2])
        _normalise("norm_forward", x, None, moments, out)
        ctx.save_for_backward(x, moments)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        x, moments = ctx.saved_tensors
        out = torch.empty_like(x, memory_format=torch.channels_last_3d)
        _normalise("norm_backward", x, channels_last(gradients[0]), moments, out)
        return out


def _normalise(function: str, x: Tensor, gradient: Tensor | None, moments: Tensor, out: Tensor) -> None:
    kernels = training_kernels()
    assert kernels is not None
    (batch, channels), voxels = x.shape[:2], x[0, 0].numel()
    x_place, to, mean = address(x, *x.shape), address(out, *x.shape), address(moments, 2, batch, channels)
    given = None if gradient is None else address(gradient, *x.shape)

    def task(sample: int) -> None:
        step, m = 4 * voxels * channels * sample, mean + 4 * channels * sample
        more = () if given is None else (given + step,)
        getattr(kernels, function)(x_place + step, voxels, channels, m, m + 4 * batch * channels, *more, to + step)

    share(task, range(batch))
