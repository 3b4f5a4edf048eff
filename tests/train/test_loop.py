"""Trainings of seconds: they learn, keep the best, and say what happened."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from support.tiny_training import plan_of, write_prepared
from veloxseg.cli import main
from veloxseg.errors import ConfigError, ModelError
from veloxseg.model.losses import LOSSES, Target
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.prepare.store import Prepared
from veloxseg.train import loop
from veloxseg.train.loop import train
from veloxseg.train.validation import validate_case


def rows_of(run: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((run / "progress.csv").read_text().splitlines()))


def test_one_case_is_overfitted(tmp_path: Path, quick: dict[str, Any]) -> None:
    data = write_prepared(tmp_path / "one", plan_of(), {"a": "train"}, lesions=1)
    settings = {
        "epochs": 60,
        "validate_every": 60,
        "dropout": 0.0,
        "learning_rate": 1e-2,
        "augmentation": "none",
        "warmup_epochs": 3,
    }
    state = train(data, tmp_path / "run", quick | settings)
    assert state.best is not None
    assert state.best.dice is None  # nothing to validate on: the last epoch is the model
    assert state.best.epoch == 60
    prepared = Prepared.open(data)
    network = load_network(ModelFolder.open(tmp_path / "run"))
    assert validate_case(network, prepared, "a", prepared.plan, overlap=0.5)["lesion"] > 0.95


@pytest.fixture(scope="module")
def run(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished training, by the command line."""
    from support.tiny_training import TINY
    from veloxseg.model.config import PRESETS

    folder = tmp_path_factory.mktemp("runs") / "run"
    PRESETS["tiny"] = TINY
    torch.set_num_threads(1)
    options = ["--model", "tiny", "--epochs", "3", "--set", "batch=2", "--set", "validate_every=2", "--set", "ema=0.5"]
    assert main(["train", str(prepared), "-o", str(folder), *options, "--set", "modality_dropout=0.3"]) == 0
    return folder


def test_the_run_folder_tells_all(run: Path) -> None:
    settings = json.loads((run / "settings.json").read_text())["settings"]
    assert (settings["epochs"], settings["batch"], settings["weight_decay"]) == (3, 2, 0.01)
    record = json.loads((run / "run.json").read_text())
    assert record["finished"]
    assert record["torch"] == torch.__version__
    assert len(record["data_sha256"]) == 64
    rows = rows_of(run)
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [bool(row["validation_dice"]) for row in rows] == [False, True, True]
    assert (run / "progress.png").read_bytes().startswith(b"\x89PNG")
    assert list((run / "tensorboard").glob("events*"))
    assert not list(run.rglob("*.pt*"))


def test_the_model_is_the_student_alone(run: Path) -> None:
    folder = ModelFolder.open(run)
    weights = load_file(folder.weights)
    assert not any("teacher" in name for name in weights)
    assert load_network(folder).state_dict().keys() == weights.keys()
    assert set(folder.provenance["missing_modalities"]) == {"ct", "pet", "ct+pet"}
    assert folder.plan.names == ("ct", "pet")


def test_the_model_is_the_moving_average_that_was_validated(run: Path, prepared: Path) -> None:
    data, folder = Prepared.open(prepared), ModelFolder.open(run)
    score = validate_case(load_network(folder), data, "c", data.plan, overlap=0.5)["lesion"]
    assert score == pytest.approx(folder.provenance["validation"]["dice"])
    blind = validate_case(load_network(folder), data, "c", data.plan, overlap=0.5, available=("pet",))["lesion"]
    assert blind == pytest.approx(folder.provenance["missing_modalities"]["pet"])


