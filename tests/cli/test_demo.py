"""The demo runs the commands that it prints, and touches nothing that is not its own."""

import shlex
from pathlib import Path

import pytest

from veloxseg.cli import build_parser, main
from veloxseg.cli.demo import Step, demo_steps, run_demo
from veloxseg.errors import OutputError

TINY = ("--cases", "1", "--size", "16", "16", "16")


def test_every_step_is_a_command_of_the_program(tmp_path: Path) -> None:
    verbs = []
    for step in demo_steps(tmp_path):
        arguments = build_parser().parse_args(step.command)
        verbs.append(arguments.verb)
    assert verbs == ["phantom", "check", "prepare", "train", "predict", "evaluate"]


def test_commands_are_printed_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "with space" / "data"
    steps = [Step(does="Make data", command=("phantom", str(data), *TINY))]
    for _ in range(2):  # the second time, what the first left is made anew
        assert run_demo(data.parent, steps) == 0
        output = capsys.readouterr().out
        assert f"$ veloxseg phantom '{data}' --cases 1" in output
        assert "report.html" in output
        *_, last = output.strip().splitlines()
        assert build_parser().parse_args(shlex.split(last)[2:]).verb == "serve"  # it opens the viewer
        assert (data / "dataset.json").is_file()


def test_stops_at_the_first_step_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = [
        Step(does="Fail", command=("check", str(tmp_path / "nothing"))),
        Step(does="Never", command=("phantom", str(tmp_path / "data"), *TINY)),
    ]
    assert run_demo(tmp_path, steps) == 2
    assert not (tmp_path / "data").exists()
    assert "Never" not in capsys.readouterr().out


def test_leaves_other_peoples_folders_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious.txt").write_text("mine")
    with pytest.raises(OutputError, match="not empty"):
        run_demo(tmp_path, [])
    assert main(["demo", "-o", str(tmp_path)]) == 2
    assert (tmp_path / "data" / "precious.txt").read_text() == "mine"
