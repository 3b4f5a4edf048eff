"""Growth of attention: the paper's formula, and real modules by their multiply-accumulates."""

import pytest
import torch

from veloxseg.benchmark import growth
from veloxseg.model.count import macs


def counted(kind: str, patch: int) -> int:
    side = patch // 4
    return macs(growth.build(kind, patch), (1, 1, side, side, side, growth.WIDTH))


def test_the_papers_coefficient_is_the_ratio_of_window_volumes() -> None:
    ratios = growth.coefficients()
    assert ratios["window volumes only"] == pytest.approx(0.0787, abs=5e-5)
    assert ratios["window volumes only"] < ratios["with κ"] < ratios["with κ and projections"]


@pytest.mark.parametrize("kind", growth.KINDS)
@torch.no_grad()
def test_layers_keep_the_shape(kind: str) -> None:
    x = torch.randn(1, 1, 12, 12, 12, growth.WIDTH)
    assert growth.build(kind, 48).eval()(x).shape == x.shape


def test_full_attention_grows_with_the_square_and_the_others_nearly_linearly() -> None:
    rows = [
        {"attention": kind, "patch": patch, "macs": counted(kind, patch)}
        for kind in growth.KINDS
        for patch in growth.PATCHES
    ]
    slopes = growth.exponents(rows, "macs")
    assert slopes["full"] == pytest.approx(2, abs=0.05)
    assert slopes["window 7³"] == pytest.approx(1, abs=0.25)  # padding to whole windows is uneven
    assert slopes["PWA"] == pytest.approx(1, abs=0.15)


def test_pwa_takes_less_work_than_window_and_full_attention() -> None:
    pwa, window, full = (counted(kind, 96) for kind in growth.KINDS)
    assert pwa < window < full


@torch.no_grad()
def test_window_attention_does_not_look_beyond_its_window() -> None:
    layer = growth.build("window 7³", 56).eval()  # 14 voxels: two whole windows along each axis
    x = torch.randn(1, 1, 14, 14, 14, growth.WIDTH)
    changed = x.clone()
    changed[:, :, :7] += 1
    torch.testing.assert_close(layer(changed)[:, :, 7:], layer(x)[:, :, 7:])
    assert not torch.allclose(layer(changed)[:, :, :7], layer(x)[:, :, :7])
