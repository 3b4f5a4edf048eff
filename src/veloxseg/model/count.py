"""Parameters and multiply–accumulates, counted in two ways that differ, and why.

`macs` is real work: PyTorch's FlopCounterMode, halved. It sees every product, attention's too.
`macs_as_published` repeats the counter behind the paper's tables: output elements × (input channels / groups) ×
kernel volume of every convolution; the same formula on the *output* of a transposed convolution, which overstates
its work by stride³; 2 per element of a norm, 4 if it has weights; 3n - 1 per soft-max row of n; nothing for
attention products, max-pooling, interpolation, or layers that it does not know, as group norms and the layer norm
of this network. With these rules the table's figures of the peers come out to the printed digits too. By it the
transposed-convolution head of the ablations looks expensive; by real work it is cheaper than the pixel-shuffle head
that replaced it.

Nothing is computed: networks are copied to the meta device, where tensors have shapes and no values.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from veloxseg.model.layers import InstanceNorm, ModalityLinear, NormLinear
from veloxseg.model.pwa import PairedWindowAttention, WindowAttention

__all__ = ["macs", "macs_as_published", "parameters", "parameters_as_published"]


def parameters(network: nn.Module) -> int:
    """All parameters of the module."""
    return sum(parameter.numel() for parameter in network.parameters())


def parameters_as_published(network: nn.Module) -> int:
    """Parameters of the layers that the paper's counter knows; position tables and this network's layer norms are not.

    The paper cuts digits off: 2.6598 M is printed as 2.65.
    """
    return sum(
        parameter.numel()
        for module in network.modules()
        if any(isinstance(module, kind) for kind in _RULES)
        for name, parameter in module.named_parameters(recurse=False)
        if not (isinstance(module, NormLinear) and name.startswith("norm_"))
    )


def macs(network: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Real multiply–accumulates of one forward pass in evaluation mode; `input_shape` includes the batch."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        _on_meta(network)(torch.empty(input_shape, device="meta"))
    return int(counter.get_total_flops()) // 2


def macs_as_published(network: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Multiply–accumulates by the counter of the paper's tables."""
    total = 0

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        nonlocal total
        total += next(rule for kind, rule in _RULES.items() if isinstance(module, kind))(module, inputs, output)

    network = _on_meta(network)
    for module in network.modules():
        if any(isinstance(module, kind) for kind in _RULES):
            module.register_forward_hook(hook)
    with torch.no_grad():
        network(torch.empty(input_shape, device="meta"))
    return total


def _on_meta(network: nn.Module) -> nn.Module:
    network = copy.deepcopy(network).to("meta").eval()
    for module in network.modules():
        if isinstance(module, PairedWindowAttention):  # interpolation is no product, however it is written
            module.drop_upsampling_matrices()
    return network


def _convolution(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> int:
    return output.numel() * int(module.in_channels // module.groups) * int(math.prod(module.kernel_size))


def _linear(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> int:
    return output.numel() * int(module.weight.shape[-1])


def _norm(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> int:
    weighted = getattr(module, "affine", False) or getattr(module, "elementwise_affine", False)
    return inputs[0].numel() * (4 if weighted else 2)


def _once(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> int:
    return output.numel()


def _softmax(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> int:
    length = int(output.shape[module.dim])
    return output.numel() // length * (3 * length - 1)


def _attention(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> int:
    query, key = inputs[0], inputs[1]
    return int(math.prod(query.shape[:-1]) * (3 * key.shape[-2] - 1))


_RULES: dict[Any, Callable[[Any, tuple[Tensor, ...], Tensor], int]] = {
    (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d): _convolution,
    (nn.Linear, ModalityLinear): _linear,
    (InstanceNorm, nn.LayerNorm, nn.InstanceNorm3d, nn.BatchNorm2d, nn.BatchNorm3d): _norm,
    (nn.PReLU, nn.AvgPool3d): _once,
    nn.Softmax: _softmax,
    WindowAttention: _attention,
}
