"""Muon: what its polynomial gives, which weights it takes, and that it goes on to the bit (test_interruption.py)."""

import pytest
import torch
from torch import Tensor, nn

from support.tiny_training import TINY
from veloxseg.model.layers import ModalityLinear
from veloxseg.model.network import VeloxSeg
from veloxseg.train.optimiser import MOST_ROWS, Muon, as_matrices, orthogonal


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("shape", [(3, 16, 64), (2, 64, 16), (1, 128, 128), (4, 1, 27), (1, 5, 1)])
def test_singular_values_end_near_one_and_vectors_stay(shape: tuple[int, int, int]) -> None:
    u, _, vt = torch.linalg.svd(random(*shape), full_matrices=False)
    x = u * torch.logspace(0, -2, min(shape[1:])) @ vt  # a hundredth of the largest is not lost
    found = orthogonal(1e-6 * x)
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.3
    assert values.max() < 1.7
    middle = u.mT @ found @ vt.mT
    off = middle - torch.diag_embed(middle.diagonal(dim1=1, dim2=2))
    assert off.abs().max() < 1e-3


def test_a_gradient_of_zero_moves_nothing() -> None:
    assert not orthogonal(torch.zeros(2, 4, 8)).any()


def test_groups_of_a_convolution_are_matrices_of_their_own() -> None:
    whole = nn.Conv3d(8, 12, 3, groups=4)
    matrices = as_matrices(whole.weight, whole)
    assert matrices.shape == (4, 3, 2 * 27)
    assert torch.equal(matrices[1], whole.weight[3:6].flatten(1))
    up = nn.ConvTranspose3d(8, 6, 2, stride=2)
    assert as_matrices(up.weight, up).shape == (1, 8, 6 * 8)
    assert as_matrices(ModalityLinear(2, 4, 6).weight, ModalityLinear(2, 4, 6)).shape == (2, 6, 4)


def test_each_parameter_is_moved_once_and_only_matrices_by_muon() -> None:
    tiny = VeloxSeg(TINY)
    optimiser = Muon(tiny, 1e-3, 0.0)
    counted = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    assert len(counted) == len(set(counted)) == len(list(tiny.parameters()))
    by_muon = {name for name, parameter in tiny.named_parameters() if parameter in optimiser.layers}
    assert {name.split(".")[-1] for name in by_muon} == {"weight"}
    assert not any("table" in name or "norm" in name for name in by_muon)


def test_what_is_no_matrix_moves_as_by_adamw() -> None:
    ours, plain = nn.Linear(4, 3), nn.Linear(4, 3)
    plain.load_state_dict(ours.state_dict())
    muon, adamw = Muon(ours, 1e-2, 0.1), torch.optim.AdamW(plain.parameters(), lr=1e-2, weight_decay=0.1)
    for step in range(3):
        for layer, optimiser in ((ours, muon), (plain, adamw)):
            layer.weight.grad, layer.bias.grad = random(3, 4), random(3) * step
            optimiser.step()
    assert torch.equal(ours.bias, plain.bias)
    assert not torch.allclose(ours.weight, plain.weight, atol=1e-3)


def test_the_size_of_the_gradient_does_not_matter_and_the_rate_does() -> None:
    moved = []
    for scale, rate in ((1.0, 1e-2), (1e4, 1e-2), (1.0, 2e-2)):
        layer = nn.Linear(8, 8)
        before = layer.weight.detach().clone()
        optimiser = Muon(layer, rate, 0.0)
        layer.weight.grad = scale * random(8, 8)
        optimiser.step()
        moved.append(layer.weight.detach() - before)
    assert torch.allclose(moved[0], moved[1], atol=1e-6)
    assert torch.allclose(2 * moved[0], moved[2], atol=1e-6)


def test_very_large_matrices_go_to_adamw() -> None:
    wide = nn.Linear(MOST_ROWS + 1, MOST_ROWS + 1)
    assert not Muon(nn.Sequential(wide, nn.Linear(4, 4)), 1e-3, 0.0).layers.keys() & {wide.weight}
