"""`prepare` takes over what nnU-Net has: data sets by number, folds, spacing and normalisation."""

import json
from pathlib import Path

import pytest

from support.nnunet_data import write_dataset
from support.nnunet_results import make_plans
from veloxseg.cli import main
from veloxseg.prepare.store import Prepared

FOLDS = [{"train": ["case0", "case1", "case2"], "val": ["case3"]}, {"train": ["case3", "case1"], "val": ["case0"]}]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    write_dataset(folder, "Dataset901_Classes", "classes", cases=4)
    return folder


def prepare(*arguments: str, output: Path) -> int:
    return main(["prepare", *arguments, "-o", str(output), "--patch", "32", "32", "32", "--workers", "0"])


@pytest.mark.parametrize("name", ["901", "Dataset901_Classes"])
def test_data_sets_are_known_by_number(name: str, raw: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    assert prepare(name, output=tmp_path / "a") == 2
    assert "does not exist" in capsys.readouterr().err
    monkeypatch.setenv("nnUNet_raw", str(raw))
    assert prepare(name, output=tmp_path / "b") == 0
    assert len(Prepared.open(tmp_path / "b").cases) == 4


def test_a_number_of_two_data_sets_is_refused(tmp_path: Path, monkeypatch, capsys) -> None:
    for name in ("Dataset901_A", "Dataset901_B"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("nnUNet_raw", str(tmp_path))
    assert prepare("901", output=tmp_path / "out") == 2
    assert "give the whole name" in capsys.readouterr().err


def test_folds_and_plans(raw: Path, tmp_path: Path) -> None:
    """The spacing is nnU-Net's along x, y, z, its CT numbers are kept, its z-score becomes ours."""
    folds, plans = tmp_path / "splits_final.json", tmp_path / "nnUNetPlans.json"
    folds.write_text(json.dumps(FOLDS))
    plans.write_text(json.dumps(make_plans()))
    arguments = [str(raw / "Dataset901_Classes"), "--folds", str(folds), "--plans", str(plans)]
    assert prepare(*arguments, output=tmp_path / "prepared") == 0
    prepared = Prepared.open(tmp_path / "prepared")
    assert [fold.validation for fold in prepared.folds] == [("case3",), ("case0",)]
    assert prepared.plan.spacing == (1.6, 1.4, 2.2)  # the plans have 1.4, 2.2, 1.6 along y, z, x
    ct, pet = (modality.normalisation for modality in prepared.plan.modalities)
    assert (ct.low, ct.high, ct.mean, ct.std) == (-250, 180, 20, 150)
    assert pet.scheme == "zscore_body"


def test_options_stand_over_plans(raw: Path, tmp_path: Path) -> None:
    plans = tmp_path / "nnUNetPlans.json"
    plans.write_text(json.dumps(make_plans()))
    arguments = [str(raw / "Dataset901_Classes"), "--plans", str(plans), "--spacing", "2", "2", "2"]
    assert prepare(*arguments, "--normalise", "ct=none", output=tmp_path / "prepared") == 0
    plan = Prepared.open(tmp_path / "prepared").plan
    assert plan.spacing == (2, 2, 2)
    assert plan.modalities[0].normalisation.scheme == "none"


@pytest.mark.parametrize(("option", "text"), [("--folds", '{"a": 1}'), ("--folds", "no"), ("--plans", "{}")])
def test_files_that_are_something_else_are_refused(option: str, text: str, raw: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "file.json").write_text(text)
    assert prepare(str(raw / "Dataset901_Classes"), option, str(tmp_path / "file.json"), output=tmp_path / "out") == 2
    assert "file.json" in capsys.readouterr().err
    assert prepare(str(raw / "Dataset901_Classes"), "--folds", "0", output=tmp_path / "out") == 2
