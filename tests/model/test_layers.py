"""The layers that are written for CPUs equal the plain ones."""

import pytest
import torch
from torch import Tensor, nn

from veloxseg.model.layers import CellConv3d, Conv3d, Dropout, InstanceNorm, PixelShuffle3d


def test_dropout_keeps_the_mean_and_the_rate() -> None:
    torch.manual_seed(0)
    dropout = Dropout(0.1)
    dropped = dropout(torch.ones(100_003))
    assert (dropped == 0).float().mean().item() == pytest.approx(0.1, abs=0.005)
    assert dropped.mean().item() == pytest.approx(1, abs=0.005)
    assert dropped.max().item() == pytest.approx(1 / 0.9)
    x = torch.randn(5)
    assert dropout.eval()(x) is x


def test_dropout_follows_the_seed() -> None:
    dropout, x = Dropout(0.5), torch.ones(1000)
    results = []
    for _ in range(2):
        torch.manual_seed(7)
        results.append(dropout(x))
    assert torch.equal(*results)
    assert not torch.equal(dropout(x), results[0])


@pytest.mark.parametrize("batch", [1, 2])
def test_convolutions_equal_pytorchs_in_both_modes(batch: int) -> None:
    ours, cells = Conv3d(4, 8, 3, padding=1, groups=2), CellConv3d(4, 8, 2)
    plain, plain_cells = nn.Conv3d(4, 8, 3, padding=1, groups=2), nn.Conv3d(4, 8, 2, stride=2)
    plain.load_state_dict(ours.state_dict())
    plain_cells.load_state_dict(cells.state_dict())
    x = torch.randn(batch, 4, 6, 8, 10)
    for mine, theirs in ((ours, plain), (cells, plain_cells)):
        torch.testing.assert_close(mine(x), theirs(x), atol=1e-5, rtol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(mine(x), theirs(x), atol=1e-5, rtol=1e-5)


def test_pixel_shuffle_follows_the_stated_order() -> None:
    x = torch.arange(2 * 8, dtype=torch.float32).reshape(1, 16, 1, 1, 1)
    shuffled = PixelShuffle3d(2)(x)
    assert shuffled.shape == (1, 2, 2, 2, 2)
    for output in range(2):
        for i, j, k in torch.cartesian_prod(*[torch.arange(2)] * 3).tolist():
            assert shuffled[0, output, i, j, k] == output * 8 + i * 4 + j * 2 + k


def test_instance_norm_in_half_precision_has_the_gradient_of_full_precision() -> None:
    """Two nearly equal voxels, as in the deepest stage: statistics rounded to bfloat16 would see no difference."""
    torch.manual_seed(0)
    image = (5 + 0.05 * torch.randn(2, 8, 1, 1, 2)).bfloat16()
    weights = torch.randn(2, 8, 1, 1, 2)

    def gradient(image: Tensor) -> Tensor:
        image = image.detach().requires_grad_()
        (InstanceNorm()(image) * weights).sum().backward()
        assert image.grad is not None
        return image.grad.double()

    torch.testing.assert_close(gradient(image), gradient(image.double()), atol=1e-3, rtol=0.01)
