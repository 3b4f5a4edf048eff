"""The demo runs the commands that it prints, and touches nothing that is not its own."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.models import *  # noqa: F403
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


def test_the_last_line_opens_the_first_unseen_case(tmp_path: Path, capsys: pytest.CaptureFixture[str], model) -> None:
    """After a small demo the line that it prints is typed as it stands, and its case is shown when it is done."""
    pytest.importorskip("starlette", reason="needs the extra serve; `make test-serve` has it")
    from veloxseg.serve import Client

    folder = tmp_path / "a demo"
    small = ("--cases", "1", "--test-cases", "1", "--size", "48", "40", "32")
    assert run_demo(folder, [Step(does="Make data", command=("phantom", str(folder / "data"), *small))]) == 0
    *_, last = capsys.readouterr().out.strip().splitlines()
    shutil.copytree(model, folder / "run" / "model")
    words = shlex.split(last.replace("$ veloxseg", "veloxseg"))
    server = subprocess.Popen(
        [sys.executable, "-m", *words, "--port", "0", "--min-free", "0", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        client = Client(next(line.strip() for line in server.stdout if line.startswith("http")))
        (case,) = client.cases()
        assert client.wait(case["id"], 60)["state"] == "done"
    finally:
        server.terminate()
        server.communicate(timeout=60)
