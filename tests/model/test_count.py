"""Every row of the specification's tables: parameters to the printed digit, MACs as published within 0.5 %."""

from dataclasses import replace

import pytest
import torch

from veloxseg.model.config import PRESETS, NetworkConfig, preset
from veloxseg.model.costs import COSTS
from veloxseg.model.count import macs, macs_as_published, parameters, parameters_as_published
from veloxseg.model.network import VeloxSeg
from veloxseg.model.sdkt import SDKTModel

B = preset("b")
ABLATION = replace(B, head="transposed")
FOUR = (4, 4, 4, 4)
CONV_ONLY = replace(ABLATION, attention="none", expansions=FOUR)

# configuration, parameters in millions, published and real MACs in thousand millions
CONFIGURATIONS: dict[str, tuple[NetworkConfig, float, float, float]] = {
    "B": (B, 1.6696, 1.79, 1.752),
    "B HECKTOR": (preset("b-hecktor"), 1.6703, 2.13, 2.091),
    "C": (preset("c"), 1.4703, 2.64, 2.563),
    "S": (preset("s"), 1.2012, 1.42, 1.382),
    "L": (preset("l"), 2.6743, 2.46, 2.467),
    "B+": (preset("b+"), 5.2786, 4.27, 4.000),
    "one modality": (replace(B, in_channels=(1,)), 1.3949, 1.61, 1.528),
    "early fusion": (replace(B, in_channels=(2,)), 1.4014, 1.70, 1.618),
}
ABLATIONS: dict[str, tuple[NetworkConfig, float, float]] = {
    "base 32, kernel 7": (replace(CONV_ONLY, base_width=32, kernel_sizes=(7,), group_sizes=(1, 1, 1, 1)), 2.647, 5.307),
    "base 16, kernel 7": (replace(CONV_ONLY, kernel_sizes=(7,), group_sizes=(1, 1, 1, 1)), 0.730, 2.410),
    "groups 1,1,1,1": (replace(CONV_ONLY, group_sizes=(1, 1, 1, 1)), 0.664, 2.302),
    "groups 1,2,2,4": (replace(CONV_ONLY, group_sizes=(1, 2, 2, 4)), 0.752, 2.325),
    "groups 2,4,4,8": (replace(CONV_ONLY, group_sizes=(2, 4, 4, 8)), 0.894, 2.437),
    "groups 4,8,8,16": (CONV_ONLY, 1.178, 2.661),
    "groups 8,16,16,32": (replace(CONV_ONLY, group_sizes=(8, 16, 16, 32)), 1.746, 3.110),
    "full convolution": (replace(CONV_ONLY, group_sizes=(16, 32, 64, 128)), 4.762, 4.176),
    "transformer depth 2": (
        replace(ABLATION, transformer_depths=(2, 2, 2, 2), expansions=FOUR, transformer_expansions=FOUR),
        2.381,
        3.072,
    ),
    "transformer depth 1": (replace(ABLATION, expansions=FOUR, transformer_expansions=FOUR), 1.890, 2.900),
    "expansion 3,3,2,2": (ABLATION, 1.616, 2.838),
    "pixel shuffle": (B, 1.670, 1.791),
}
# "JL-Setting Generalization Evaluation": kernels of 3, digits cut off. BraTS comes out with two classes, not its four
JL = replace(CONV_ONLY, kernel_sizes=(3,))
JL_DATA = {"HECKTOR": replace(JL, patch=(128, 128, 64)), "BraTS": replace(JL, in_channels=(4,), classes=2)}
JL_ROWS = {
    ("HECKTOR", (1, 1, 1, 1)): (0.618, 2.637),
    ("HECKTOR", (4, 8, 8, 16)): (0.709, 2.712),
    ("HECKTOR", (16, 32, 64, 128)): (1.342, 3.029),
    ("BraTS", (1, 1, 1, 1)): (0.629, 2.377),
    ("BraTS", (4, 8, 8, 16)): (0.720, 2.440),
    ("BraTS", (16, 32, 64, 128)): (1.353, 2.708),
}
PRINTED = {"b": 1.66, "s": 1.19, "l": 2.65, "b+": 5.26, "c": 1.46}
# "Comparison of Different Attention Mechanisms": the paper says too little to be exact, so 3 %
ATTENTIONS = {"window": (1.51, 2.80), "downsampled": (1.52, 2.78), "paired": (1.61, 2.84)}


def shape(config: NetworkConfig) -> tuple[int, ...]:
    return 1, sum(config.in_channels), *config.patch


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_configurations(name: str) -> None:
    config, millions, published, real = CONFIGURATIONS[name]
    network = VeloxSeg(config)
    assert f"{parameters(network) / 1e6:.4f}" == f"{millions:.4f}"
    assert macs_as_published(network, shape(config)) / 1e9 == pytest.approx(published, rel=0.005)
    assert macs(network, shape(config)) / 1e9 == pytest.approx(real, rel=0.001)


def test_the_published_figure_of_b_to_the_last_digit() -> None:
    assert macs_as_published(VeloxSeg(B), shape(B)) == pytest.approx(1.790860e9, abs=1000)


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations(name: str) -> None:
    config, millions, published = ABLATIONS[name]
    network = VeloxSeg(config)
    assert f"{parameters(network) / 1e6:.3f}" == f"{millions:.3f}"
    assert macs_as_published(network, shape(config)) / 1e9 == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize(("data", "groups"), JL_ROWS)
def test_the_six_rows_of_jl_generalisation(data: str, groups: tuple[int, int, int, int]) -> None:
    config = replace(JL_DATA[data], group_sizes=groups)
    network = VeloxSeg(config)
    millions, published = JL_ROWS[data, groups]
    assert parameters_as_published(network) / 1e6 == pytest.approx(millions, abs=0.001)
    assert macs_as_published(network, shape(config)) / 1e9 == pytest.approx(published, abs=0.001)


@pytest.mark.parametrize("name", PRINTED)
def test_parameters_as_the_paper_prints_them(name: str) -> None:
    assert parameters_as_published(VeloxSeg(preset(name))) // 10_000 == round(100 * PRINTED[name])


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_mechanisms(name: str) -> None:
    millions, published = ATTENTIONS[name]
    config = replace(ABLATION, attention=name)
    network = VeloxSeg(config)
    assert parameters(network) / 1e6 == pytest.approx(millions, rel=0.03)
    assert macs_as_published(network, shape(config)) / 1e9 == pytest.approx(published, rel=0.03)


def test_by_real_work_the_transposed_head_is_the_cheaper_one() -> None:
    assert macs(VeloxSeg(ABLATION), shape(B)) < macs(VeloxSeg(B), shape(B))


@pytest.mark.parametrize(("name", "total"), [("b", 2_288_999), ("c", 1_863_117)])
def test_total_with_teachers(name: str, total: int) -> None:
    assert parameters(SDKTModel(preset(name))) == total


def test_the_costs_that_info_prints_are_those_that_are_counted() -> None:
    assert COSTS.keys() == PRESETS.keys()
    for name, config in PRESETS.items():
        with torch.device("meta"):
            network = VeloxSeg(config)
        shape = (1, sum(config.in_channels), *config.patch)
        assert COSTS[name] == (parameters(network), macs(network, shape), macs_as_published(network, shape))
