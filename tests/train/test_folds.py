"""`train --folds all`: every case is predicted by a model that has not seen it, and RUN is their ensemble."""

import json
from collections.abc import Iterator
from pathlib import Path

import nibabel
import numpy as np
import pytest

from support.tiny_training import TINY
from veloxseg.cli import main
from veloxseg.console import set_quiet
from veloxseg.errors import ModelError
from veloxseg.model.config import PRESETS
from veloxseg.model_folder import members
from veloxseg.predict.predictor import Predictor
from veloxseg.prepare.store import Prepared

OPTIONS = "--model tiny --epochs 1 --set steps_per_epoch=1 batch=2"


def run(command: str, code: int = 0) -> None:
    assert main(command.split()) == code, command


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("folds")
    set_quiet(False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS, "tiny", TINY)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        run("phantom data --cases 5 --size 32 24 40")
        run("prepare data -o prepared --patch 32 32 64 --workers 0 --folds 2")
        run(f"train prepared -o run --folds all {OPTIONS}")
        yield folder


@pytest.fixture(autouse=True)
def inside(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)


def test_every_case_is_predicted_by_the_model_that_has_not_seen_it() -> None:
    data = Prepared.open("prepared")
    held_out = {name: fold for fold in (0, 1) for name in data.split(fold).validation}
    assert len(held_out) > 2
    for name, fold in held_out.items():
        record = json.loads(Path("run/out_of_fold", f"{name}.json").read_text())
        weights = json.loads(Path(f"run/fold_{fold}/model/model.json").read_text())["provenance"]["weights_sha256"]
        assert [model["weights_sha256"] for model in record["models"]] == [weights]
        assert record["learning"]["status"] == "unseen"
        scan = next(Path("data").rglob(f"{name}_0000.nii.gz"))
        mask = nibabel.load(f"run/out_of_fold/{name}.nii.gz")
        np.testing.assert_allclose(mask.affine, nibabel.load(scan).affine)
        assert mask.shape == nibabel.load(scan).shape
    metrics = json.loads(Path("run/report/metrics.json").read_text())
    assert {row["case"] for row in metrics["cases"]} == set(held_out)
    assert metrics["learning"]["summary_is_of"] == "unseen cases"
    assert not metrics["learning"]["every_case_was_seen"]


def test_the_run_is_an_ensemble(capsys: pytest.CaptureFixture[str]) -> None:
    assert [str(path) for path in members("run")] == ["run/fold_0", "run/fold_1"]
    assert len(Predictor(["run"], runtime="torch").folders) == 2
    run("predict -m run -i prepared --split test -o masks --runtime torch")
    record = json.loads(next(Path("masks").glob("*.json")).read_text())
    assert len(record["models"]) == 2
    assert record["learning"]["status"] == "unseen"
    capsys.readouterr()
    run("info run --json")
    assert len(json.loads(capsys.readouterr().out)["members"]) == 2


def test_one_member_is_asked_for_where_one_model_is_needed() -> None:
    from veloxseg.model_folder import find_model

    with pytest.raises(ModelError, match="is an ensemble of fold_0, fold_1, which"):
        find_model("run")


@pytest.mark.parametrize("name", ["../run", "/etc", "", "a/b"])
def test_members_lie_in_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "ensemble.json").write_text(json.dumps({"format": 1, "members": [name]}))
    with pytest.raises(ModelError, match="no folder beside it"):
        members(tmp_path)


def test_a_run_goes_on_and_other_folders_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path("run/out_of_fold").glob("*.nii.gz")}
    run("train prepared -o run --folds all --continue")
    assert "cases are done already" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in before}
    run(f"train prepared -o run --folds 0 {OPTIONS}", 2)
    assert "fold_0 holds a training already; add --continue" in capsys.readouterr().err
    run("train prepared -o other --folds 0 7", 2)
    assert "fold 7 does not exist" in capsys.readouterr().err
    run("train prepared -o other --folds some", 2)
    assert "write --folds all or --folds 0 2" in capsys.readouterr().err
    assert not Path("other").exists()
