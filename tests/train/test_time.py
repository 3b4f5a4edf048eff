"""A training of so many minutes ends in so many minutes, however slow its steps and its validation are."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veloxseg.model_folder import ModelFolder
from veloxseg.predict.sliding import count_windows
from veloxseg.train import loop, validation
from veloxseg.train.loop import train

START = 1000.0


class Clock:
    """A clock that only slow things move: steps by `step` seconds, windows of a validation by `window`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: float, window: float) -> None:
        self.now = START
        self.steps = 0

        def slow_step(trainer: Any, batch: Any) -> float:
            self.now += step
            self.steps += 1
            state = trainer.state
            state.step, state.steps, state.counted = state.step + 1, state.steps + 1, state.counted + 1
            state.sums = [total + 0.5 for total in state.sums]
            return 0.5

        def slow_labels(image: Any, runtime: Any, plan: Any, *, overlap: float, progress: Any = None) -> Any:
            self.now += window * count_windows(image.shape[1:], plan.patch, overlap)
            return np.zeros(image.shape[1:], np.uint8)

        monkeypatch.setattr(loop, "train_step", slow_step)
        monkeypatch.setattr(validation, "predict_labels", slow_labels)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def timed(quick: dict[str, Any]) -> dict[str, Any]:
    return quick | {"max_minutes": 3.0, "teachers": False, "steps_per_epoch": 1000}


def test_the_last_validation_is_foreseen_before_it_was_ever_measured(
    prepared: Path, tmp_path: Path, timed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    clock = Clock(monkeypatch, step=10.0, window=4.0)  # the case has 8 windows
    state = train(prepared, tmp_path / "run", timed)
    assert state.finished
    assert 150 <= clock.now - START <= 180
    assert clock.steps >= 12
    assert state.history[-1]["validation_dice"] is not None
    said = capsys.readouterr()
    assert "a step takes 10 s, so about 12 fit" in said.out
    assert "give more minutes, a lighter --model" in said.err


def test_a_validation_that_takes_most_of_the_time_leaves_out_cases(
    prepared: Path, tmp_path: Path, timed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    clock = Clock(monkeypatch, step=1.0, window=12.0)
    state = train(prepared, tmp_path / "run", timed)
    assert clock.now - START <= 180
    assert clock.steps > 100
    assert "validating all 1 cases would take about 2 min 00 s of the 3 min 00 s, so 0 are validated" in (
        capsys.readouterr().err
    )
    assert state.best is not None
    assert state.best.dice is None
    assert ModelFolder.open(tmp_path / "run").provenance["validation"]["cases"] == 0


def test_validations_with_modalities_missing_belong_to_the_time(
    prepared: Path, tmp_path: Path, timed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, step=1.0, window=1.0)
    state = train(prepared, tmp_path / "run", timed | {"modality_dropout": 0.3})
    assert clock.now - START <= 180
    assert state.history[-1]["validation_dice"] is not None
    assert len(ModelFolder.open(tmp_path / "run").provenance["missing_modalities"]) == 3


def test_enough_steps_are_no_warning(
    prepared: Path, tmp_path: Path, timed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    Clock(monkeypatch, step=1.0, window=0.1)
    train(prepared, tmp_path / "run", timed)
    said = capsys.readouterr()
    assert "a step takes 1 s, so about 17" in said.out
    assert not said.err


def test_a_log_is_not_silent_within_an_epoch(
    prepared: Path, tmp_path: Path, timed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    Clock(monkeypatch, step=10.0, window=0.1)
    train(prepared, tmp_path / "run", timed)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch 1, step")]
    assert 4 <= len(lines) <= 6  # 17 steps of 10 s, a line every 30 s
