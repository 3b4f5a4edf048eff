"""The light peers and MONAI's: shapes, gradients, and what each one's idea promises."""

import numpy as np
import pytest
import torch
from scipy.interpolate import BSpline

from veloxseg.peers.registry import build_peer
from veloxseg.peers.ukan import cubic_splines

OURS = ("slim-unetr", "segformer-3d", "superlightnet", "u-kan", "unetr++")


@pytest.mark.parametrize("name", [*OURS, "unet", "vnet", "swin-unetr", "mednext-s", "segresnet", "dynunet"])
@torch.no_grad()
def test_maps_a_patch_to_logits_of_the_same_size(name: str) -> None:
    network = build_peer(name, (1, 2), 3, (64, 32, 32)).eval()
    assert network(torch.randn(1, 3, 64, 32, 32)).shape == (1, 3, 64, 32, 32)


@pytest.mark.parametrize("name", OURS)
def test_gradients_reach_every_parameter(name: str) -> None:
    torch.manual_seed(0)
    network = build_peer(name, (1, 1), 2, (32, 32, 32)).train()
    weights = torch.randn(2, 2, 32, 32, 32)  # a plain sum would vanish behind a norm
    (network(torch.randn(2, 2, 32, 32, 32)) * weights).sum().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key


@pytest.mark.parametrize("name", OURS)
@torch.no_grad()
def test_evaluation_is_repeatable(name: str) -> None:
    network = build_peer(name, (1, 1), 2, (32, 32, 32)).eval()
    image = torch.randn(1, 2, 32, 32, 32)
    torch.testing.assert_close(network(image), network(image), rtol=0, atol=0)


def test_splines_equal_those_of_scipy() -> None:
    x = np.linspace(-0.999, 0.999, 41)
    knots = np.arange(-3, 9) * 0.4 - 1
    expected = np.stack([np.nan_to_num(BSpline(knots, row, 3, extrapolate=False)(x)) for row in np.eye(8)], axis=-1)
    np.testing.assert_allclose(cubic_splines(torch.from_numpy(x)).numpy(), expected, atol=1e-12)


@torch.no_grad()
def test_slim_unetr_lays_its_tokens_back_where_they_came_from() -> None:
    """A change in one corner changes the output most in that corner, which a shuffled grid would not keep."""
    torch.manual_seed(0)
    network = build_peer("slim-unetr", (1,), 2, (96, 32, 32)).eval()
    image = torch.randn(1, 1, 96, 32, 32)
    changed = image.clone()
    changed[..., :16, :, :] += 1
    change = (network(changed) - network(image)).abs().mean(dim=(0, 1, 3, 4))
    assert change[:16].mean() > 2 * change[64:].mean()
