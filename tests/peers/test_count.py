"""The counters, against layers whose cost is known by hand."""

import pytest
import torch
from torch import nn

from veloxseg.model.count import macs, macs_as_published, parameters_as_published


def test_a_convolution_costs_the_same_by_both_counts() -> None:
    layer = nn.Conv3d(4, 6, 3, padding=1, groups=2)
    expected = 6 * 8**3 * (4 // 2) * 27
    assert macs(layer, (1, 4, 8, 8, 8)) == macs_as_published(layer, (1, 4, 8, 8, 8)) == expected


def test_the_published_count_overstates_a_transposed_convolution_by_the_strides() -> None:
    layer = nn.ConvTranspose3d(4, 6, 2, stride=2)
    assert macs_as_published(layer, (1, 4, 8, 8, 8)) == 8 * macs(layer, (1, 4, 8, 8, 8))


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.InstanceNorm3d(4), 2 * 4 * 64),
        (nn.BatchNorm3d(4), 4 * 4 * 64),
        (nn.Softmax(dim=-1), 4 * 16 * (3 * 4 - 1)),
        (nn.GroupNorm(2, 4), 0),
    ],
)
def test_other_layers_by_the_published_rules(layer: nn.Module, expected: int) -> None:
    assert macs_as_published(layer, (1, 4, 4, 4, 4)) == expected


def test_bare_parameters_are_not_counted_as_published() -> None:
    layer = nn.Linear(3, 5)
    layer.register_parameter("table", nn.Parameter(torch.zeros(7)))
    holder = nn.Sequential(layer)
    holder.register_parameter("positions", nn.Parameter(torch.zeros(100)))
    assert parameters_as_published(holder) == 3 * 5 + 5 + 7


def test_counting_leaves_the_network_as_it_was() -> None:
    network = nn.Sequential(nn.Conv3d(1, 2, 1), nn.Dropout(0.5)).train()
    macs_as_published(network, (1, 1, 4, 4, 4))
    assert network.training
    assert network[0].weight.device.type == "cpu"
    assert not network[0]._forward_hooks
