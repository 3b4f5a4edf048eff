"""The kernels of training compute what PyTorch computes, with its gradients, whatever the number of threads."""

import copy
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from veloxseg.errors import ShapeError
from veloxseg.kernels import calling, library
from veloxseg.kernels.attention import window_attention
from veloxseg.kernels.feed_forward import feed_forward, token_feed_forward
from veloxseg.kernels.groups import group_branches, has_branches
from veloxseg.kernels.mixing import instance_norm, mix
from veloxseg.kernels.voxels import cells_of, two_class_sums, voxels_of
from veloxseg.model import losses
from veloxseg.model.config import NetworkConfig
from veloxseg.model.jlc import JLC
from veloxseg.model.layers import InstanceNorm, PixelShuffle3d
from veloxseg.model.transformer import TransformerBlock
from veloxseg.train.objective import TaughtObjective
from veloxseg.train.recipe import Recipe

BUILT = [name for name in library.NAMES if library.training_kernels(name) is not None]
pytestmark = pytest.mark.skipif(not BUILT, reason="the kernels were not built: no C compiler")
CLOSE = 2e-5  # relative error of a gradient in float32 against float64


@pytest.fixture(params=BUILT or [""], autouse=True)
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every test computes with each instruction set that this processor has."""
    monkeypatch.setattr(library, "NAMES", (request.param,))
    library.training_kernels.cache_clear()
    calling.lanes.cache_clear()
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield request.param
    torch.set_num_threads(threads)
    monkeypatch.undo()
    library.training_kernels.cache_clear()
    calling.lanes.cache_clear()


def plainly() -> Any:
    """As where no kernels were built."""
    return mock.patch.object(calling, "training_kernels", return_value=None)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm().clamp(min=1e-12))


def gradients(call: Callable[..., Tensor], inputs: list[Tensor], seed: int = 1) -> list[Tensor]:
    """The result, and the gradients of its product with fixed random numbers."""
    out = call(*inputs)
    torch.manual_seed(seed)
    out.backward(torch.randn(out.shape).to(out.dtype))
    return [out.detach(), *(x.grad for x in inputs if x.grad is not None)]


def leaves(*inputs: Tensor, double: bool = False) -> list[Tensor]:
    return [(x.double() if double else x).detach().clone().requires_grad_() for x in inputs]


def compare(fast: Callable[..., Tensor], plain: Callable[..., Tensor], *inputs: Tensor, close: float = CLOSE) -> None:
    """Result and gradients in float32 against float64, and to the bit the same with three threads."""
    found, expected = gradients(fast, leaves(*inputs)), gradients(plain, leaves(*inputs, double=True))
    assert len(found) == len(expected)
    assert max(error(a, b) for a, b in zip(found, expected, strict=True)) < close
    torch.set_num_threads(3)
    assert all(map(torch.equal, gradients(fast, leaves(*inputs)), found))
    torch.set_num_threads(1)


def normal(x: Tensor) -> Tensor:
    return (x - x.mean((2, 3, 4), keepdim=True)) / torch.sqrt(x.var((2, 3, 4), unbiased=False, keepdim=True) + 1e-5)


@pytest.mark.parametrize(
    ("width", "group", "sizes", "space"),
    [
        (16, 4, (1, 3, 5), (9, 8, 26)),
        (32, 8, (1, 3, 5), (5, 7, 12)),
        (32, 16, (3, 5), (4, 3, 17)),
        (48, 16, (5,), (2, 3, 6)),
        (16, 4, (3,), (6, 5, 1)),
    ],
)
def test_group_branches(width: int, group: int, sizes: tuple[int, ...], space: tuple[int, ...]) -> None:
    convs = [nn.Conv3d(width, width, k, padding=k // 2, groups=width // group) for k in sizes]
    x = torch.randn(2, width, *space)
    single = len(sizes) == 1
    assert has_branches(x.requires_grad_(), convs)

    def fast(x: Tensor, *weights: Tensor) -> Tensor:
        for conv, weight in zip(convs, weights, strict=True):
            del conv.weight
            conv.weight = weight  # type: ignore[assignment]
        return group_branches(x, convs)

    def plain(x: Tensor, *weights: Tensor) -> Tensor:
        y = x
        for conv, weight in zip(convs, weights, strict=True):
            assert conv.bias is not None
            branch = F.conv3d(x, weight, conv.bias.to(x.dtype), padding=conv.padding, groups=conv.groups)
            y = y + (branch if single else F.gelu(normal(branch)))
        return y

    compare(fast, plain, x.detach(), *(conv.weight for conv in convs))


def test_a_jlc_block_is_the_same_with_all_its_parameters() -> None:
    block = JLC(32, group_size=8, kernel_sizes=(1, 3, 5), hidden=48, dropout=0.0)
    double = copy.deepcopy(block).double()
    x = torch.randn(2, 32, 6, 7, 8)
    found, expected = gradients(block, leaves(x)), gradients(double, leaves(x, double=True))
    pairs = list(zip(found, expected, strict=True))
    pairs += [
        (a.grad, b.grad)
        for (name, a), b in zip(block.named_parameters(), double.parameters(), strict=True)
        if not name.startswith("convs") or name.endswith("weight")  # a bias in front of a norm: noise, and here zero
    ]
    assert max(error(a, b) for a, b in pairs) < CLOSE  # type: ignore[arg-type]
    assert all(float(conv.bias.grad.abs().max()) == 0 for conv in block.convs)  # type: ignore[union-attr, operator]


def test_a_feed_forward_layer_of_tokens() -> None:
    sets, channels, hidden = 2, 16, 48
    shapes = [(sets, 2, 3, 5, 4, channels), (sets, channels, hidden), (sets, hidden), (sets, hidden, channels)]
    inputs = [torch.randn(shape) for shape in [*shapes, (sets, channels)]]

    def plain(y: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
        rows = F.layer_norm(y, y.shape[-1:], eps=1e-6).flatten(1, 4)
        return y + (F.gelu(rows @ w1 + b1[:, None]) @ w2 + b2[:, None]).view(y.shape)

    def fast(*given: Tensor) -> Tensor:
        return token_feed_forward(*given, 0.0, residual=True)

    compare(fast, plain, *inputs)
    compare(
        lambda *given: token_feed_forward(*given, 0.0, residual=False), lambda y, *more: plain(y, *more) - y, *inputs
    )


def test_mixing() -> None:
    conv = nn.Conv3d(48, 32, 1)
    parts = [torch.randn(2, 5, 6, 7, 16), torch.randn(2, 5, 6, 7, 32)]
    assert conv.bias is not None

    def plain(*parts: Tensor) -> Tensor:
        return normal(F.conv3d(torch.cat(parts, -1).movedim(-1, 1), conv.weight.double(), conv.bias.double()))

    compare(lambda *parts: mix(parts, conv), plain, *parts)
    found = conv.weight.grad
    assert found is not None
    conv.weight.grad = None
    gradients(lambda *parts: mix(parts, conv), leaves(*parts))
    once = conv.weight.grad
    conv.weight.grad = None
    gradients(plain, leaves(*parts, double=True))
    assert once is not None
    assert conv.weight.grad is not None
    assert error(once, conv.weight.grad) < CLOSE


def test_instance_norm_of_a_large_mean() -> None:
    x = torch.randn(2, 32, 4, 5, 6) * 0.1 + 100
    compare(instance_norm, normal, x, close=1e-4)  # float32 itself has no more digits of such numbers
    compare(instance_norm, normal, torch.randn(2, 32, 4, 5, 6))


@pytest.mark.parametrize(
    ("windows", "tokens", "heads", "dk", "dv"), [(9, 54, 2, 8, 16), (5, 7, 1, 4, 4), (3, 33, 4, 16, 32)]
)
def test_attention(windows: int, tokens: int, heads: int, dk: int, dv: int) -> None:
    def plain(rows: Tensor, bias: Tensor) -> Tensor:
        parts = rows.split([heads * dk, heads * dk, heads * dv], -1)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        return ((q @ k.mT * dk**-0.5 + bias).softmax(-1) @ v).transpose(1, 2).flatten(2)

    rows, bias = torch.randn(windows, tokens, heads * (2 * dk + dv)), torch.randn(heads, tokens, tokens)
    compare(lambda rows, bias: window_attention(rows, bias, dk, dv, 0.0), plain, rows, bias)


def test_dropout_is_a_share_of_the_elements_and_its_gradient_fits() -> None:
    rows, bias = torch.zeros(8, 64, 3 * 64), torch.zeros(1, 64, 64)
    rows[..., 128:] = torch.eye(64)  # the values; the result is then the weights themselves
    weights = window_attention(rows.requires_grad_(), bias, 64, 64, 0.25).detach() * 64
    assert set(weights.double().round(decimals=3).unique().tolist()) == {0.0, 1.333}
    assert abs(float((weights == 0).float().mean()) - 0.25) < 0.01

    block = JLC(16, group_size=4, kernel_sizes=(1, 3), hidden=32, dropout=0.3)
    x, direction = torch.randn(1, 16, 5, 5, 5), torch.randn(1, 16, 5, 5, 5)

    def value(at: Tensor) -> Tensor:
        torch.manual_seed(3)
        return (block(at).double() ** 2).sum()

    (x,) = leaves(x)
    value(x).backward()
    step = 1e-2 * direction
    slope = (value(x + step) - value(x - step)).detach() / 2
    assert error(slope, (x.grad.double() * step).sum()) < 1e-3  # type: ignore[union-attr]
    assert not torch.equal(block(x), block(x))  # other random numbers each time


def test_cells_and_voxels_are_each_others_way_back() -> None:
    cells = torch.randn(2, 128, 3, 4, 5)
    with plainly():
        expected = PixelShuffle3d(4)(cells)
    (leaf,) = leaves(cells)
    voxels = voxels_of(leaf, 4)
    assert torch.equal(voxels, expected)
    assert torch.equal(cells_of(voxels.detach(), 4), cells)
    voxels.backward(expected)
    assert torch.equal(leaf.grad, cells)  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_dice", [False, True])
def test_the_loss_of_two_classes(batch_dice: bool) -> None:
    d, label = 5 * torch.randn(2, 1, 9, 10, 11), (torch.rand(2, 9, 10, 11) > 0.9).long()
    d[0, 0, 0, 0, :2] = torch.tensor([200.0, -200.0])

    def fast(d: Tensor) -> Tensor:
        return torch.stack(losses.two_class_loss(d, label, batch_dice=batch_dice))

    def plain(d: Tensor) -> Tensor:
        two = torch.cat([torch.zeros_like(d), d], 1)
        return torch.stack(losses.segmentation_loss(two, label, batch_dice=batch_dice))

    compare(fast, plain, d)


def test_a_training_has_the_same_losses(instructions: str) -> None:
    config = NetworkConfig(patch=(64, 64, 64), attention_dropout=0, projection_dropout=0, conv_dropout=0)
    objective = TaughtObjective(config, Recipe(), losses.two_class_loss, difference=True)
    image, label = torch.randn(2, 2, 64, 64, 64), (torch.rand(2, 64, 64, 64) > 0.9).long()

    def train() -> list[float]:
        mine, values = copy.deepcopy(objective), list[float]()
        optimiser = torch.optim.SGD(mine.parameters(), lr=1e-3)
        for _ in range(3):
            optimiser.zero_grad()
            terms = mine(image, label)
            terms[0].backward()
            optimiser.step()
            values.append(terms[0].item())
        return values

    found = train()
    with plainly():
        expected = train()
    assert found == pytest.approx(expected, rel=1e-5)


def test_what_the_kernels_lack_is_left_to_pytorch() -> None:
    x = torch.randn(1, 12, 4, 4, 4, requires_grad=True)
    assert not has_branches(x, [nn.Conv3d(12, 12, 3, groups=3)])
    assert not has_branches(torch.randn(1, 32, 4, 4, 4, requires_grad=True), [nn.Conv3d(32, 32, 7, groups=8)])
    assert calling.kernels_for(x) is not None
    assert calling.kernels_for(x.detach()) is None
    assert calling.kernels_for(x.double()) is None
    with torch.no_grad():
        assert calling.kernels_for(x) is None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert calling.kernels_for(x) is None
    with plainly():
        assert calling.kernels_for(x) is None


def test_a_wrong_shape_is_refused_before_an_address_is_handed_on() -> None:
    (x,) = leaves(torch.randn(1, 32, 4, 4, 4))
    convs = [nn.Conv3d(32, 32, 3, groups=4), nn.Conv3d(16, 16, 3, groups=2)]
    with pytest.raises(ShapeError, match="a kernel was given"):
        group_branches(x, convs)
    with pytest.raises(ShapeError, match="a kernel was given"):
        feed_forward(x, nn.Conv3d(16, 32, 1), nn.Conv3d(32, 16, 1), 0.0)
    with pytest.raises(ShapeError, match="a kernel was given"):
        mix([x.movedim(1, -1), x.movedim(1, -1)[:, :2].contiguous()], nn.Conv3d(64, 32, 1))
    with pytest.raises(ShapeError, match="a kernel was given"):
        window_attention(torch.randn(2, 5, 24, requires_grad=True), torch.randn(1, 6, 6), 8, 8, 0.0)
    with pytest.raises(ShapeError, match="labels"):
        two_class_sums(torch.randn(2, 10), torch.zeros(2, 9, dtype=torch.uint8))
    with pytest.raises(ShapeError, match="a kernel was given"):
        cells_of(torch.randn(1, 1, 8, 8, 9), 4)
    with pytest.raises(ShapeError, match="65 channels"):
        voxels_of(torch.randn(1, 65, 2, 2, 2), 4)


def test_a_transformer_block_uses_them(instructions: str) -> None:
    config = NetworkConfig(patch=(32, 32, 32), attention_dropout=0, projection_dropout=0, drop_path=0.2)
    block = TransformerBlock(config, 0, 0).eval()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.3)
    x = torch.randn(2, 1, 8, 8, 8, 16)
    found = gradients(block, leaves(x))
    with plainly():
        expected = gradients(copy.deepcopy(block).double(), leaves(x, double=True))
    assert max(error(a, b) for a, b in zip(found, expected, strict=True)) < CLOSE
    assert InstanceNorm()(torch.randn(1, 16, 4, 4, 4, requires_grad=True)).grad_fn.name() == "_NormBackward"
