"""What paired window attention must be, whatever its weights."""

import math
from dataclasses import replace

import pytest
import torch

from support.tiny_networks import TINY, fill
from veloxseg.model.config import PairedWindow
from veloxseg.model.pwa import PairedWindowAttention, RelativePositionBias
from veloxseg.model.windows import gather, scatter, upsampling_matrix

FEATURE = (12, 8, 4)
PAIRS = [
    PairedWindow(big=(3, 2, 1), small=(1, 1, 1)),
    PairedWindow(big=(6, 4, 2), small=(2, 2, 2)),
    PairedWindow(big=(12, 8, 4), small=(4, 4, 4)),
]


def split_modalities(gathered_BWLC: torch.Tensor, modalities: int) -> torch.Tensor:
    return gathered_BWLC.unflatten(2, (modalities, -1))


def test_scatter_inverts_gather() -> None:
    volume = torch.randn(2, 3, *FEATURE, 5)
    pair = PAIRS[0]
    tokens = split_modalities(gather(volume, pair), 2)
    assert tokens.shape == (3, 4 * 4 * 4, 2, 6, 5)
    assert torch.equal(scatter(tokens, pair, FEATURE, None), volume)


@pytest.mark.parametrize("pair", PAIRS)
def test_gather_takes_the_maximum_of_each_small_window_in_its_big_window(pair: PairedWindow) -> None:
    volume = torch.randn(1, 1, *FEATURE, 1)
    gathered = gather(volume, pair)[0, :, :, 0]
    counts = [f // b for f, b in zip(FEATURE, pair.big, strict=True)]
    naive = []
    for corner in torch.cartesian_prod(*(torch.arange(n) for n in counts)).tolist():
        x, y, z = (i * b for i, b in zip(corner, pair.big, strict=True))
        window = volume[0, 0, x : x + pair.big[0], y : y + pair.big[1], z : z + pair.big[2], 0]
        naive.append(torch.nn.functional.max_pool3d(window[None], pair.small).flatten())
    assert torch.equal(gathered, torch.stack(naive))


@pytest.mark.parametrize("pair", PAIRS[1:])
def test_both_ways_of_upsampling_agree(pair: PairedWindow) -> None:
    windows = math.prod(f // b for f, b in zip(FEATURE, pair.big, strict=True))
    tokens = torch.randn(2, windows, 2, math.prod(pair.tokens), 3)
    by_matrix = scatter(tokens, pair, FEATURE, upsampling_matrix(pair))
    by_kernel = scatter(tokens, pair, FEATURE, None)
    torch.testing.assert_close(by_matrix, by_kernel)


def test_nothing_leaks_across_windows() -> None:
    pair = PAIRS[1]
    tokens = torch.zeros(1, 8, 1, 6, 1)
    tokens[0, 0] = 1.0
    volume = scatter(tokens, pair, FEATURE, upsampling_matrix(pair))[0, 0, ..., 0]
    torch.testing.assert_close(volume[:6, :4, :2], torch.ones(6, 4, 2))
    volume[:6, :4, :2] = 0
    assert not volume.any()


def attention(**changes: object) -> PairedWindowAttention:
    module = PairedWindowAttention(replace(TINY, **changes), 2).eval()  # type: ignore[arg-type]
    fill(module)
    return module


def test_one_large_window_is_full_attention() -> None:
    """One window over the whole feature: the same as softmax(QKᵀ/√C + P) V over all tokens of all modalities."""
    config = replace(TINY, windows=((8, 16, 8), (4, 8, 4), (2, 4, 2), (1, 2, 1)))
    module = PairedWindowAttention(config, 2).eval()
    fill(module)
    assert len(module.pairs) == 1
    x_MBXYZC = torch.randn(2, 1, *module.feature, 32)
    with torch.no_grad():
        q, k, v = (
            module.qkv(x_MBXYZC).flatten(1, 4).flatten(0, 1).split(module.sizes, -1)
        )  # all tokens, modality by modality
        expected = []
        for head, bias in enumerate(module.bias.build()[0]):
            qh, kh, vh = (part.chunk(module.heads, -1)[head] for part in (q, k, v))
            expected.append(torch.softmax(qh @ kh.T / math.sqrt(qh.shape[-1]) + bias, -1) @ vh)
        mixed = module.mixer(torch.cat(expected, -1).reshape(2, 1, *module.feature, -1))
        torch.testing.assert_close(module(x_MBXYZC), mixed, atol=1e-5, rtol=1e-4)


def test_training_and_evaluation_kernels_agree() -> None:
    module = attention()
    x = torch.randn(2, 2, *module.feature, 32)
    with torch.no_grad():
        fused = module(x)
    torch.testing.assert_close(module(x), fused, atol=1e-5, rtol=1e-4)


def test_order_of_modalities_matters_only_through_their_own_weights() -> None:
    module, swapped = attention(), attention()
    with torch.no_grad():
        for name, parameter in swapped.named_parameters():
            if "table" not in name:
                parameter.copy_(parameter.flip(0))
        x = torch.randn(2, 1, *module.feature, 32)
        torch.testing.assert_close(swapped(x.flip(0)), module(x).flip(0), atol=1e-5, rtol=1e-4)


def test_modalities_see_each_other() -> None:
    module = attention()
    x = torch.randn(2, 1, *module.feature, 32)
    changed = x.clone()
    changed[1] += torch.randn_like(changed[1])
    with torch.no_grad():
        assert not torch.allclose(module(x)[0], module(changed)[0])


def test_position_bias_depends_on_the_offset_only() -> None:
    bias = RelativePositionBias((2, 3, 2), heads=2, modalities=2)
    with torch.no_grad():
        built = bias.build()[0]
    one = built[:, :12, :12]
    for block in (built[:, :12, 12:], built[:, 12:, :12], built[:, 12:, 12:]):
        assert torch.equal(block, one)
    # tokens (0,0,0)→(0,1,0) and (1,1,1)→(1,2,1) have the same offset
    assert torch.equal(one[:, 0, 2], one[:, 6 + 2 + 1, 6 + 4 + 1])
    assert not torch.equal(one[:, 0, 2], one[:, 2, 0])


def test_position_bias_follows_a_change_of_the_table() -> None:
    bias = RelativePositionBias((2, 2, 2), heads=1, modalities=1).eval()
    with torch.no_grad():
        first = bias()
        assert bias() is first  # built once
        bias.table.add_(1)
        torch.testing.assert_close(bias(), first + 1)
        bias.load_state_dict({"table": bias.table + 1})
        torch.testing.assert_close(bias(), first + 2)


def test_position_bias_follows_a_fused_optimiser() -> None:
    """Fused AdamW changes a table in place and leaves the tensor's version as it was."""
    bias = RelativePositionBias((2, 2, 2), heads=1, modalities=1)
    optimiser = torch.optim.AdamW(bias.parameters(), lr=0.1, fused=True)
    with torch.no_grad():
        before = bias().clone()
    bias().sum().backward()
    optimiser.step()
    with torch.no_grad():
        assert not torch.allclose(bias(), before)
        assert torch.equal(bias(), bias.build())
