"""The tables on a terminal and elsewhere hold the same words, and names are never markup."""

import re
import sys
from pathlib import Path

import pytest

from veloxseg.cli import main
from veloxseg.evaluate import evaluate_folder
from veloxseg.evaluate.terminal import print_policy, print_tables


def test_terminal_and_plain_agree(
    dataset: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [dataset / "good", dataset / "bad"]
    found = evaluate_folder(folders, dataset / "labels", names=["[red]new", "old"])
    print_tables(found)
    plain = capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "100")
    print_tables(found)
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert plain.split() == drawn.split()
    assert "[red]new" in plain
    assert re.search(r"\[red\]new\s+6\s", plain)  # the cases that the mean rests on


def test_policy_is_printed(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    print_policy(evaluate_folder(dataset / "bad", dataset / "labels"))
    shown = capsys.readouterr().out
    assert "of 7 cases, 1 false alarm, 1 no prediction" in shown
    assert "Dice 0 and HD95 = diagonal" in shown
    assert "tolerance of NSD 2 mm" in shown


def test_every_method_of_three_is_named_with_its_interval(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [dataset / "good", dataset / "bad", dataset / "labels"]
    print_tables(evaluate_folder(folders, dataset / "labels", names=["one", "two", "three"]))
    shown = capsys.readouterr().out
    for second in ("two", "three"):
        pattern = rf"^lesion +Dice +{second} − one +[+-]0\.\d{{3}} +[+-]0\.\d{{3}} to [+-]0\.\d{{3}} +\d"
        assert re.search(pattern, shown, re.MULTILINE), shown
    primary, secondary = shown.split("secondary metrics, p not corrected")
    assert "HD95 (mm)" not in primary
    assert "Dice" not in secondary
    assert "HD95 (mm)" in secondary


def test_three_methods_are_named(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [word for name in ("good", "bad", "labels") for word in ("-p", str(dataset / name))]
    assert main(["evaluate", *folders, "-l", str(dataset / "labels"), "-o", str(dataset / "report")]) == 0
    out = capsys.readouterr().out
    assert "3 methods: each of bad, labels is compared with good" in out
    for pair in ("bad − good", "labels − good"):
        assert pair in out
