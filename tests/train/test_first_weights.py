"""Fine-tuning: weights come from a model wherever they fit, and what it has learnt from stays known."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from support.tiny_training import plan_of, write_prepared
from veloxseg.dataset.seen import Learning, LearntCase, look_up
from veloxseg.errors import ModelError
from veloxseg.model_folder import ModelFolder
from veloxseg.train.loop import train


@pytest.fixture(scope="module")
def first(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.tiny_training import TINY
    from veloxseg.model.config import PRESETS

    PRESETS["tiny"] = TINY
    folder = tmp_path_factory.mktemp("first") / "run"
    train(prepared, folder, {"model": "tiny", "batch": 2, "epochs": 1, "steps_per_epoch": 2, "learning_rate": 1e-2})
    return folder


# no step of this rate moves a weight by more than a rounding error
STILL = {"learning_rate": 1e-12, "final_learning_rate": 1e-12, "weight_decay": 0.0, "steps_per_epoch": 1, "epochs": 1}


def test_weights_and_cases_of_the_first_model_travel_on(
    first: Path, tmp_path: Path, quick: dict[str, Any], capsys: Any
) -> None:
    data = write_prepared(tmp_path / "new", plan_of(), {"x": "train", "y": "validation"})
    train(data, tmp_path / "run", quick | STILL | {"init": str(first)})
    assert "tensors fit" in capsys.readouterr().out
    before, after = (load_file(ModelFolder.open(run).weights) for run in (first, tmp_path / "run"))
    assert all(torch.allclose(after[name], before[name], atol=1e-6) for name in before)
    model = ModelFolder.open(tmp_path / "run")
    assert model.learning is not None
    assert {case.name for case in model.learning.train} == {"x", "a", "b"}
    assert {case.name for case in model.learning.validation} == {"y", "c"}
    found = model.provenance["first_weights"]
    assert found["weights_sha256"] == ModelFolder.open(first).provenance["weights_sha256"]
    assert found["left"] == []
    assert str(first) not in json.dumps(model.provenance)  # a path may name a person
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["settings"]["init"] == str(first)


def test_what_does_not_fit_is_listed_and_starts_at_random(
    first: Path, tmp_path: Path, quick: dict[str, Any], capsys: Any
) -> None:
    plan = plan_of(labels={"background": 0, "lesion": 1, "node": 2})
    data = write_prepared(tmp_path / "new", plan, {"x": "train"})
    train(data, tmp_path / "run", quick | STILL | {"init": str(first)})
    assert "start at random, as their sizes or names differ: " in capsys.readouterr().err
    left = ModelFolder.open(tmp_path / "run").provenance["first_weights"]["left"]
    before, after = (load_file(ModelFolder.open(run).weights) for run in (first, tmp_path / "run"))
    assert left
    assert all(before[name].shape != after[name].shape for name in left)
    kept = [name for name in after if name not in left and after[name].is_floating_point()]
    assert all(torch.allclose(after[name], before[name], atol=1e-6) for name in kept)
    with pytest.raises(ModelError, match=r"no weight of .* fits slim-unetr"):
        train(data, tmp_path / "peer", {"model": "slim-unetr", "init": str(first)})
    assert not (tmp_path / "peer").exists()


def test_going_on_needs_the_first_model_no_more(
    prepared: Path, first: Path, tmp_path: Path, quick: dict[str, Any]
) -> None:
    import shutil

    shutil.copytree(first, tmp_path / "first")
    settings = quick | STILL | {"init": str(tmp_path / "first")}
    train(prepared, tmp_path / "run", settings)
    shutil.rmtree(tmp_path / "first")
    train(prepared, tmp_path / "run", {"epochs": 2}, resume=True)
    assert "first_weights" in ModelFolder.open(tmp_path / "run").provenance


def test_cases_of_an_unknown_past_are_not_called_unseen() -> None:
    own = Learning(train=(LearntCase(name="x", scans={"ct": "1"}),))
    after = own.after(None)
    assert look_up("x", ["1"], [after]).status == "trained on"
    assert look_up("z", ["9"], [after]).status == "unknown"
    assert look_up("z", ["9"], [own.after(own)]).status == "unseen"
    assert after.to_json()["complete"] is False
    assert "complete" not in own.to_json()