def test_two_newest_and_the_best_checkpoint_are_kept(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = iter([0.2, 0.9, 0.3, 0.9, 0.4])
    monkeypatch.setattr(loop, "validate", lambda *_: [{"lesion": next(dice)}])
    state = train(prepared, tmp_path / "run", quick | {"epochs": 5, "steps_per_epoch": 1})
    assert state.best is not None
    assert state.best.epoch == 2
    names = sorted(path.stem for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert [int(name) for name in names] == [2, 4, 5]
    assert ModelFolder.open(tmp_path / "run").provenance["epochs"] == 2
    monkeypatch.setattr(loop, "validate", lambda *_: [{"lesion": 0.1}])
    last = train(prepared, tmp_path / "last", quick | {"select": "last", "steps_per_epoch": 1})
    assert last.best is not None
    assert last.best.epoch == 2


def test_a_loss_that_is_not_finite_changes_nothing_and_ends_the_training(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from veloxseg.train.objective import TaughtObjective

    calls, forward = 0, TaughtObjective.forward

    def sometimes_nan(self: Any, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        terms = forward(self, image, label)
        return terms * float("nan") if calls == 2 or calls > 4 else terms

    monkeypatch.setattr(TaughtObjective, "forward", sometimes_nan)
    with pytest.raises(ModelError, match="not finite in 3 steps in a row"):
        train(prepared, tmp_path / "run", quick | {"epochs": 9, "bad_steps": 3})
    assert calls == 7
    tensors = load_file(max((tmp_path / "run" / "checkpoints").glob("*.safetensors")))
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
    assert all(torch.isfinite(t).all() for t in load_file(tmp_path / "run/model/model.safetensors").values())
    rows = rows_of(tmp_path / "run")
    assert [bool(row["total"]) for row in rows] == [True, True, False]
    assert all(np.isfinite(float(row["total"])) for row in rows[:2])


def test_validating_does_not_touch_training(prepared: Path, tmp_path: Path, quick: dict[str, Any]) -> None:
    for every in (1, 3):
        train(prepared, tmp_path / str(every), quick | {"epochs": 3, "validate_every": every})
    first, second = (load_file(tmp_path / every / "checkpoints/000000006.safetensors") for every in ("1", "3"))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_peer_trains_by_the_same_loop(prepared: Path, tmp_path: Path, quick: dict[str, Any]) -> None:
    settings = quick | {"model": "slim-unetr", "epochs": 1, "steps_per_epoch": 1}
    data = write_prepared(tmp_path / "data", plan_of(patch=(64, 64, 64)), {"a": "train", "b": "validation"})
    state = train(data, tmp_path / "run", settings)
    assert state.finished
    folder = ModelFolder.open(tmp_path / "run")
    assert folder.architecture == "slim-unetr"
    load_network(folder)


@pytest.mark.parametrize("teachers", [True, False])
def test_a_loss_is_one_function_and_one_line(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch, teachers: bool
) -> None:
    def toy(logits: torch.Tensor, label: torch.Tensor, target: Target) -> tuple[torch.Tensor, torch.Tensor]:
        error = (logits.softmax(1)[:, 1] - label).square().mean()
        return error, torch.zeros_like(error)

    monkeypatch.setitem(LOSSES, "toy", toy)
    state = train(prepared, tmp_path / "run", quick | {"loss": "toy", "teachers": teachers})
    assert state.finished
    assert all(0 < row["cross_entropy"] < 1 for row in state.history)
    assert all(row["dice"] == 0 for row in state.history)
    assert train(prepared, tmp_path / "run", {"loss": "toy"}, resume=True).finished
    with pytest.raises(ConfigError, match="loss"):
        train(prepared, tmp_path / "run", {"loss": "ce_dice"}, resume=True)


def test_settings_of_a_run_before_there_was_a_choice_of_losses(
    prepared: Path, tmp_path: Path, quick: dict[str, Any]
) -> None:
    train(prepared, tmp_path / "run", quick | {"epochs": 1})
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert settings["settings"].pop("loss") == "ce_dice"
    (tmp_path / "run" / "settings.json").write_text(json.dumps(settings))
    assert train(prepared, tmp_path / "run", resume=True).finished


def test_more_threads_than_cores(prepared: Path, tmp_path: Path, quick: dict[str, Any]) -> None:
    assert train(prepared, tmp_path / "run", quick | {"epochs": 1, "steps_per_epoch": 1, "threads": 64}).finished


def test_one_modality_and_early_fusion_give_models_that_load(
    prepared: Path, tmp_path: Path, quick: dict[str, Any]
) -> None:
    quick |= {"epochs": 1, "steps_per_epoch": 1}
    train(prepared, tmp_path / "pet", quick | {"modalities": ("pet",)})
    folder = ModelFolder.open(tmp_path / "pet")
    assert (folder.plan.names, folder.network["in_channels"]) == (("pet",), [1])
    train(prepared, tmp_path / "early", quick | {"fusion": "early"})
    assert ModelFolder.open(tmp_path / "early").network["in_channels"] == [2]


def test_a_timed_training_keeps_its_time(prepared: Path, tmp_path: Path, quick: dict[str, Any]) -> None:
    state = train(prepared, tmp_path / "run", quick | {"max_minutes": 0.15, "overlap": 0})
    assert state.finished
    assert state.seconds < 15  # 9 and what a busy machine adds
    assert state.history[-1]["learning_rate"] < max(row["learning_rate"] for row in state.history)
    assert state.history[-1]["validation_dice"] is not None  # the last epoch counts, however the plan has changed


def test_bf16_is_refused_on_a_cpu(prepared: Path, tmp_path: Path, quick: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"for GPUs.*32-true"):
        train(prepared, tmp_path / "run", quick | {"precision": "bf16-mixed"}, accelerator="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "nonsense"], "unknown model 'nonsense'"),
        (["--fold", "9"], "fold 9 does not exist"),
        (["--set", "rate=1"], "unknown setting 'rate'"),
        (["--set", "modalities=mr"], "this data set has ct, pet"),
        (["--devices", "many"], "try --accelerator auto"),
        (["--devices", "²"], "try --accelerator auto"),
        (["--devices", "9" * 5000], "try --accelerator auto"),
        (["--set", "loss=hinge"], "ce_dice"),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_leaves_nothing(
    prepared: Path, tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(prepared), "-o", str(tmp_path / "run"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_strange_number_of_processes_is_one_line(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "many")
    with pytest.raises(ConfigError, match="WORLD_SIZE is 'many'"):
        train(prepared, tmp_path / "run", quick)


def test_processes_that_do_not_know_of_each_other_are_refused(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ConfigError, match="4 processes were started"):
        train(prepared, tmp_path / "run", quick)
    assert not (tmp_path / "run").exists()
