"""Settings that do not fit are refused with a remedy; windows follow the paper."""

import json
from dataclasses import replace

import pytest

from veloxseg.errors import ConfigError, ShapeError
from veloxseg.model.config import PRESETS, NetworkConfig, preset, windows_for
from veloxseg.model.network import VeloxSeg

B = preset("b")


@pytest.mark.parametrize(
    ("change", "error", "remedy"),
    [
        ({"patch": (100, 96, 96)}, ShapeError, r"patch \(100, 96, 96\) is not divisible by 32; use \(128, 96, 96\)"),
        ({"patch": (0, 96, 96)}, ConfigError, "whole number from 1"),
        ({"patch": (96, 96)}, ConfigError, "patch is .* expected a list of 3, each a whole number from 1"),
        (
            {"group_sizes": (3, 8, 8, 16)},
            ConfigError,
            r"group size 3 does not divide the width 16 of stage 1; use one of",
        ),
        ({"group_sizes": (4, 8, 8)}, ConfigError, "expected a list of 4"),
        (
            {"windows": ((5, 5, 5),) * 4},
            ShapeError,
            r"does not tile the feature \(24, 24, 24\) of stage 1; use \(3, 3, 3\)",
        ),
        ({"windows": ((3, 3, 3), (6, 6, 6), (3, 3, 3), (4, 4, 4))}, ShapeError, "larger than the feature"),
        ({"small_windows": ((2, 2, 2),) * 4}, ShapeError, "does not divide window"),
        ({"attention": "swin"}, ConfigError, "attention is 'swin', expected one of paired, window"),
        ({"head": "linear"}, ConfigError, "one of pixel_shuffle, transposed"),
        ({"kernel_sizes": (2,)}, ConfigError, "must be odd"),
        ({"in_channels": ()}, ConfigError, "at least one channel"),
        ({"in_channels": (1, 0)}, ConfigError, "whole number from 1"),
        ({"classes": 0}, ConfigError, "classes is 0, expected a whole number from 1"),
        ({"conv_dropout": 1.0}, ConfigError, "from 0 to below 1"),
        ({"heads": (1, 2, 2, 0)}, ConfigError, "whole number from 1"),
    ],
)
def test_errors_say_what_to_do(change: dict[str, object], error: type[Exception], remedy: str) -> None:
    with pytest.raises(error, match=remedy) as raised:
        replace(B, **change)  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


def test_unknown_names_list_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown preset 'xl'; choose from b, s, l, b\+, c, b-hecktor"):
        preset("xl")
    with pytest.raises(ConfigError, match="unknown entry width; known are"):
        NetworkConfig.from_json({"width": 3})


def test_windows_reproduce_the_papers_choices() -> None:
    assert windows_for((96, 96, 96)) == ((3, 3, 3), (6, 6, 6), (3, 3, 3), (3, 3, 3))
    assert windows_for((128, 128, 64)) == ((4, 4, 2), (8, 8, 4), (4, 4, 2), (4, 4, 2))
    sides = [[pair.big[0] for pair in B.pairs(stage)] for stage in range(4)]
    assert sides == [[3, 6, 12, 24], [6, 12], [3, 6], [3]]


@pytest.mark.parametrize("patch", [(32, 32, 32), (64, 64, 64), (160, 96, 32), (32, 224, 96), (192, 192, 192)])
def test_windows_for_any_patch_tile_and_end_at_the_whole_feature(patch: tuple[int, int, int]) -> None:
    config = replace(B, patch=patch)
    for stage in range(4):
        pairs = config.pairs(stage)
        assert pairs[-1].big == config.feature(stage)
        assert len({pair.tokens for pair in pairs}) == 1
        assert config.transformer_widths[stage] % len(pairs) == 0


def test_a_change_of_patch_changes_derived_windows_but_keeps_given_ones() -> None:
    assert replace(B, patch=(64, 64, 64)).big_windows[0] == (2, 2, 2)
    given = replace(B, windows=((6, 6, 6), (6, 6, 6), (3, 3, 3), (3, 3, 3)))
    assert given.big_windows[0] == (6, 6, 6)


@pytest.mark.parametrize("name", PRESETS)
def test_json_round_trip(name: str) -> None:
    config = preset(name)
    assert NetworkConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_wrong_input_names_the_right_one() -> None:
    import torch

    with pytest.raises(ShapeError, match=r"input \(1, 3, 96, 96, 96\) does not fit .* \(batch, 2, 96, 96, 96\)"):
        VeloxSeg(B)(torch.zeros(1, 3, 96, 96, 96))
