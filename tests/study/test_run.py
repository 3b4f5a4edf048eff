"""Studies on a small phantom: a row is a plain training, a study goes on, every table runs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from veloxseg.cli import main
from veloxseg.errors import ConfigError
from veloxseg.files import sha256
from veloxseg.study.run import Request, run_study, steps_settings
from veloxseg.study.tables import NAMES, find_table

LIGHT = {"batch": 2, "crops": 1}


def study(prepared: Path, folder: Path, table: str, **changes) -> dict:
    values = {"steps": 1, "settings": LIGHT, "workers": 0} | changes
    _, failures = run_study(Request(table=table, prepared=prepared, output=folder, **values))
    assert failures == {}
    return json.loads((folder / "table.json").read_text())


def test_a_row_is_a_plain_training(prepared: Path, tmp_path: Path) -> None:
    """The command that the table gives for a row makes the same weights, bit by bit."""
    table = study(prepared, tmp_path / "study", "attention", rows=("window",), steps=2)
    words = table["rows"][0]["train"].replace("PREPARED", str(prepared)).replace("RUN", str(tmp_path / "plain"))
    assert main(words.split()[1:]) == 0
    ours = tmp_path / "study/runs/window/seed0/run/model/model.safetensors"
    assert sha256(ours) == sha256(tmp_path / "plain/model/model.safetensors")
    assert "attention=window" in words


def test_seeds_folds_and_rows_add_up(prepared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "study"
    study(prepared, folder, "scaling", rows=("s",), folds=("all",))
    before = {path: path.stat().st_mtime_ns for path in folder.glob("runs/s/*/scores.json")}
    capsys.readouterr()
    table = study(prepared, folder, "scaling", rows=("s", "b"), folds=("all",), seeds=(0, 1))
    assert "2 of 8 trainings are done already" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in before}
    assert [row["name"] for row in table["rows"]] == ["b", "s"]  # the table's first row is in front
    for row in table["rows"]:
        assert {(run["seed"], run["fold"]) for run in row["runs"]} == {(s, f) for s in (0, 1) for f in (0, 1)}
        assert len(row["cases"]) == 4  # each held out once, whatever the number of seeds
        assert row["dice"]["low"] <= row["dice"]["mean"] <= row["dice"]["high"]
        assert row["parameters"] > 1e6
        assert row["peak_rss_mb"] > 100
    assert table["rows"][0]["against_first"] is None
    assert table["rows"][1]["against_first"]["p_holm"] is not None
    page = (folder / "report.html").read_text()
    assert "VeloxSeg-S" in page
    assert "http" not in page.replace("http-equiv", "")
    assert (folder / "figure.png").read_bytes()[:4] == b"\x89PNG"
    assert "68.56" in (folder / "table.md").read_text()  # what the paper prints for S
    with pytest.raises(ConfigError, match="holds another study"):
        study(prepared, folder, "jl", rows=("groups-1-1-1-1",))


def test_trainings_that_cannot_be_compared_share_no_table(prepared: Path, tmp_path: Path) -> None:
    """Once something is trained, another length, other settings or another split are refused; more rows are not."""
    folder, data = tmp_path / "study", prepared.parent / "data"
    with pytest.raises(ConfigError, match="no setting"):  # nothing is trained, so the next command may differ
        study(prepared, folder, "peers", rows=("slim-unetr",), settings=LIGHT | {"heads": (1, 1, 1, 1)})
    study(prepared, folder, "peers", rows=("slim-unetr",), external=data)
    before = (folder / "study.json").read_bytes()
    for changes, message in (
        ({"steps": 2}, "with --steps 1, and 2 is asked for"),
        ({"steps": None, "minutes": 0.1}, "with --steps 1, and no value is asked for"),
        ({"settings": LIGHT | {"crops": 2}}, "with --set batch=2 crops=1, and batch=2 crops=2 is asked for"),
        ({"folds": ("all",)}, "on the 6:2:2 split"),
        ({"external": tmp_path}, "other external cases"),
    ):
        with pytest.raises(ConfigError, match=message):
            study(prepared, folder, "peers", rows=("slim-unetr", "segformer-3d"), **changes)
        assert (folder / "study.json").read_bytes() == before
    table = study(prepared, folder, "peers", rows=("segformer-3d",))
    assert {row["steps"] for row in table["rows"]} == {1}
    assert len(table["rows"]) == 2


def test_a_soft_max_over_the_labels_of_brats_is_scored_by_its_regions(tmp_path: Path) -> None:
    """As the paper's table has it, and as external cases in BraTS's layout are scored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for command in (
            "phantom data --cases 5 --size 32 32 32 --layout brats",
            "prepare data -o prepared --as brats2021 --spacing 6 6 6 --patch 32 32 32 --workers 0",
        ):
            assert main(command.split()) == 0, command
    table = study(tmp_path / "prepared", tmp_path / "study", "peers", rows=("c",), external=tmp_path / "data")
    run = tmp_path / "study/runs/c/seed0"
    for file in ("scores.json", "external.json"):
        scores = json.loads((run / file).read_text())
        assert {tuple(structures) for structures in scores["cases"].values()} == {("WT", "TC", "ET")}
    (row,) = table["rows"]
    assert row["paper"]["Dice"] == 91.44
    assert json.loads((run / "run/model/model.json").read_text())["network"]["in_channels"] == [4]


