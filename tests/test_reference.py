"""The authors' configuration and parameter names."""

import json
from pathlib import Path

import pytest
import torch

from model.test_golden import load, weights
from veloxseg import reference
from veloxseg.cli import main
from veloxseg.errors import ConfigError, ModelError
from veloxseg.model.config import preset
from veloxseg.model.network import VeloxSeg
from veloxseg.model_folder import ModelFolder, load_network


def test_configuration() -> None:
    authors = {
        "input_size": [96, 96, 96],
        "patch_size": 4,
        "in_ch": [1, 1],
        "n_classes": 2,
        "min_dim_group": [4, 8, 8, 16],
    }
    assert reference.config(authors) == preset("b")
    with pytest.raises(ConfigError, match="patch_size is 2; this network is built for 4 only"):
        reference.config({**authors, "patch_size": 2})
    with pytest.raises(ConfigError, match="unknown setting mystery"):
        reference.config({**authors, "mystery": 1})


@pytest.mark.shared
def test_weights_that_do_not_fit_are_named(shared: Path) -> None:
    tensors, metadata = load(shared / "golden" / "veloxseg_b_autopet2.safetensors")
    authors = weights(tensors)
    network = VeloxSeg(reference.config(json.loads(metadata["config"])))
    with pytest.raises(ModelError, match=r"does not know surprise\.weight"):
        reference.load_weights(network, {**authors, "surprise.weight": torch.zeros(1)})
    lacking = {name: value for name, value in authors.items() if "mix_channels.1" not in name}
    with pytest.raises(ModelError, match=r"gets no value for encoder\.stages\.0\..*mixer"):
        reference.load_weights(network, lacking)
    with pytest.raises(ModelError, match=r"has another size for decoder\.out_conv1\.0\.weight"):
        reference.load_weights(network, {**authors, "decoder.out_conv1.0.weight": torch.zeros(4, 16, 3, 3, 3)})


@pytest.mark.shared
@pytest.mark.parametrize("form", ["safetensors", "pth"])
def test_convert_writes_a_model_that_gives_the_authors_numbers(shared: Path, tmp_path: Path, form: str) -> None:
    path = shared / "golden" / "veloxseg_b_autopet2.safetensors"
    tensors, metadata = load(path)
    if form == "pth":
        path = tmp_path / "released.pth"
        torch.save({"state_dict": {f"module.{name}": value for name, value in weights(tensors).items()}}, path)
    (tmp_path / "config.json").write_text(json.dumps({"VeloxSeg": json.loads(metadata["config"])}))
    arguments = ["convert", str(path), "--config", str(tmp_path / "config.json"), "-o", str(tmp_path / "model")]
    assert main([*arguments, "--quiet"]) == 0
    network = load_network(ModelFolder.open(tmp_path / "model"))
    with torch.inference_mode():
        torch.testing.assert_close(network(tensors["input"]), tensors["eval.logits"], atol=1e-4, rtol=0)


class Malicious:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("owned"),))


def test_a_pickle_that_would_run_code_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Malicious()}, "evil.pth")
    Path("config.json").write_text("{}")
    assert main(["convert", "evil.pth", "--config", "config.json", "-o", "model"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: evil.pth cannot be read safely")
    assert captured.err.count("\n") == 1
    assert not Path("owned").exists()
    assert not Path("model").exists()
