"""Every runtime gives the network's labels and probabilities, without torch where it promises so, and no telemetry."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from veloxseg.errors import ConfigError, ModelError
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.runtimes import open_runtime
from veloxseg.runtimes.decoding import Decoding
from veloxseg.runtimes.native.runtime import is_built
from veloxseg.runtimes.parity import LIMIT, parity, trial_windows
from veloxseg.runtimes.runtime import Ensemble, Mirrored


@pytest.mark.parametrize("runtime", ["torch", "openvino", "onnx", *(["native"] if is_built() else [])])
def test_runtimes_agree_with_float64_on_random_and_nearly_empty_windows(runtime, model, exported):
    source = ModelFolder.open(model)
    opened = open_runtime(ModelFolder.open(exported.get(runtime, model)), runtime, threads=1)
    report = parity(load_network(source), opened, source.plan)
    assert len(report["windows"]) == 7
    assert report["worst_probability_difference"] < LIMIT
    assert report["worst_equal_labels"] > 0.9999


def test_parity_notices_a_wrong_graph(model):
    source = ModelFolder.open(model)
    network = load_network(source)
    right = open_runtime(source, "torch", threads=1)

    class Wrong:
        name, threads, windows_at_once = "wrong", 1, 1

        def __call__(self, window):
            return right(window) + np.array([0.0, 0.05], np.float32).reshape(1, 2, 1, 1, 1)

    assert parity(network, Wrong(), source.plan)["worst_probability_difference"] > LIMIT


def test_exported_folders_predict_without_torch_and_without_telemetry(exported, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for runtime, folder in exported.items():
        assert not (folder / "model.safetensors").exists()
        script = (
            "import sys, json, numpy as np\n"
            "from veloxseg.runtimes import open_runtime\n"
            "from veloxseg.model_folder import ModelFolder\n"
            f"folder = ModelFolder.open({str(folder)!r})\n"
            "run = open_runtime(folder, 'onnx' if 'onnx' in str(folder.path) else 'auto', threads=1)\n"
            "out = run(np.random.default_rng(0).standard_normal((1, 2, *folder.plan.patch), np.float32))\n"
            "print(json.dumps([run.name, out.shape, 'torch' in sys.modules]))\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={
                "HOME": str(home),
                "XDG_CACHE_HOME": str(home / "cache"),
                "PATH": "",
                "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            },
        )
        name, shape, torch_imported = json.loads(done.stdout.splitlines()[-1])
        assert name == runtime
        assert shape == [1, 1, 64, 64, 32]  # the difference of two classes
        assert not torch_imported
    assert {path.name for path in home.iterdir()} <= {"cache"}
    assert {path.name for path in (home / "cache").iterdir()} == {"veloxseg"}


def test_a_plain_model_is_converted_once(model, cache, capsys):
    folder = ModelFolder.open(model)
    open_runtime(folder, "openvino", threads=1)
    assert "once" in capsys.readouterr().out
    open_runtime(folder, "openvino", threads=1)
    assert "once" not in capsys.readouterr().out
    assert list((cache / "veloxseg" / "graphs").glob("*/model.xml"))


def test_three_classes_give_all_logits(write_model, make_plan, tmp_path):
    plan = make_plan(3)
    folder = ModelFolder.open(write_model(tmp_path / "model", plan))
    exact, ours = open_runtime(folder, "torch"), open_runtime(folder, "openvino", threads=1)
    for name, window in trial_windows(plan):
        found, expected = ours(window), exact(window)
        assert found.shape == (1, 3, *plan.patch)
        probabilities = [Decoding(plan).probabilities(scores[0]) for scores in (found, expected)]
        for key in probabilities[0]:
            np.testing.assert_allclose(probabilities[0][key], probabilities[1][key], atol=1e-3, err_msg=name)


def test_ensembles_and_mirrors_are_means(arithmetic):
    window = np.random.default_rng(0).standard_normal((1, 2, 4, 6, 8)).astype(np.float32)
    one = arithmetic(2)

    class Shifted(arithmetic):
        def __call__(self, window):
            return super().__call__(window) + 1

    np.testing.assert_allclose(Ensemble([one, Shifted(2)])(window), one(window) + 0.5, rtol=1e-5)
    mirrored = Mirrored(one)(window)
    flips = [tuple(a + 2 for a in range(3) if bits >> a & 1) for bits in range(8)]
    expected = np.mean([np.flip(one(np.flip(window, axes)), axes) for axes in flips], axis=0)
    np.testing.assert_allclose(mirrored, expected, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_opened_is_said_in_one_line(model, exported, tmp_path):
    with pytest.raises(ConfigError, match="choose from"):
        open_runtime(ModelFolder.open(model), "tensorrt")
    with pytest.raises(ConfigError, match="at least 1"):
        open_runtime(ModelFolder.open(model), "openvino", threads=0)
    with pytest.raises(ConfigError, match="use --runtime torch"):
        open_runtime(ModelFolder.open(model), "openvino", device="cuda")
    with pytest.raises(ModelError, match="neither weights nor a graph"):
        open_runtime(ModelFolder.open(exported["openvino"]), "onnx")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model.json").write_bytes((exported["openvino"] / "model.json").read_bytes())
    for name in ("model.xml", "model.onnx"):
        (broken / name).write_text("<net")
    for runtime in ("openvino", "onnx"):
        with pytest.raises(ModelError, match="export the model again"):
            open_runtime(ModelFolder.open(broken), runtime)
