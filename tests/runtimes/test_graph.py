"""The inference form is the network: every rewrite is exact."""

import pytest
import torch
from torch import nn

from veloxseg.model.config import NetworkConfig
from veloxseg.model.network import VeloxSeg
from veloxseg.runtimes.graph import InferenceForm, inference_form
from veloxseg.runtimes.graph_layers import STYLES, Convolution, PlaneConvolution, merge_groups

VARIANTS = [
    {},
    {"patch": (32, 32, 32)},  # one voxel in the last stage
    {"patch": (64, 32, 32)},
    {"kernel_sizes": (3,)},
    {"kernel_sizes": (1, 3, 5, 7)},
    {"in_channels": (4,), "classes": 4},
    {"in_channels": (2, 1)},
    {"attention": "window"},
    {"attention": "downsampled"},
    {"head": "transposed", "classes": 3},
    {"depths": (2, 1, 1, 1), "transformer_depths": (1, 2, 1, 1)},
]


def random_network(**changes) -> VeloxSeg:
    torch.manual_seed(0)
    network = VeloxSeg(NetworkConfig(**{"patch": (64, 64, 32), **changes})).eval().double()
    for name, parameter in network.named_parameters():
        if name.endswith(("bias", "table")):
            nn.init.normal_(parameter, std=0.2)
    return network


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
@pytest.mark.parametrize("runtime", list(STYLES))
def test_the_inference_form_is_the_network(changes, runtime):
    network = random_network(**changes)
    image = torch.randn(1, sum(network.config.in_channels), *network.config.patch, dtype=torch.float64)
    form = inference_form(network, runtime, difference=False)
    assert isinstance(form, InferenceForm)
    with torch.inference_mode():
        torch.testing.assert_close(form(image), network(image), atol=1e-6, rtol=0)


@pytest.mark.parametrize("changes", [{}, {"attention": "none"}, {"head": "transposed"}], ids=str)
def test_two_classes_give_the_difference(changes):
    network = random_network(**changes)
    image = torch.randn(1, 2, *network.config.patch, dtype=torch.float64)
    with torch.inference_mode():
        logits = network(image)
        found = inference_form(network, "openvino", difference=True)(image)
    torch.testing.assert_close(found, logits[:, 1:] - logits[:, :1], atol=1e-6, rtol=0)


def test_group_convolutions_in_other_forms():
    torch.manual_seed(0)
    conv = nn.Conv3d(16, 16, 5, padding=2, groups=4, bias=False).double()
    image = torch.randn(1, 16, 7, 6, 5, dtype=torch.float64)
    merged = Convolution(conv, STYLES["openvino"], bias=False)
    planes = PlaneConvolution(conv)
    assert merged.groups == planes.groups == 2
    with torch.inference_mode():
        torch.testing.assert_close(merged(image), conv(image))
        torch.testing.assert_close(planes(image), conv(image))
    weight, groups = merge_groups(conv.weight.detach(), 4, 4)
    assert groups == 1
    assert weight.shape == (16, 16, 5, 5, 5)
