"""H-DenseFormer, NestedFormer, VSmTrans, A2FSeg: the published figures, shapes, gradients, and their parts."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from veloxseg.errors import ConfigError, ShapeError
from veloxseg.model.count import macs_as_published, parameters_as_published
from veloxseg.peers import a2fseg, hdenseformer, nestedformer, vsmtrans
from veloxseg.peers.parts import InstanceNorm, cut_windows, place_windows, relative_offsets

Build = Callable[[tuple[int, ...], int, tuple[int, int, int]], nn.Module]
BUILDS = [hdenseformer.build, nestedformer.build, vsmtrans.build, a2fseg.build]
NAMES = ["h-denseformer", "nestedformer", "vsmtrans", "a2fseg"]
every_peer = pytest.mark.parametrize("build", BUILDS, ids=NAMES)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small tensors: more threads, beside another worker of the tests, take three times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("build", "modalities", "parameters", "published"),
    [
        (hdenseformer.build, 2, 3.64, 71.91),
        (hdenseformer.build, 4, 5.39, 73.18),
        (nestedformer.build, 2, 4.71, 58.62),
        (nestedformer.build, 4, 7.52, 88.43),
        (vsmtrans.build, 2, 12.48, 91.44),
        (vsmtrans.build, 4, 12.48, 92.72),
        (a2fseg.build, 2, 41.32, 207.97),
        (a2fseg.build, 4, 74.55, 361.18),
    ],
)
def test_figures_of_the_papers_tables(build: Build, modalities: int, parameters: float, published: float) -> None:
    """At 96³ with as many classes as modalities: AutoPET-II and BraTS."""
    with torch.device("meta"):
        network = build((1,) * modalities, modalities, (96, 96, 96))
    assert parameters_as_published(network) == pytest.approx(parameters * 1e6, rel=0.002)
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(parameters * 1e6, rel=0.03)
    found = macs_as_published(network, (1, modalities, 96, 96, 96))
    assert found == pytest.approx(published * 1e9, rel=0.002)


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
def test_what_cannot_be_built_is_refused(build: Build) -> None:
    with pytest.raises(ShapeError, match=r"patch \(96, 96, 72\) is not divisible by .*use \(96, 96, (80|96)\)"):
        build((1, 1), 2, (96, 96, 72))
    with pytest.raises(ConfigError, match="one positive number per modality"):
        build((), 2, (96, 96, 96))
    with pytest.raises(ConfigError, match="at least 2"):
        build((1,), 1, (96, 96, 96))


def test_instance_norm_has_the_right_gradient_when_channels_lie_last() -> None:
    """The case in which PyTorch's own is wrong: batch 1, gradient in channels-last layout."""
    torch.manual_seed(0)
    norm = InstanceNorm(6).double()
    image, pull = torch.randn(2, 1, 6, 4, 5, 3, dtype=torch.float64)
    gradients = []
    for layout in (torch.contiguous_format, torch.channels_last_3d):
        features = image.clone().requires_grad_()
        norm(features).backward(pull.contiguous(memory_format=layout))
        gradients.append(features.grad)
    torch.testing.assert_close(gradients[0], gradients[1])
    torch.testing.assert_close(norm(image), nn.InstanceNorm3d(6).double()(image))


def test_placing_inverts_cutting() -> None:
    tokens = torch.randn(2, 4, 6, 4, 3)
    windows = cut_windows(tokens, (2, 3, 1))
    assert windows.shape == (2 * 2 * 2 * 4, 6, 3)
    assert torch.equal(windows[0, :, 0], tokens[0, :2, :3, 0, 0].flatten())
    assert torch.equal(place_windows(windows, (2, 3, 1), (4, 6, 4)), tokens)


def test_equal_offsets_share_an_entry_of_the_table_and_others_do_not() -> None:
    window = (2, 3, 2)
    places = torch.cartesian_prod(*(torch.arange(edge) for edge in window))
    offsets = (places[:, None] - places[None]).flatten(0, 1)
    index = relative_offsets(window).flatten()
    same = (offsets[:, None] == offsets[None]).all(-1)
    assert torch.equal(index[:, None] == index[None], same)
    assert index.min() == 0
    assert index.max() == 3 * 5 * 3 - 1


@pytest.mark.parametrize("shifted", [False, True])
def test_shaped_attention_sees_its_window_and_nothing_across_the_border(shifted: bool) -> None:
    """Windows of 2×4×2 on a grid of 5×4×4: x is filled up by one, y is whole, z is shifted if asked."""
    torch.manual_seed(0)
    attention = vsmtrans.ShapedAttention(4, 2, (2, 4, 2), (5, 4, 4), shifted).eval()
    tokens = torch.randn(1, 5, 4, 4, 12, requires_grad=True)
    attention(tokens)[0, 0, 0, 0].sum().backward()
    seen = tokens.grad[0].abs().sum(-1) > 0
    expected = torch.zeros(5, 4, 4, dtype=torch.bool)
    expected[: 1 if shifted else 2, :, : 1 if shifted else 2] = True
    assert torch.equal(seen, expected)


def test_windows_of_nestedformer_shrink_to_what_divides_the_grid() -> None:
    assert nestedformer.WindowAttention(8, (6, 6, 6)).window == (3, 3, 2)
    assert nestedformer.WindowAttention(8, (8, 8, 4)).window == (2, 2, 2)


def test_merging_takes_in_all_eight_neighbours() -> None:
    merge = vsmtrans.Merge(3)
    tokens = torch.randn(1, 4, 4, 4, 3, requires_grad=True)
    merge(tokens)[0, 0, 0, 0].square().sum().backward()
    seen = tokens.grad[0].abs().sum(-1) > 0
    assert seen.sum() == 8
    assert seen[:2, :2, :2].all()
