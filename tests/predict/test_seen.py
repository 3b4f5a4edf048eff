"""The record of a prediction says whether the model has learnt from the case, whatever its file is called."""

import json
from pathlib import Path

import pytest

from veloxseg.cli import main
from veloxseg.image import Volume, write
from veloxseg.image.content import content_hash
from veloxseg.model_folder import ModelFolder
from veloxseg.runtimes.export import export


def learning(scans: dict[str, Volume], name: str = "anna") -> dict[str, object]:
    return {"train": [{"name": name, "scans": {key: content_hash(scan) for key, scan in scans.items()}}]}


def predict(model: list[Path], case: dict[str, Path], output: Path) -> dict[str, object]:
    models = [word for folder in model for word in ("-m", str(folder))]
    inputs = [word for name, path in case.items() for word in ("-i", f"{name}={path}")]
    assert main(["predict", *models, *inputs, "-o", str(output)]) == 0
    (record,) = output.glob("*.json")
    found = json.loads(record.read_text())["learning"]
    assert isinstance(found, dict)
    return found


def test_seen_unseen_and_unknown(
    make_plan, write_model, make_scans, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scans, other = make_scans((40, 40, 40)), make_scans((40, 40, 40), seed=1)
    case = {name: tmp_path / f"somebody_{name}.nii" for name in scans}
    for name, scan in scans.items():
        write(scan, case[name])
    knowing = write_model(tmp_path / "knowing", make_plan(), learning=learning(scans))
    foreign = write_model(tmp_path / "foreign", make_plan(), learning=learning(other, "somebody_ct"))
    expected = {"status": "trained on", "by": "content", "learnt_as": "anna"}
    assert predict([knowing], case, tmp_path / "1") == expected
    assert "the model was trained on 1 of 1 cases: somebody_ct" in capsys.readouterr().err
    assert predict([foreign, knowing], case, tmp_path / "2") == expected  # seen by one of an ensemble
    assert "the model was trained on" in capsys.readouterr().err
    assert predict([foreign], case, tmp_path / "3") == {"status": "unseen", "by": "content", "namesake": True}
    assert "trained on" not in capsys.readouterr().err
    assert predict([model], case, tmp_path / "4") == {"status": "unknown"}
    assert capsys.readouterr().out.count("does not know what it was trained on") == 1


def test_an_exported_model_knows_its_cases(make_plan, write_model, make_scans, tmp_path: Path) -> None:
    knowing = write_model(tmp_path / "knowing", make_plan(), learning=learning(make_scans((40, 40, 40))))
    exported = ModelFolder.open(export(knowing, tmp_path / "exported", "torch"))
    assert exported.learning == ModelFolder.open(knowing).learning
    assert exported.learning is not None


def test_what_is_told_of_a_training_is_checked(make_plan, write_model, tmp_path: Path, capsys) -> None:
    broken = write_model(tmp_path / "broken", make_plan(), learning={"train": "anna"})
    assert main(["info", str(broken)]) == 2
    assert "provenance.learning: train is 'anna', expected a list" in capsys.readouterr().err
