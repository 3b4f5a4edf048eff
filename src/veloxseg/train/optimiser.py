"""The optimisers by name: AdamW, the paper's, and Muon, which needs about half as many steps.

Muon takes a weight matrix W (outputs × inputs) with its gradient G as one thing, not number by number:

    M ← μ M + (1 - μ) G        N = μ M + (1 - μ) G        W ← (1 - η λ) W - η s √max(rows, columns) · U Vᵀ

where N = U S Vᵀ: every direction of the update gets the same length, so what is rare in the gradient is learnt as fast
as what is common. With s = 0.2 an update is as large as one of AdamW, so rates and weight decay keep their meaning.
U Vᵀ = (N Nᵀ)^(-1/2) N needs no decomposition: an odd polynomial of N, applied a few times, brings all singular values
near 1. It is computed on the smaller Gram matrix, for all matrices of one size at once.

K. Jordan, "Muon: an optimizer for hidden layers in neural networks" (2024); the scale s: J. Liu et al., "Muon is
scalable for LLM training" (2025); the coefficients: N. Amsel et al., "The Polar Express" (2025).

Kernels of convolutions are matrices of outputs × (inputs · places), one for each group. Biases, norms and tables of
positions go to AdamW, and so do matrices so large that the polynomial would cost more than the network. (torch's own
Muon takes plain matrices only, one after the other: no convolutions, no modalities.)

Legend: N matrices, R rows, C columns; R ≤ C after turning.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.optim import AdamW, Optimizer

from veloxseg.model.layers import ModalityLinear

__all__ = ["OPTIMISERS", "Muon", "as_matrices", "orthogonal"]

MOMENTUM = 0.95
SCALE = 0.2
MOST_ROWS = 256  # of the smaller side
# x → a x + b x³ + c x⁵, one line each time; from 1/300 of the largest on, singular values end between 0.4 and 1.6
POLYNOMIALS = (
    (8.28721, -23.59589, 17.30039),
    (4.10706, -2.94785, 0.54484),
    (3.94869, -2.90890, 0.55182),
    (3.31842, -2.48849, 0.51005),
)


class Muon(Optimizer):
    """Muon for the weight matrices of `network`, AdamW for its other parameters."""

    def __init__(self, network: nn.Module, rate: float, weight_decay: float) -> None:
        self.layers: dict[Any, nn.Module] = {layer.weight: layer for layer in network.modules() if _has_matrix(layer)}
        others = [parameter for parameter in network.parameters() if parameter not in self.layers]
        self.adamw = AdamW(others, lr=rate, weight_decay=weight_decay, fused=True)
        # a group's settings and a parameter's state are one and the same here and there
        groups: list[dict[str, Any]] = [{"params": list(self.layers)}, self.adamw.param_groups[0]]
        super().__init__(groups, {"lr": rate, "weight_decay": weight_decay})
        self.adamw.param_groups, self.adamw.state = self.param_groups[1:], self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        result = None if closure is None else torch.enable_grad()(closure)()
        self.adamw.step()
        group = self.param_groups[0]
        sizes: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for weight in group["params"]:
            if weight.grad is not None:
                matrices_NRC = as_matrices(self.direction(weight), self.layers[weight])
                sizes.setdefault(matrices_NRC.shape[1:], []).append((weight, matrices_NRC))
        for size, entries in sizes.items():
            updates_NRC = orthogonal(torch.cat([matrices for _, matrices in entries]))
            updates_NRC *= SCALE * max(size) ** 0.5
            parts = updates_NRC.split([len(matrices) for _, matrices in entries])
            for (weight, _), update in zip(entries, parts, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(update.reshape(weight.shape), alpha=-group["lr"])
        return result

    def direction(self, weight: Tensor) -> Tensor:
        """The momentum, a step ahead (Nesterov)."""
        assert weight.grad is not None
        state = self.state[weight]
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        momentum = state["momentum"]
        momentum.lerp_(weight.grad, 1 - MOMENTUM)
        return weight.grad.lerp(momentum, MOMENTUM)


def _has_matrix(layer: nn.Module) -> bool:
    if not isinstance(layer, nn.Linear | _ConvNd | ModalityLinear):
        return False
    return min(as_matrices(layer.weight, layer).shape[1:]) <= MOST_ROWS


def as_matrices(weight: Tensor, layer: nn.Module) -> Tensor:
    """A layer's weight, or what has its shape, as (N, R, C)."""
    if isinstance(layer, ModalityLinear):
        return weight  # one for each modality
    if isinstance(layer, _ConvNd):  # a transposed one has its inputs in front, in groups too
        return weight.flatten(1).unflatten(0, (layer.groups, -1))
    return weight[None]


def orthogonal(matrices_NRC: Tensor) -> Tensor:
    """(X Xᵀ)^(-1/2) X, nearly: the singular vectors of X with singular values near 1."""
    if matrices_NRC.shape[1] > matrices_NRC.shape[2]:
        return orthogonal(matrices_NRC.mT).mT
    norms_N11 = torch.linalg.matrix_norm(matrices_NRC, keepdim=True)
    x_NRC = matrices_NRC / (1.01 * norms_N11 + 1e-20)  # no singular value is above 1
    gram_NRR, root_NRR = x_NRC @ x_NRC.mT, None
    for number, (a, b, c) in enumerate(POLYNOMIALS):
        factor_NRR = torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=b, alpha=c)
        factor_NRR.diagonal(dim1=1, dim2=2).add_(a)
        root_NRR = factor_NRR if root_NRR is None else factor_NRR @ root_NRR
        if number + 1 < len(POLYNOMIALS):
            gram_NRR = factor_NRR @ gram_NRR @ factor_NRR
    return root_NRR @ x_NRC


def adamw(network: nn.Module, rate: float, weight_decay: float) -> Optimizer:
    return AdamW(network.parameters(), lr=rate, weight_decay=weight_decay, fused=True)


# An optimiser is a function (network, rate, weight decay) → torch's Optimizer, and a line here.
OPTIMISERS: dict[str, Callable[[nn.Module, float, float], Optimizer]] = {"adamw": adamw, "muon": Muon}
