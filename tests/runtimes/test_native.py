"""The native kernels compute what the network computes, for every variant, and refuse what they cannot."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from torch import nn

from veloxseg.cli import main
from veloxseg.errors import ConfigError, MissingDependencyError, ModelError
from veloxseg.model.config import PRESETS, NetworkConfig
from veloxseg.model.network import VeloxSeg
from veloxseg.model_folder import ModelFolder
from veloxseg.predict.sliding import predict_labels
from veloxseg.runtimes import choose_runtime, open_runtime, usable_runtimes
from veloxseg.runtimes.graph import inference_form
from veloxseg.runtimes.native import adding, library
from veloxseg.runtimes.native import runtime as native_runtime
from veloxseg.runtimes.native.adding import add_weighted
from veloxseg.runtimes.native.program import Program, missing
from veloxseg.runtimes.native.weights import native_weights

SMALL = {"patch": (64, 64, 32), "windows": ()}
VARIANTS = {
    **{name: replace(config, **SMALL) for name, config in PRESETS.items()},
    "one voxel in the last stage": NetworkConfig(patch=(32, 32, 32)),
    "long": NetworkConfig(patch=(32, 96, 64)),
    "three modalities": NetworkConfig(in_channels=(2, 1, 1), classes=3, **SMALL),
    "kernels 1 to 7": NetworkConfig(kernel_sizes=(1, 3, 5, 7), **SMALL),
    "groups of 2": NetworkConfig(group_sizes=(2, 4, 4, 8), **SMALL),
    "groups of 8 and 16": NetworkConfig(group_sizes=(8, 16, 16, 32), **SMALL),
    "width 8": NetworkConfig(base_width=8, transformer_width=8, heads=(2, 2, 2, 2), **SMALL),
    "width 24": NetworkConfig(base_width=24, transformer_width=24, **SMALL),
    "odd widths": NetworkConfig(base_width=6, transformer_width=12, group_sizes=(3, 6, 12, 1), **SMALL),
    "depth-wise, kernel 7": NetworkConfig(kernel_sizes=(7,), group_sizes=(1, 1, 1, 1), **SMALL),
    "kernel 9": NetworkConfig(kernel_sizes=(9,), **SMALL),
    "full convolution": NetworkConfig(kernel_sizes=(3,), group_sizes=(16, 32, 64, 128), **SMALL),
    "convolution stream alone": NetworkConfig(attention="none", head="transposed", classes=3, **SMALL),
    "transposed head": NetworkConfig(head="transposed", **SMALL),
    "windows alone": NetworkConfig(attention="window", **SMALL),
    "down-sampled alone": NetworkConfig(attention="downsampled", **SMALL),
    "pruned": NetworkConfig(
        channels=(12, 20, 44, 72),
        group_sizes=(4, 4, 4, 8),
        hidden=(11, 30, 50, 70, 13, 31, 51),
        transformer_hidden=(5, 9, 33, 70),
        **SMALL,
    ),
}

pytestmark = pytest.mark.skipif(not native_runtime.is_built(), reason="the kernels were not built: no C compiler")


def random_network(config: NetworkConfig) -> VeloxSeg:
    torch.manual_seed(0)
    network = VeloxSeg(config).eval()
    for name, parameter in network.named_parameters():
        if name.endswith(("bias", "table")):
            nn.init.normal_(parameter, std=0.2)
    return network


def weights_of(network: VeloxSeg, *, difference: bool) -> dict[str, np.ndarray]:
    """What the kernels take."""
    weights = {name: tensor.numpy().copy() for name, tensor in network.state_dict().items()}
    return native_weights(network.config, weights, difference=difference)


def build(config: NetworkConfig, *, difference: bool, instructions: str | None = None) -> tuple[nn.Module, Program]:
    network = random_network(config)
    form = inference_form(network, "openvino", difference=difference)
    return form.double(), Program(config, weights_of(network, difference=difference), instructions)


def window_of(config: NetworkConfig, seed: int = 0) -> np.ndarray:
    shape = (1, sum(config.in_channels), *config.patch)
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("instructions", library.built_sets())
@pytest.mark.parametrize("config", VARIANTS.values(), ids=list(VARIANTS))
def test_every_variant_is_the_network(config, instructions):
    assert missing(config) is None
    form, program = build(config, difference=config.classes == 2, instructions=instructions)
    for seed in (0, 1):  # the second finds the buffers used
        window = window_of(config, seed)
        with torch.inference_mode():
            expected = form(torch.from_numpy(window).double()).numpy()
        np.testing.assert_allclose(program(window), expected, atol=1e-5 * np.abs(expected).max() + 1e-5)


@pytest.mark.parametrize("changes", [{"head_sizes": (6, 8, 8, 16)}, {"head_sizes": (4, 8, 8, 132)}], ids=str)
def test_what_the_kernels_lack_is_left_to_others(changes, write_model, make_plan, tmp_path):
    reason = missing(NetworkConfig(**{**SMALL, **changes}))
    assert reason is not None
    folder = ModelFolder.open(write_model(tmp_path / "model", make_plan()))
    folder = replace(folder, network={**folder.network, **changes})
    assert choose_runtime(folder) == "openvino"
    with pytest.raises(ConfigError, match=f"{re.escape(reason)}; use --runtime openvino"):
        open_runtime(folder, "native")


def test_auto_takes_it_where_it_is(model, exported, monkeypatch):
    folder = ModelFolder.open(model)
    assert choose_runtime(folder) == "native"
    assert usable_runtimes(folder) == ["native", "openvino", "onnx", "torch"]
    assert choose_runtime(ModelFolder.open(exported["openvino"])) == "openvino"
    monkeypatch.setattr(native_runtime, "kernels", lambda: None)
    assert choose_runtime(folder) == "openvino"
    with pytest.raises(MissingDependencyError, match="C compiler"):
        open_runtime(folder, "native")


def test_the_widest_instruction_set_is_taken_and_vectors_follow_it():
    """Of 16, 8 or 4 lanes; a panel holds whole vectors."""
    first = library.built_sets()[0]
    config = VARIANTS["s"]
    _, program = build(config, difference=True)
    assert program.library.instruction_set().decode() == first
    assert program.vectors.lanes == {"avx512": 16, "avx2": 8, "neon": 4}[first]
    assert program.vectors.panel % program.vectors.lanes == 0


def test_info_names_the_instruction_set(exported, capsys):
    assert main(["info", str(exported["native"])]) == 0
    assert f"native kernels:  {library.built_sets()[0]}" in capsys.readouterr().out


def test_info_says_which_setting_the_kernels_lack(write_model, make_plan, tmp_path, capsys):
    path = write_model(tmp_path / "model", make_plan())
    text = (path / "model.json").read_text()
    network = json.loads(text)["network"] | {"head_sizes": [6, 8, 8, 16]}
    (path / "model.json").write_text(json.dumps(json.loads(text) | {"network": network}))
    assert main(["info", str(path)]) == 0
    assert "not for this model: runtime native cannot compute head_sizes (6, 8, 8, 16)" in capsys.readouterr().out


@pytest.mark.parametrize("product", [False, True])
@pytest.mark.parametrize("built", [True, False])
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_scores_are_added_as_numpy_adds_them_and_what_is_not_finite_is_seen(bad, built, product, monkeypatch):
    """Views, lines that end in a part of a vector, and a bad score in the last of them; with kernels and without."""
    if not built:
        monkeypatch.setattr(adding, "kernels", lambda: None)
    random = np.random.default_rng(0)
    held, scores, lines = (random.standard_normal((9, 11, 40), np.float32) for _ in range(3))
    plane = random.standard_normal((9, 11), np.float32)
    if product:
        lines = np.broadcast_to(lines[0, 0], lines.shape)
    part = slice(1, 6), slice(2, 9), slice(3, 40)
    if bad is not None:
        scores[5, 8, 39] = bad
    expected = held.copy()
    expected[part] += (scores * lines * plane[:, :, None])[part]
    assert add_weighted(held[part], scores[part], lines[part], plane[part[:2]]) == (bad is None)
    if bad is None:
        np.testing.assert_allclose(held, expected, rtol=0, atol=1e-6)


def test_a_processor_without_the_widest_set_uses_the_next(monkeypatch):
    """As if the first library said that this processor lacks its instructions."""
    first, *rest = library.built_sets()
    if not rest:
        pytest.skip("one instruction set only")
    library.kernels.cache_clear()
    monkeypatch.setitem(library.SETS, first, library.SETS[first]._replace(path=library.FOLDER / "none.so"))
    assert library.built_sets() == rest
    found = library.kernels()
    library.kernels.cache_clear()
    assert found is not None
    assert found.instruction_set().decode() == rest[0]


def test_a_library_of_other_sources_is_not_used(monkeypatch):
    library.kernels.cache_clear()
    monkeypatch.setattr(library, "source_hash", lambda: "of a later version")
    assert library.kernels() is None
    library.kernels.cache_clear()
    monkeypatch.undo()
    assert library.kernels() is not None


@pytest.mark.parametrize("damage", ["shape", "missing", "type", "outputs", "no tensors"])
def test_weights_that_do_not_fit_are_refused_before_they_are_used(damage, exported, tmp_path):
    """Kernels trust their addresses, so nothing of a wrong size may reach them."""
    source = ModelFolder.open(exported["native"])
    weights = load_file(source.path / "native.safetensors")
    name = "decoder.1.blocks.0.expand.weight"
    if damage == "shape":
        weights[name] = weights[name][:-1].copy()
    elif damage == "missing":
        del weights[name]
    elif damage == "type":
        weights[name] = weights[name].astype(np.float16)
    elif damage == "outputs":
        weights["head_bias"] = np.zeros(3, np.float32)
    path = tmp_path / "native.safetensors"
    save_file(weights, path)
    if damage == "no tensors":
        path.write_bytes(b"junk")
    with pytest.raises(ModelError, match="export the model again"):
        native_runtime.open_native(path, source, threads=1)


def test_a_window_of_another_size_is_refused(exported):
    folder = ModelFolder.open(exported["native"])
    with pytest.raises(ModelError, match="were files mixed up"):
        open_runtime(folder, "native")(np.zeros((1, 2, 32, 32, 32), np.float32))


def test_a_window_may_be_a_view(exported):
    runtime = open_runtime(ModelFolder.open(exported["native"]), "native", threads=1)
    image = np.random.default_rng(0).standard_normal((2, 70, 66, 40), np.float32)
    view = image[None, :, 3:67, 1:65, 5:37]
    expected = runtime(np.ascontiguousarray(view)).copy()
    assert (runtime(view) == expected).all()
    swapped = np.asfortranarray(view)  # lines that are not side by side
    assert (runtime(swapped) == expected).all()


def test_threads_change_nothing(exported):
    folder = ModelFolder.open(exported["native"])
    image = np.random.default_rng(0).standard_normal((2, 90, 100, 60), np.float32)
    one, three = (
        predict_labels(image, open_runtime(folder, "native", threads=threads), folder.plan) for threads in (1, 3)
    )
    assert 0 < one.mean() < 1
    assert (one == three).all()


def test_a_failure_in_a_thread_is_not_lost(exported):
    folder = ModelFolder.open(exported["native"])

    class Failing:
        name, threads, windows_at_once = "failing", 2, 2

        def __call__(self, window):
            raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        predict_labels(np.random.default_rng(0).random((2, 90, 90, 40), np.float32), Failing(), folder.plan)


def test_a_result_is_not_overwritten_while_anybody_holds_a_view_of_it(exported):
    """And its memory serves again afterwards, so that no window takes fresh memory."""
    runtime = open_runtime(ModelFolder.open(exported["native"]), "native", threads=1)
    first, second = (np.random.default_rng(seed).standard_normal((1, 2, 64, 64, 32), np.float32) for seed in (0, 1))
    kept = runtime(first)[0, 0, 3:9]
    values, address = kept.copy(), kept.base.ctypes.data
    assert runtime(second).ctypes.data != address
    assert (kept == values).all()
    del kept
    again = runtime(first)
    assert again.ctypes.data == address
    assert (again[0, 0, 3:9] == values).all()
