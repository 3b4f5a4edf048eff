"""The native weights that numpy makes are those that torch makes: to the bit, sums and interpolations to 1e-6."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from veloxseg.errors import ModelError
from veloxseg.model.config import PRESETS, NetworkConfig
from veloxseg.model.network import VeloxSeg
from veloxseg.runtimes.graph import InferenceForm
from veloxseg.runtimes.graph_layers import PLAIN
from veloxseg.runtimes.native.weights import native_weights, read_weights

MERGED = replace(PLAIN, least_group=4)  # as groups.c has it
VARIANTS = {
    **PRESETS,
    "one modality": NetworkConfig(in_channels=(1,), patch=(64, 64, 32)),
    "three modalities, early fusion": NetworkConfig(in_channels=(2, 1, 1), classes=3, patch=(64, 64, 32)),
    "four modalities, an odd patch": NetworkConfig(in_channels=(1, 1, 1, 1), classes=4, patch=(160, 96, 32)),
    "one voxel in the last stage": NetworkConfig(patch=(32, 32, 32)),
    "groups of 1": NetworkConfig(group_sizes=(1, 2, 4, 8), patch=(32, 64, 96)),
    "width 24": NetworkConfig(base_width=24, transformer_width=24, patch=(64, 64, 64)),
}


def random_network(config: NetworkConfig) -> VeloxSeg:
    torch.manual_seed(0)
    network = VeloxSeg(config).eval()
    for name, parameter in network.named_parameters():
        if name.endswith(("bias", "table", "norm_weight")):
            nn.init.normal_(parameter, std=0.2)
    return network


def arrays(network: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in network.state_dict().items()}


@pytest.mark.parametrize("config", VARIANTS.values(), ids=list(VARIANTS))
def test_numpy_makes_what_torch_makes(config: NetworkConfig) -> None:
    network = random_network(config)
    for difference in {False, config.classes == 2}:
        expected = arrays(InferenceForm(network, MERGED, difference=difference))
        found = native_weights(config, arrays(network), difference=difference)
        graphs = {name for name in expected if "upsampling_" in name}  # the kernels interpolate without a matrix
        assert found.keys() == expected.keys() - graphs
        for name, tensor in found.items():
            summed = name.endswith(".bias") and any(part in name for part in (".project.", ".expand.", ".merges."))
            if summed:
                np.testing.assert_allclose(tensor, expected[name], rtol=0, atol=1e-6, err_msg=name)
            else:
                np.testing.assert_array_equal(tensor, expected[name], err_msg=name)
            assert tensor.dtype == np.float32


def test_regions_keep_all_their_outputs(write_model, make_plan, tmp_path) -> None:
    """Two classes become one output; two regions may overlap, and stay two."""
    from veloxseg.model_folder import ModelFolder
    from veloxseg.runtimes.native.runtime import convert_native

    labels = {"background": 0, "whole": 1, "core": 2}
    plan = make_plan(3, labels=labels, regions={"whole": (1, 2), "core": (2,)}, patch=(32, 32, 32))
    for name, one, outputs in (("regions", plan, 2), ("classes", make_plan(patch=(32, 32, 32)), 1)):
        folder = ModelFolder.open(write_model(tmp_path / name, one))
        convert_native(folder, folder.path)
        assert len(read_weights(folder.path / "native.safetensors")["head_bias"]) == 64 * outputs


@pytest.mark.parametrize("damage", ["shape", "missing", "type", "unknown"])
def test_weights_of_another_network_are_refused(damage: str) -> None:
    config = NetworkConfig(patch=(32, 32, 32))
    weights = arrays(random_network(config))
    name = "encoder.stages.1.transformer.blocks.0.attention.qkv.norm_bias"
    if damage == "shape":
        weights[name] = weights[name][:, :-1]
    elif damage == "missing":
        del weights[name]
    elif damage == "type":
        weights[name] = weights[name].astype(np.int64)
    else:
        weights["teacher.weight"] = np.zeros(3, np.float32)
    with pytest.raises(ModelError, match="were files mixed up"):
        native_weights(config, weights, difference=True)


def test_windows_that_would_fill_the_memory_are_refused() -> None:
    """The table fits its file, the bias of all pairs of tokens would not fit a computer."""
    config = NetworkConfig(in_channels=(1,), patch=(128, 128, 128), windows=((32, 32, 32),) * 1 + ((4, 4, 4),) * 3)
    weights = {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes(config).items()}
    with pytest.raises(ModelError, match="a table of"):
        native_weights(config, weights, difference=True)


def shapes(config: NetworkConfig) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in VeloxSeg(config).state_dict().items()}
