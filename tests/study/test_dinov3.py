"""DINOv3 as a frozen backbone: with small random weights, as no released ones are at hand."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from veloxseg.cli import main
from veloxseg.errors import ModelError
from veloxseg.peers import dinov3
from veloxseg.peers.dinov3 import SliceProbe, ViT, Width, read_weights, rotations, turned

SMALL = Width(width=32, heads=2, depth=2)


def released(folder: Path) -> Path:
    """A file as its authors release it, of a small network."""
    torch.manual_seed(3)
    weights = {name: torch.randn_like(tensor) * 0.2 for name, tensor in ViT(SMALL).state_dict().items()}
    folder.mkdir()
    save_file(weights, folder / "model.safetensors")
    return folder


def test_the_backbone_is_that_of_transformers(tmp_path: Path) -> None:
    """Where the package is installed; no part of ours needs it."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 128}
    theirs = transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**sizes, num_register_tokens=4)).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    theirs.save_pretrained(tmp_path)
    ours = SliceProbe(SMALL, 1, 2).eval()
    left, surplus = ours.load_state_dict(read_weights(tmp_path), strict=False)
    assert (left, surplus) == (["head.weight", "head.bias"], [])
    image = torch.randn(2, 3, 48, 32)
    with torch.no_grad():
        expected = theirs(image).last_hidden_state[:, 5:].transpose(1, 2).reshape(2, 32, 3, 2)
        assert torch.allclose(ours.backbone(image), expected, atol=1e-5)


def test_products_depend_on_the_way_between_two_patches_only() -> None:
    cos, sin = rotations(4, 5, 16, torch.device("cpu"))
    query, key = (torch.randn(16).expand(1, 1, 20, 16) for _ in range(2))
    scores = (turned(query, (cos, sin)) @ turned(key, (cos, sin)).transpose(2, 3)).reshape(4, 5, 4, 5)
    for row, column in ((1, 2), (2, 3)):
        assert scores[row, column, row + 1, column - 1] == pytest.approx(float(scores[0, 1, 1, 0]), abs=1e-4)
    assert not torch.isclose(scores[0, 0, 1, 1], scores[0, 0, 1, 2])


def test_slices_do_not_see_each_other_and_modalities_both_count() -> None:
    torch.manual_seed(0)
    network = SliceProbe(SMALL, 2, 3).eval()
    image = torch.randn(1, 2, 32, 48, 4)
    before = network(image)
    assert before.shape == (1, 3, 32, 48, 4)
    before.square().sum().backward()
    assert [name for name, parameter in network.named_parameters() if parameter.grad is not None] == [
        "head.weight", "head.bias"
    ]  # fmt: skip
    for modality in range(2):
        changed = image.clone()
        changed[:, modality, :, :, 2] += torch.randn(32, 48)
        same = (network(changed) - before).abs().amax(dim=(0, 1, 2, 3)) < 1e-5
        assert same.tolist() == [True, True, False, True]


def test_only_the_head_is_trained(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dinov3, "LARGE", SMALL)
    folder = released(tmp_path / "weights")
    words = f"train {prepared} -o {tmp_path}/run --model dinov3-l --init {folder} --epochs 2"
    settings = ["--set", "steps_per_epoch=1", "batch=1", "crops=1", "learning_rate=0.01", "warmup_epochs=0"]
    assert main([*words.split(), *settings]) == 0
    trained = load_file(tmp_path / "run/model/model.safetensors")
    for name, tensor in read_weights(folder).items():
        assert torch.equal(trained[name], tensor), name
    record = json.loads((tmp_path / "run/model/model.json").read_text())["provenance"]["first_weights"]
    assert record["left"] == ["head.weight", "head.bias"]
    masks = f"predict -m {tmp_path}/run -i {prepared} --split test -o {tmp_path}/masks --runtime torch"
    assert main(masks.split()) == 0


def test_where_weights_come_from_is_said(prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(f"train {prepared} -o {tmp_path}/run --model dinov3-l".split()) == 2
    assert "huggingface.co/facebook/dinov3-vitl16" in capsys.readouterr().err
    with pytest.raises(ModelError, match=r"is no file of weights .* get it from huggingface"):
        read_weights(tmp_path / "nothing")
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="holds no weights of DINOv3"):
        read_weights(tmp_path)
