"""From download to test score for a data set that brings no test set: prepare → train → predict → evaluate by PREPARED.

Runs on a tiny synthetic data set as AutoPET unpacks.
"""

import csv
import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tiny_training import TINY
from veloxseg.cli import main
from veloxseg.console import set_quiet
from veloxseg.model.config import PRESETS


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """data, prepared, run and predictions of the test cases."""
    folder = tmp_path_factory.mktemp("headline")
    set_quiet(False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "tiny", TINY)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        run("phantom data --cases 6 --layout autopet --size 32 24 40")
        run("prepare data -o prepared --patch 32 32 64 --workers 0")
        run("train prepared -o run --model tiny --epochs 1 --set steps_per_epoch=1 --set batch=2")
        run("predict -m run -i prepared --split test -o predictions --runtime torch")
        yield folder


@pytest.fixture(autouse=True)
def inside(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)


def run(command: str, code: int = 0) -> None:
    assert main(command.split()) == code, command


def splits() -> dict[str, str]:
    return {case["name"]: case["split"] for case in json.loads(Path("prepared/cases.json").read_text())["cases"]}


def test_the_mean_holds_the_test_cases_alone(capsys: pytest.CaptureFixture[str]) -> None:
    run("evaluate -p predictions -l prepared --split test -o report")
    metrics = json.loads(Path("report/metrics.json").read_text())
    tested = {name for name, split in splits().items() if split == "test"}
    assert len(splits()) == 6
    assert {row["case"] for row in metrics["cases"]} == tested
    assert {row["learning"] for row in metrics["cases"]} == {"unseen"}
    assert metrics["learning"] == {
        "summary_is_of": "unseen cases", "every_case_was_seen": False, "seen_in_training": {},
    }  # fmt: skip
    assert "seen in training" not in capsys.readouterr().err


def test_a_training_case_renamed_and_recompressed_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = next(name for name, split in splits().items() if split == "train")
    validated = next(name for name, split in splits().items() if split == "validation")
    unseen = next(name for name, split in splits().items() if split == "test")
    scans, labels = tmp_path / "imagesTs", tmp_path / "labelsTs"
    scans.mkdir()
    labels.mkdir()
    for name, new in ((trained, "stranger"), (validated, "other"), (unseen, "third")):
        (study,) = Path("data/FDG-PET-CT-Lesions", name).iterdir()
        for file, target in (("CTres", scans / f"{new}_0000"), ("SUV", scans / f"{new}_0001"), ("SEG", labels / new)):
            target.with_name(f"{target.name}.nii").write_bytes(gzip.decompress((study / f"{file}.nii.gz").read_bytes()))
    run(f"predict -m run -i {scans} -o {tmp_path}/masks --runtime torch")
    assert "the model was trained on 1 of 3 cases: stranger" in capsys.readouterr().err
    record = json.loads((tmp_path / "masks" / "stranger.json").read_text())
    assert record["learning"] == {"status": "trained on", "by": "content", "learnt_as": trained}
    run(f"evaluate -p {tmp_path}/masks -l {labels} -o {tmp_path}/report")
    said = capsys.readouterr()
    assert "2 of 3 cases were seen in training (1 trained on: stranger; 1 validated on: other)" in said.err
    assert "1 unseen case:" in said.out
    metrics = json.loads((tmp_path / "report" / "metrics.json").read_text())
    assert metrics["learning"]["seen_in_training"] == {"other": "validated on", "stranger": "trained on"}
    with open(tmp_path / "report" / "metrics.csv", newline="") as file:
        statuses = {row["case"]: row["learning"] for row in csv.DictReader(file)}
    assert statuses == {"third": "unseen", "other": "validated on", "stranger": "trained on"}
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Seen in training: 2 cases" in page


