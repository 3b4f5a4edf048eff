"""U-RWKV and HCMA-UNet: the chunked scans against naive recurrences, the published figures, gradients."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from veloxseg.errors import ShapeError
from veloxseg.model.count import macs, macs_as_published, parameters_as_published
from veloxseg.peers import hcma_unet, urwkv
from veloxseg.peers.scan import bidirectional_wkv, selective_scan

Build = Callable[[tuple[int, ...], int, tuple[int, int, int]], nn.Module]
every_peer = pytest.mark.parametrize("build", [urwkv.build, hcma_unet.build], ids=["u-rwkv", "hcma-unet"])


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors: more threads, beside another worker of the tests, take three times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def scan_arguments(length: int, *, groups: int = 3, width: int = 2, state: int = 4) -> list[Tensor]:
    random = torch.Generator().manual_seed(length)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    inputs, step = draw(2, length, groups, width), draw(2, length, groups, width).abs()
    rate = -draw(groups, width, state).abs()
    write, read = draw(2, length, groups, state), draw(2, length, groups, state)
    return [tensor.requires_grad_() for tensor in (inputs, step, rate, write, read)]


def scan_step_by_step(inputs: Tensor, step: Tensor, rate: Tensor, write: Tensor, read: Tensor) -> Tensor:
    state, outputs = torch.zeros(len(inputs), *rate.shape, dtype=inputs.dtype), []
    for t in range(inputs.shape[1]):
        drive = (step[:, t] * inputs[:, t])[..., None] * write[:, t, :, None]
        state = torch.exp(step[:, t, ..., None] * rate) * state + drive
        outputs.append((state * read[:, t, :, None]).sum(-1))
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("length", [1, 2, 7, 16, 30])
def test_the_chunked_scan_and_its_gradients_equal_the_recurrence(length: int) -> None:
    arguments = scan_arguments(length)
    expected, found = scan_step_by_step(*arguments), selective_scan(*arguments)
    torch.testing.assert_close(found, expected)
    pull = torch.randn_like(expected)
    expected_gradients = torch.autograd.grad(expected, arguments, pull)
    found_gradients = torch.autograd.grad(found, arguments, pull)
    for name, one, other in zip(
        ("inputs", "step", "rate", "write", "read"), found_gradients, expected_gradients, strict=True
    ):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")
    with torch.no_grad():
        assert torch.equal(selective_scan(*arguments), found)


def test_fast_decay_over_a_long_sequence_does_not_overflow() -> None:
    inputs, step, rate, write, read = (tensor.detach().float() for tensor in scan_arguments(900))
    outputs = selective_scan(inputs, 50 * step, 30 * rate, write, read)
    assert outputs.isfinite().all()


def wkv_by_the_equation(decay: Tensor, bonus: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Every pair of positions, as the sum is written in the paper of Vision-RWKV."""
    length = key.shape[1]
    place = torch.arange(length)
    distance = (place[:, None] - place[None]).abs()
    exponent = -(distance - 1)[..., None] * decay / length
    exponent[place, place] = bonus / length
    weights = torch.exp(exponent + key[:, None])  # (B, position, other position, channel)
    return (weights * value[:, None]).sum(2) / weights.sum(2)


@pytest.mark.parametrize("length", [1, 2, 8, 27])
def test_wkv_and_its_gradients_equal_the_sum_over_all_pairs(length: int) -> None:
    torch.manual_seed(length)
    decay, bonus = 3 * torch.randn(2, 5, dtype=torch.float64)
    key, value = torch.randn(2, 3, length, 5, dtype=torch.float64)
    arguments = [tensor.clone().requires_grad_() for tensor in (decay, bonus, key, value)]
    expected, found = wkv_by_the_equation(*arguments), bidirectional_wkv(*arguments)
    torch.testing.assert_close(found, expected)
    pull = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(found, arguments, pull), torch.autograd.grad(expected, arguments, pull), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_wkv_of_large_keys_is_a_weighted_mean_all_the_same() -> None:
    key, value = 500 * torch.randn(1, 40, 3), torch.rand(1, 40, 3)
    mixed = bidirectional_wkv(torch.full((3,), 2.0), torch.zeros(3), key, value)
    assert mixed.isfinite().all()
    assert mixed.min() >= 0
    assert mixed.max() <= 1.0001


