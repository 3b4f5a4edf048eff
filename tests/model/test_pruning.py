"""Pruning: tensors really shrink, what is left computes what it did, and nothing is lost where nothing is asked for."""

from dataclasses import replace

import pytest
import torch

from veloxseg.errors import ConfigError
from veloxseg.model.config import NetworkConfig, preset
from veloxseg.model.count import parameters
from veloxseg.model.network import VeloxSeg
from veloxseg.model.pruning import Space, kept_ratios, prune

B = replace(preset("b"), patch=(32, 32, 32))
FULL = replace(B, attention="none", head="transposed", group_sizes=(16, 32, 64, 128))


def network_of(config: NetworkConfig) -> VeloxSeg:
    torch.manual_seed(0)
    return VeloxSeg(config).eval()


def rebuilt(config: NetworkConfig, weights: dict[str, torch.Tensor]) -> VeloxSeg:
    network = VeloxSeg(NetworkConfig.from_json(config.to_json())).eval()
    network.load_state_dict(weights)
    return network


@pytest.mark.parametrize("what", ["ffn", "channels"])
def test_pruning_to_all_changes_nothing(what: str) -> None:
    network = network_of(B)
    pruned = prune(network, what, parameters(network))
    assert pruned.config == B
    assert all(torch.equal(tensor, pruned.weights[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize(
    ("config", "what", "part"), [(B, "ffn", 0.85), (FULL, "channels", 0.25), (B, "channels", 0.8)], ids=str
)
def test_the_count_is_that_of_the_tensors(config: NetworkConfig, what: str, part: float) -> None:
    network = network_of(config)
    target = round(part * parameters(network))
    pruned = prune(network, what, target)
    smaller = rebuilt(pruned.config, pruned.weights)
    tensors = sum(pruned.weights[name].numel() for name, _ in smaller.named_parameters())
    assert parameters(smaller) == tensors <= target
    assert parameters(smaller) > 0.85 * target  # no more is taken away than whole vectors of 8 ask for
    with torch.no_grad():
        assert smaller(torch.randn(1, 2, 32, 32, 32)).shape == (1, 2, 32, 32, 32)


def test_units_without_weight_go_first_and_are_not_missed() -> None:
    """Hidden units that are dead in a network are the ones that pruning takes, so its output stays."""
    network = network_of(B)
    with torch.no_grad():
        for module in network.modules():
            if hasattr(module, "expand") and hasattr(module, "reduce"):
                axis = 1 if module.expand.weight.ndim == 3 else 0  # (M, hidden, C) of tokens, (hidden, C, 1, 1, 1)
                dead = torch.arange(module.expand.weight.shape[axis]) % 2 == 1
                index = (slice(None), dead) if axis else (dead,)
                module.expand.weight[index] = 0
                module.expand.bias[index] = 0
                module.reduce.weight[(slice(None), slice(None), dead) if axis else (slice(None), dead)] = 0
    dead_parameters = sum(
        hidden // 2 * (2 * width + 1)
        for kind, factor in (("encoder", 1), ("decoder", 1), ("tokens", 2))
        for stage, _, hidden in B.hidden_widths(kind)
        for width in [B.widths[stage] * factor]
    )
    pruned = prune(network, "ffn", parameters(network) - round(0.9 * dead_parameters))
    image = torch.randn(1, 2, 32, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(rebuilt(pruned.config, pruned.weights)(image), network(image), atol=1e-4, rtol=1e-4)
    assert parameters(rebuilt(pruned.config, pruned.weights)) < parameters(network)


def test_grouped_convolutions_lose_whole_groups() -> None:
    pruned = prune(network_of(B), "channels", 1_000_000)
    assert pruned.config.group_sizes == B.group_sizes
    for stage, size in enumerate(B.group_sizes):
        groups = pruned.kept[Space("stage", stage)].unflatten(0, (-1, size))
        assert (groups[:, 0] % size == 0).all()
        assert (groups == groups[:, :1] + torch.arange(size)).all()


def test_the_table_of_kept_widths() -> None:
    rows = kept_ratios(prune(network_of(B), "ffn", 1_400_000), B, ("ct", "pet"))
    assert [row["depth"] for row in rows] == [1, 2, 3, 4]
    assert all({"ct", "pet", "tokens", "encoder"} <= row.keys() for row in rows)
    assert "decoder" not in rows[3]  # the decoder has three stages
    assert all(0 < row["encoder"] <= 3 for row in rows)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"leaves at least .* ask for more"):
        prune(network_of(B), "ffn", 1000)
    with pytest.raises(ConfigError, match="choose from ffn, channels"):
        prune(network_of(B), "heads", 1_000_000)
    with pytest.raises(ConfigError, match="must have 7 entries"):
        replace(B, hidden=(8, 8))
    with pytest.raises(ConfigError, match="must have 4 entries"):
        replace(B, channels=(16, 32))
