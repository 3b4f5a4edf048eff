"""What a training of minutes is, chosen from minutes, cases and plan; what the user sets stays."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.tiny_training import plan_of
from veloxseg.console import set_quiet
from veloxseg.prepare.store import Prepared
from veloxseg.train.choose import choose, choose_for
from veloxseg.train.loop import train
from veloxseg.train.recipe import SHORT


def chosen(minutes: float, cases: int, windows: float = 1, **settings: Any) -> dict[str, Any]:
    return choose({"max_minutes": minutes, "threads": 1, **settings}, plan_of(), cases, windows).settings


def test_without_minutes_nothing_is_chosen(prepared: Path) -> None:
    choice = choose_for({"epochs": 3}, Prepared.open(prepared))
    assert choice.settings == {"epochs": 3}
    assert not choice.why


def test_what_was_set_stays() -> None:
    settings = chosen(600, 10, teachers=True, augmentation="none", mirror=False)
    assert settings["teachers"]
    assert settings["augmentation"] == "none"
    assert not settings["mirror"]
    assert settings["learning_rate"] == SHORT["learning_rate"]


def test_cases_seen_often_are_changed_each_time() -> None:
    often, rarely = chosen(600, 10), chosen(0.1, 1000)
    assert often["augmentation"] == "zoom"
    assert "augmentation" not in rarely


def test_only_what_was_mirrored_in_training_is_mirrored_in_prediction() -> None:
    assert chosen(600, 10)["mirror"]
    assert "mirror" not in chosen(0.1, 1000)  # the paper flips one axis alone
    assert "mirror" not in chosen(600, 10, augmentation="paper")
    assert "mirror" not in chosen(600, 10, windows=100)  # it would take minutes per case
    assert chosen(0.1, 1000, augmentation="strong")["mirror"]


def test_the_choice_and_its_reasons_are_kept(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    set_quiet(False)
    train(prepared, tmp_path / "run", quick | {"max_minutes": 0.05, "augmentation": "zoom"})
    stored = json.loads((tmp_path / "run/settings.json").read_text())
    assert any("times in 0.05 minutes" in reason for reason in stored["why"])
    assert "chosen by veloxseg: each of 2 cases" in capsys.readouterr().out
    assert stored["settings"]["teachers"] is False
    assert json.loads((tmp_path / "run/model/model.json").read_text())["plan"]["mirror"] is True


def test_an_epoch_is_whole_passes_of_at_least_25_steps() -> None:
    assert chosen(5, 10)["steps_per_epoch"] == 25
    assert chosen(5, 28)["steps_per_epoch"] == 28
    assert chosen(5, 208)["steps_per_epoch"] == 104
    assert chosen(5, 10, steps_per_epoch=7)["steps_per_epoch"] == 7
