"""What a person sees."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from veloxseg.errors import OutputError
from veloxseg.train import display as display_module
from veloxseg.train.display import Display, draw_curves, duration, write_csv
from veloxseg.train.recipe import Recipe
from veloxseg.train.schedule import Pace


def history(epochs: int) -> list[dict[str, Any]]:
    return [
        {
            "epoch": epoch,
            "learning_rate": 1e-3,
            "total": None if epoch == 2 else 2.0 / epoch,
            "cross_entropy": 1.0 / epoch,
            "dice": 1.0 / epoch,
            "reconstruction": 0.0,
            "transfer": 0.0,
            "validation_dice": 0.1 * epoch if epoch % 2 else None,
            "seconds": 1.5,
            **({"dice:lesion": 0.1 * epoch, "dice:organ": None} if epoch % 2 else {}),
        }
        for epoch in range(1, epochs + 1)
    ]


def test_plain_lines_without_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Display(tmp_path) as display:
        for epochs in (1, 2, 3):
            display.epoch(history(epochs), 9, 75)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "epoch 3" in lines[2]
    assert "val. Dice 0.3000" in lines[2]
    assert "1 min 15 s left" in lines[2]
    assert "\x1b" not in "".join(lines)
    assert (tmp_path / "progress.csv").read_text().count("\n") == 4


def test_lines_within_an_epoch_come_now_and_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with Display(tmp_path) as display:
        for step in range(1, 8):
            now += 10
            display.step(1, Pace(Recipe(), 7), step, 0.5, 12.0)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[1] for line in lines] == [" step 3 of 7", " step 6 of 7"]


def test_terms_of_teachers_are_shown_where_there_are_teachers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Display(tmp_path) as display:
        display.epoch(history(1), 9, 75)
        display.epoch([history(1)[0] | {"reconstruction": 0.25, "transfer": 0.5}], 9, 75)
    without, taught = capsys.readouterr().out.splitlines()
    assert "reconstr." not in without
    assert "transfer" not in without
    assert "reconstr. 0.2500, transfer 0.50000" in taught


def test_a_full_disk_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OutputError("cannot write progress.csv: No space left on device")

    monkeypatch.setattr(display_module, "write_csv", full)
    monkeypatch.setattr(display_module, "draw_curves", full)
    with Display(tmp_path) as display:
        display.epoch(history(1), 9, 75)
        display.draw(history(1))
    assert capsys.readouterr().err.count("No space left on device; training goes on") == 2


def test_a_live_table_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    with Display(tmp_path) as display:
        display.epoch(history(4), 9, 60)
        display.step(5, Pace(Recipe(), 7), 3, 0.5, 12.0)
    shown = capsys.readouterr().out
    assert "val. Dice" in shown
    assert "step 3 of 7" in shown


def test_only_the_first_of_several_processes_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Display(tmp_path, active=False) as display:
        display.epoch(history(2), 9, 60)
        display.draw(history(2))
    assert not list(tmp_path.iterdir())
    assert not capsys.readouterr().out


def test_csv_has_columns_that_come_late(tmp_path: Path) -> None:
    rows = [{"epoch": 1, "total": 1.0}, {"epoch": 2, "total": 0.5, "dice:lesion": 0.25}]
    write_csv(rows, tmp_path / "progress.csv")
    assert (tmp_path / "progress.csv").read_text().splitlines() == ["epoch,total,dice:lesion", "1,1.0,", "2,0.5,0.25"]


def test_curves_are_drawn_of_any_history(tmp_path: Path) -> None:
    for epochs in (1, 6):
        draw_curves(history(epochs), tmp_path / "progress.png")
        assert (tmp_path / "progress.png").stat().st_size > 5000


@pytest.mark.parametrize(("seconds", "text"), [(5.2, "5 s"), (75, "1 min 15 s"), (3725, "1 h 02 min"), (-3, "0 s")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