@pytest.mark.parametrize(
    ("build", "patch", "parameters", "published"),
    [
        (urwkv.build, (96, 96, 96), 1.44, 20.68),
        (urwkv.build, (128, 128, 64), 1.44, 24.51),
        (hcma_unet.build, (96, 96, 96), 2.81, 26.15),
        (hcma_unet.build, (128, 128, 64), 2.81, 31.00),
    ],
)
def test_figures_of_the_papers_tables(
    build: Build, patch: tuple[int, int, int], parameters: float, published: float
) -> None:
    with torch.device("meta"):
        network = build((1, 1), 2, patch)
    assert parameters_as_published(network) == pytest.approx(parameters * 1e6, rel=0.002)
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(parameters * 1e6, rel=0.03)
    assert macs_as_published(network, (1, 2, *patch)) == pytest.approx(published * 1e9, rel=0.002)


def test_half_of_the_published_work_of_hcma_unet_is_its_counters() -> None:
    with torch.device("meta"):
        network = hcma_unet.build((1, 1), 2, (32, 32, 32))
    real, published = (count(network, (1, 2, 32, 32, 32)) for count in (macs, macs_as_published))
    assert 0.5 < real / published < 0.6


def test_training_lowers_the_loss_through_the_scan() -> None:
    """A scan alone learns to repeat what it saw one position before, which needs gradients through time."""
    torch.manual_seed(0)
    length = 40
    inputs = torch.randn(8, length, 1, 1)
    parameters = [torch.full((1, 1, 1), -1.0), torch.randn(2, 1, 4), torch.randn(2, 1, 4)]
    step, write, read = (tensor.requires_grad_() for tensor in parameters)
    rate = -torch.arange(1.0, 5.0).view(1, 1, 4)
    optimiser = torch.optim.Adam([step, write, read], lr=0.05)
    losses = []
    for _ in range(60):
        steps = torch.nn.functional.softplus(step).expand(8, length, 1, 1)
        outputs = selective_scan(
            inputs, steps, rate, write.sum(0).expand(8, length, 1, 4), read.sum(0).expand(8, length, 1, 4)
        )
        loss = (outputs[:, 1:] - inputs[:, :-1]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@every_peer
def test_gradients_reach_every_parameter(build: Build) -> None:
    torch.manual_seed(0)
    network = build((1, 2), 3, (64, 32, 32)).eval()  # no dropout, so that a zero gradient means a dead path
    logits = network(torch.randn(2, 3, 64, 32, 32))
    assert logits.shape == (2, 3, 64, 32, 32)
    (logits * torch.randn_like(logits)).sum().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.any(), key


@every_peer
def test_a_sample_does_not_depend_on_its_batch(build: Build) -> None:
    torch.manual_seed(0)
    network = build((1, 1), 2, (32, 32, 32)).eval()
    images = torch.randn(2, 2, 32, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(network(images)[:1], network(images[:1]), rtol=1e-3, atol=1e-4)


@every_peer
def test_a_patch_that_does_not_divide_is_refused(build: Build) -> None:
    with pytest.raises(ShapeError, match=r"patch \(96, 96, 36\) is not divisible by .*use \(96, 96, (40|48)\)"):
        build((1, 1), 2, (96, 96, 36))


def test_shift_moves_each_sixth_of_the_channels_by_one_voxel() -> None:
    tokens = torch.randn(1, 3, 3, 3, 12)
    shifted = urwkv.shift_by_a_voxel(tokens)
    neighbours = [(0, 1, 1), (2, 1, 1), (1, 0, 1), (1, 2, 1), (1, 1, 0), (1, 1, 2)]
    centre = torch.cat([tokens[0, x, y, z, 2 * i : 2 * i + 2] for i, (x, y, z) in enumerate(neighbours)])
    assert torch.equal(shifted[0, 1, 1, 1], centre)
    assert not shifted[0, 0, :, :, :2].any()


def test_dual_rwkv_does_not_prefer_a_direction() -> None:
    """Reversing the volume reverses the output: the second pass sees what the first would see."""
    torch.manual_seed(0)
    module = urwkv.DirectionAdaptive(12).eval()
    features, space = torch.randn(1, 12, 2, 3, 4), (2, 3, 4)
    with torch.no_grad():
        torch.testing.assert_close(module(features.flip(space)), module(features).flip(space))


def test_the_plane_is_scanned_from_all_four_sides() -> None:
    """A voxel in the middle of an edge depends on all others, which one causal scan would not give."""
    torch.manual_seed(0)
    scan = hcma_unet.PlaneScan(8)
    plane = torch.randn(1, 4, 3, 5, requires_grad=True)
    scan.four_ways(plane)[0, 1, 2].sum().backward()
    assert (plane.grad.abs().sum(1) > 0).all()