def test_masks_can_be_evaluated_by_the_verb(prepared: Path, tmp_path: Path) -> None:
    study(prepared, tmp_path / "study", "attention", rows=("window",))
    masks, labels = tmp_path / "study/runs/window/seed0/masks", tmp_path / "study/labels"
    assert main(["evaluate", "-p", str(masks), "-l", str(labels), "-o", str(tmp_path / "report")]) == 0
    metrics = json.loads((tmp_path / "report/metrics.json").read_text())
    scores = json.loads((masks.parent / "scores.json").read_text())
    assert {row["case"] for row in metrics["cases"]} == set(scores["cases"])
    assert metrics["cases"][0]["structure"] == "lesion"


def test_external_cases_are_predicted_and_told_apart(prepared: Path, tmp_path: Path) -> None:
    table = study(prepared, tmp_path / "study", "attention", rows=("window",), external=prepared.parent / "data")
    row = table["rows"][0]
    assert len(row["external"]["cases"]) > len(row["cases"])
    assert "External cases" in (tmp_path / "study/table.md").read_text()


# two rows of each table, the lightest and one that is special
CHOSEN = {
    "modules": ("groups-1-1-1-1", "gram"),
    "groups": ("jl-n1", "same-n1"),
    "jl": ("groups-1-1-1-1", "groups-4-8-8-16"),
    "attention": ("downsampled",),
    "transfer": ("shared-roi", "affinity"),
    "loss-weights": ("rc1.5-sdkt1.5",),
    "modalities": ("pet", "early"),
    "scaling": ("l",),
    "peers": ("slim-unetr",),
    "pruning": ("full-pruned",),
    "ffn": ("pruned",),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_study_runs(prepared: Path, tmp_path: Path, name: str) -> None:
    table = study(prepared, tmp_path, name, rows=CHOSEN[name])
    assert set(CHOSEN[name]) <= {row["name"] for row in table["rows"]}
    assert table["place"] == find_table(name, ("ct", "pet")).place


def test_a_killed_study_goes_on(prepared: Path, tmp_path: Path) -> None:
    """Killed amid its first training, in a process of its own; started again it does what is left, and only that."""
    command = [sys.executable, "-m", "veloxseg", "study", "attention", str(prepared), "-o", str(tmp_path / "study")]
    command += ["--rows", "window", "--steps", "20", "--workers", "1", "--set", "batch=2", "crops=1", "save_seconds=0"]
    checkpoints = tmp_path / "study/runs/window/seed0/run/checkpoints"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    give_up = time.monotonic() + 200
    while not (checkpoints.is_dir() and any(checkpoints.iterdir())) and time.monotonic() < give_up:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "study/table.json").exists()
    assert subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0
    run = json.loads((tmp_path / "study/runs/window/seed0/training.json").read_text())
    assert run["steps"] == 20
    assert "going on after epoch" in (tmp_path / "study/runs/window/seed0/run/train.log").read_text()
    other = study(prepared, tmp_path / "other", "attention", rows=("window",), steps=20)
    table = json.loads((tmp_path / "study/table.json").read_text())
    assert table["rows"][0]["cases"] == other["rows"][0]["cases"]


@pytest.mark.parametrize(("steps", "epochs"), [(1200, 30), (20, 20), (7, 7), (31, 1), (1000, 25)])
def test_steps_are_what_was_asked_for(steps: int, epochs: int) -> None:
    settings = steps_settings(steps)
    assert settings["epochs"] == epochs
    assert settings["epochs"] * settings["steps_per_epoch"] == steps


def test_what_cannot_work_is_said_before_anything_is_trained(prepared: Path, tmp_path: Path) -> None:
    for changes, message in (
        ({"rows": ("window",), "settings": {"patch": (100, 96, 96)}}, "row window of attention: .* not divisible"),
        ({"rows": ("window",), "folds": ("all",), "steps": None, "settings": {"select": "best"}}, "select=best"),
        ({"rows": ("window",), "minutes": 1.0}, "both given"),
    ):
        with pytest.raises(ConfigError, match=message):
            study(prepared, tmp_path / "study", "attention", **changes)
    assert not (tmp_path / "study").exists()
