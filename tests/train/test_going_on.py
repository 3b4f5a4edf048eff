"""A training that is over, or was stopped, goes on for longer, and says how its schedule changes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from veloxseg.cli import main
from veloxseg.errors import ConfigError
from veloxseg.train import loop
from veloxseg.train.loop import train


def newest(run: Path) -> dict[str, torch.Tensor]:
    return load_file(max((run / "checkpoints").glob("*.safetensors")))


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_finished_run_goes_on_for_more_epochs(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], capsys: Any
) -> None:
    run = tmp_path / "run"
    train(prepared, run, quick | {"epochs": 1})
    state = train(prepared, run, {"epochs": 3}, resume=True)
    assert (state.finished, state.epoch, state.steps) == (True, 3, 6)
    said = capsys.readouterr().out
    assert "extended from 1 to 3 epochs in all; the schedule is planned anew" in said
    stored = json.loads((run / "settings.json").read_text())
    assert stored["settings"]["epochs"] == 3
    assert stored["extended"] == [{"setting": "epochs", "before": 1.0, "after": 3.0, "steps": 2}]
    rates = [row["learning_rate"] for row in state.history]
    assert rates[0] == pytest.approx(6e-6, rel=0.01)  # the end of the schedule of one epoch
    assert rates[1] > 10 * rates[0]  # two thirds of a schedule of three
    assert rates[2] == pytest.approx(6e-6, rel=0.01)
    assert train(prepared, run, resume=True).epoch == 3  # and a finished run stays finished


def test_a_kill_after_the_change_loses_nothing_to_the_bit(
    prepared: Path, tmp_path: Path, quick: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("whole", "killed"):
        train(prepared, tmp_path / name, quick | {"epochs": 1})
    train(prepared, tmp_path / "whole", {"epochs": 2}, resume=True)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loop, "run_epochs", killed)
        with pytest.raises(KeyboardInterrupt):
            train(prepared, tmp_path / "killed", {"epochs": 2}, resume=True)
    assert train(prepared, tmp_path / "killed", resume=True).epoch == 2
    assert same(newest(tmp_path / "killed"), newest(tmp_path / "whole"))


def test_minutes_are_extended_by_the_command_line(prepared: Path, tmp_path: Path, capsys: Any) -> None:
    """`--max-minutes` brings defaults of a short training; what was chosen otherwise at the start stays."""
    options = ["train", str(prepared), "-o", str(tmp_path / "run"), "--continue"]
    first = ["--model", "tiny", "--set", "batch=4", "--set", "steps_per_epoch=1"]
    assert main([*options, *first, "--max-minutes", "0.001"]) == 0
    before = json.loads((tmp_path / "run" / "run.json").read_text())
    capsys.readouterr()
    assert main([*options, "--max-minutes", str(round(before["seconds"] / 60 + 0.02, 4))]) == 0
    assert re.search(r"extended from 0\.001 to 0\.\d+ minutes in all", capsys.readouterr().out)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["finished"]
    assert record["steps"] > before["steps"]
    assert json.loads((tmp_path / "run" / "settings.json").read_text())["settings"]["batch"] == 4


def test_what_cannot_be_extended_is_said(prepared: Path, tmp_path: Path, quick: dict[str, Any]) -> None:
    run = tmp_path / "run"
    train(prepared, run, quick | {"steps_per_epoch": 1})
    before = (run / "settings.json").read_bytes()
    with pytest.raises(ConfigError, match="2 epochs are done already, 1 epochs in all were asked for"):
        train(prepared, run, {"epochs": 1}, resume=True)
    with pytest.raises(ConfigError, match=r"planned by epochs \(2\); give its new length by --epochs"):
        train(prepared, run, {"max_minutes": 5.0}, resume=True)
    assert (run / "settings.json").read_bytes() == before