def test_what_is_taken_of_a_prepared_folder_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tested = sum(split == "test" for split in splits().values())
    run(f"predict -m run -i prepared -o {tmp_path}/a --runtime torch")
    assert f"{tested} of 6 cases are taken (test): " in capsys.readouterr().out
    assert len(list((tmp_path / "a").glob("*.nii.gz"))) == tested
    name = next(iter(splits()))
    run(f"predict -m run -i prepared --cases {name} -o {tmp_path}/b --runtime torch")
    assert [file.name for file in (tmp_path / "b").glob("*.nii.gz")] == [f"{name}.nii.gz"]
    run(f"predict -m run -i prepared --cases nobody -o {tmp_path}/c", code=2)
    assert "has no case 'nobody' of 6; did you mean" in capsys.readouterr().err
    run("predict -m run -i data --split test -o nowhere", code=2)
    assert "does not say which cases are for training" in capsys.readouterr().err


def test_check_and_info_take_the_same_cases(capsys: pytest.CaptureFixture[str]) -> None:
    run("info prepared --split test --json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["names"] == [name for name, split in splits().items() if split == "test"]
    run("check prepared --split test --workers 1")
    assert f"{facts['cases']} cases of ct, pet (prepared layout)" in capsys.readouterr().out
    run("info data --json")
    assert json.loads(capsys.readouterr().out)["layout"] == "autopet"
    run("info run")
    assert "training cases 4, validation cases 1, known by content" in capsys.readouterr().out


def test_a_model_of_one_modality_takes_its_part_of_the_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PRESETS, "tiny", TINY)
    options = "--model tiny --epochs 1 --set steps_per_epoch=1 --set batch=2 --set modalities=pet"
    run(f"train prepared -o {tmp_path}/run {options}")
    name = next(iter(splits()))
    run(f"predict -m {tmp_path}/run -i data --cases {name} -o {tmp_path}/masks --runtime torch")
    assert "the model takes pet; ct of the data set are not used" in capsys.readouterr().out
    (record,) = (tmp_path / "masks").glob("*.json")
    assert json.loads(record.read_text())["learning"]["by"] == "content"
    (scan,) = Path("data/FDG-PET-CT-Lesions", name).glob("*/SUV.nii.gz")
    shutil.copy(scan, tmp_path / "scan.nii.gz")
    run(f"predict -m {tmp_path}/run -i {tmp_path}/scan.nii.gz -o {tmp_path}/alone --runtime torch")


def test_prepared_data_are_prepared_anew_with_the_same_splits(tmp_path: Path) -> None:
    run(f"prepare prepared -o {tmp_path}/again --patch 32 32 64 --spacing 20 20 30 --workers 0")
    again = json.loads((tmp_path / "again" / "cases.json").read_text())
    assert {case["name"]: case["split"] for case in again["cases"]} == splits()


def test_scans_that_moved_are_missed_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("prepared", tmp_path / "prepared")
    run(f"predict -m run -i {tmp_path}/prepared -o {tmp_path}/out", code=2)
    assert 'if the scans were moved, write their new place as "root" in' in capsys.readouterr().err
    sources = json.loads((tmp_path / "prepared" / "sources.json").read_text())
    assert not Path(sources["root"]).is_absolute()  # moved together, they are found
    sources["root"] = str(Path("data/FDG-PET-CT-Lesions").resolve())
    (tmp_path / "prepared" / "sources.json").write_text(json.dumps(sources))
    run(f"evaluate -p predictions -l {tmp_path}/prepared --split test -o {tmp_path}/report")
    (tmp_path / "prepared" / "sources.json").unlink()
    run(f"predict -m run -i {tmp_path}/prepared -o {tmp_path}/out", code=2)
    assert "is of an older version and does not say where its scans lie" in capsys.readouterr().err
    run(f"info {tmp_path}/prepared")


def test_a_model_knows_no_path_and_an_older_prepared_folder_gives_names(tmp_path: Path) -> None:
    description = Path("run/model/model.json").read_text()
    assert str(Path.cwd()) not in description
    assert "SUV" not in description
    learning = json.loads(description)["provenance"]["learning"]
    assert {case["name"] for case in learning["train"]} == {n for n, split in splits().items() if split == "train"}
    assert all(set(case["scans"]) == {"ct", "pet"} for case in learning["train"])
