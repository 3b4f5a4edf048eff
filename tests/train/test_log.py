"""RUN/train.log: what was said, with times, over all sessions, whatever the screen was told."""

import re
from pathlib import Path
from typing import Any

import pytest

from veloxseg import console
from veloxseg.console import logged, say, set_quiet, warn
from veloxseg.errors import ModelError
from veloxseg.train.display import Display
from veloxseg.train.loop import train

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .+")


def test_a_training_leaves_a_log_that_goes_on(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    set_quiet(True)
    try:
        train(prepared, tmp_path / "run", quick | {"epochs": 1})
    finally:
        set_quiet(False)
    assert capsys.readouterr().out == ""
    log = tmp_path / "run" / "train.log"
    first = log.read_text()
    assert all(LINE.fullmatch(line) for line in first.splitlines())
    assert "hint: 2 training cases" in first
    assert re.search(r" epoch 1, .*loss [\d.]+", first)
    assert "model in" in first
    train(prepared, tmp_path / "run", {"epochs": 2}, resume=True)
    assert log.read_text().startswith(first)
    assert "extended from 1 to 2 epochs" in log.read_text()


def test_epochs_are_logged_on_a_terminal_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    row = {"epoch": 1, "learning_rate": 1e-3, "total": 0.5, "seconds": 1.0}
    with logged(tmp_path / "train.log"), Display(tmp_path) as display:
        assert display._live is not None
        monkeypatch.setattr("veloxseg.train.display.QUIET_SECONDS", 0.0)
        display.note("validation, case 1 of 2")
        monkeypatch.setattr("veloxseg.train.display.QUIET_SECONDS", 1e9)
        display.epoch([row], 3, 60.0)
    text = (tmp_path / "train.log").read_text()
    assert "validation, case 1 of 2" in text
    assert "epoch 1, rate 1.0e-03, loss 0.5000" in text


def test_how_it_ended_is_logged_and_a_full_disk_is_not_worth_the_work(tmp_path: Path, capsys: Any) -> None:
    def work() -> None:
        with logged(tmp_path / "log"):
            warn("careful")
            raise ModelError("the loss was not finite")

    with pytest.raises(ModelError):
        work()
    text = (tmp_path / "log").read_text()
    assert "warning: careful" in text
    assert "ended by ModelError: the loss was not finite" in text
    assert console._logs == []
    with logged(tmp_path / "nowhere" / "log"):
        say("on")
    assert "the work goes on without it" in capsys.readouterr().err
