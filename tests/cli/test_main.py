"""The command line's manners: help, exit codes, one line per error."""

import argparse
import json
from pathlib import Path

import pytest

from veloxseg.cli import VERBS, info, main
from veloxseg.errors import VeloxSegError
from veloxseg.extras import EXTRAS
from veloxseg.runtimes import RUNTIMES


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "-h"])
    assert stop.value.code == 0
    assert f"usage: veloxseg {verb}" in capsys.readouterr().out


def test_usage_errors_exit_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-verb"]) == 2
    assert main(["check", "data", "--no-such-option"]) == 2
    assert capsys.readouterr().err.count("\n") == 2


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (VeloxSegError("the scan is empty; give another"), 2, "error: the scan is empty; give another\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
        (ZeroDivisionError("oops"), 1, "internal error: ZeroDivisionError: oops (--debug shows where)\n"),
    ],
)
def test_exit_codes(
    raised: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(arguments: object) -> None:
        raise raised

    monkeypatch.setattr(info, "run", run)
    assert main(["info"]) == code
    assert capsys.readouterr().err == line


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(arguments: object) -> None:
        raise VeloxSegError("the scan is empty")

    monkeypatch.setattr(info, "run", run)
    with pytest.raises(VeloxSegError):
        main(["info", "--debug"])


def test_info_prints_both_counts_and_why_they_differ(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    assert "1.6696 M" in text
    assert "1.752 G" in text
    assert "1.79 G" in text
    assert "transposed convolutions" in text


def test_info_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    known = json.loads(capsys.readouterr().out)
    assert known["extras"].keys() == EXTRAS.keys()
    assert known["runtimes"].keys() == RUNTIMES.keys()
    rows = {row["preset"]: row for row in known["presets"]}
    assert rows["b"]["parameters"] == 1_669_639
    assert rows["c"]["input"] == [4, 96, 96, 96]


def test_info_on_nothing_known(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "neither a model" in captured.err


def test_two_dashes_are_no_value(capsys):
    assert main(["check", "x", "--workers=--"]) == 2
    assert "--workers: '--' is no value" in capsys.readouterr().err


def test_a_path_that_no_file_can_have_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "x" * 5000]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "File name too long" in line
    assert len(line) < 500


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("predict --modell x -i y -o z", "unknown option --modell (did you mean --model?)"),
        ("train --epochss=3 x -o y", "unknown option --epochss (did you mean --epochs?)"),
        ("predct -m x", "'predct' is unknown (did you mean predict?)"),
        ("predict -m x -i y -o z --runtime natve", "'natve' is unknown (did you mean native?)"),
        ("predict -m nope -i y -o z", "nope does not exist"),
    ],
)
def test_a_misspelt_word_is_answered_by_the_closest(
    words: str, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    assert told in capsys.readouterr().err


def test_an_option_may_still_be_cut_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(tmp_path), "-o", str(tmp_path / "run"), "--epoch", "3"]) == 2
    assert "not a prepared data set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "package", "remedy"),
    [
        ("torch", "torch", "'veloxseg[train]'"),
        ("lightning_fabric", "lightning-fabric", "'veloxseg[train]'"),
        ("SimpleITK", "SimpleITK", "'veloxseg[itk]'"),
        ("PIL", "Pillow", "Pillow"),
        ("matplotlib", "matplotlib", "matplotlib"),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    module: str, package: str, remedy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(arguments: argparse.Namespace) -> None:
        raise ModuleNotFoundError(f"No module named '{module}.nn'", name=f"{module}.nn")

    monkeypatch.setattr("veloxseg.cli.info.run", run)
    assert main(["info"]) == 2
    told = f"error: veloxseg info needs {package}, which is not installed; pip install {remedy}\n"
    assert capsys.readouterr().err == told


def test_a_command_that_fails_leaves_no_empty_folder(tmp_path: Path) -> None:
    assert main(["evaluate", "-p", str(tmp_path / "a"), "-l", str(tmp_path / "b"), "-o", str(tmp_path / "x/y")]) == 2
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").mkdir()  # one that was there before stays
    assert main(["evaluate", "-p", str(tmp_path / "a"), "-l", str(tmp_path / "b"), "-o", str(tmp_path / "kept")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
