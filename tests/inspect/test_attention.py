"""Attention distances: uniform attention has the closed form's, and attention to one place has none."""

from dataclasses import replace

import pytest
import torch

from veloxseg.inspect.attention import (
    attention_distances,
    mean_attention_distance,
    stars,
    summarise_attention,
    token_distances,
)
from veloxseg.model.config import PairedWindow, preset
from veloxseg.model.network import VeloxSeg

CONFIG = replace(preset("b"), patch=(64, 64, 32))


def uniform_network() -> VeloxSeg:
    """Equal scores everywhere: no queries, no position bias."""
    torch.manual_seed(0)
    network = VeloxSeg(CONFIG).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if ".attention.qkv." in name or name.endswith(".table"):
                parameter.zero_()
    return network


@pytest.mark.parametrize("length", [2, 3, 6])
def test_uniform_attention_along_a_line_has_the_closed_form(length: int) -> None:
    """The mean of |i - j| over all pairs of L places is (L² - 1) / (3L); the other modality changes nothing."""
    pair = PairedWindow(big=(2 * length, 1, 1), small=(2, 1, 1))
    distance = token_distances(pair, stride=4, spacing=(1.5, 1.0, 1.0), modalities=2)
    weights = torch.full((1, 1, 2 * length, 2 * length), 1 / (2 * length))
    expected = (length**2 - 1) / (3 * length) * 2 * 4 * 1.5
    assert mean_attention_distance(weights, distance).item() == pytest.approx(expected)


def test_a_network_with_uniform_attention_has_the_mean_distance_of_its_windows() -> None:
    spacing = (2.0, 2.0, 3.0)
    found = attention_distances(uniform_network(), [torch.randn(1, 2, *CONFIG.patch)], spacing)
    for stage in range(4):
        for number, pair in enumerate(CONFIG.pairs(stage)):
            places = torch.cartesian_prod(*(torch.arange(n, dtype=torch.float64) for n in pair.tokens)).reshape(-1, 3)
            unit = torch.tensor([s * 4 * 2**stage * mm for s, mm in zip(pair.small, spacing, strict=True)])
            expected = ((places[:, None] - places) * unit).norm(dim=-1).mean().item()
            assert found[stage, number] == pytest.approx([expected] * len(found[stage, number]))


def test_attention_to_the_same_place_of_another_modality_is_no_distance() -> None:
    pair = PairedWindow(big=(2, 2, 2), small=(1, 1, 1))
    distance = token_distances(pair, 4, (1.0, 1.0, 1.0), modalities=2)
    across = torch.eye(8).roll(0).repeat(2, 2)
    across[:8, :8] = across[8:, 8:] = 0
    assert mean_attention_distance(across[None, None], distance).item() == 0


def test_windows_are_compared_by_the_rank_sum_test() -> None:
    from scipy import stats

    network = VeloxSeg(CONFIG).eval()
    found = attention_distances(network, [torch.randn(1, 2, *CONFIG.patch)], (1.0, 1.0, 1.0))
    rows = summarise_attention(network, found)
    first = rows[0]
    assert first["p_next"] == stats.ranksums(found[0, 0], found[0, 1]).pvalue
    assert [row["p_next"] is None for row in rows if row["stage"] == 1][-1]
    assert (stars(0.5), stars(0.03), stars(1e-5), stars(None)) == ("ns", "*", "****", "")
