"""`veloxseg inspect` and `veloxseg prune` on a small phantom, from a training to pictures and a smaller MODEL."""

import json
from pathlib import Path

import numpy as np
import pytest

from veloxseg.cli import main
from veloxseg.console import set_quiet
from veloxseg.inspect.features import classes_of, sample_voxels
from veloxseg.inspect.run import names_of


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect")
    set_quiet(False)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in (
            "phantom data --cases 5 --size 40 32 40",
            "prepare data -o prepared --patch 32 32 64 --workers 0",
            "train prepared -o b --epochs 1 --set steps_per_epoch=1 batch=2 crops=1",
            "train prepared -o plain --epochs 1 --set steps_per_epoch=1 batch=2 crops=1 attention=none",
        ):
            assert main(command.split()) == 0, command
    return folder


@pytest.fixture(autouse=True)
def inside(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    monkeypatch.setenv("XDG_CACHE_HOME", str(work / "cache"))


@pytest.mark.parametrize("what", ["attention", "distances", "features"])
def test_every_inspection_runs(what: str) -> None:
    if what == "features":
        pytest.importorskip("sklearn")
    models = "-m b" if what == "attention" else "-m b -m plain"
    assert main(f"inspect {what} {models} prepared -o out --patients 2 --suv 1".split()) == 0
    record = json.loads(Path(f"out/{what}.json").read_text())
    assert list(record["networks"]) == (["b"] if what == "attention" else ["b", "plain"])
    assert Path(f"out/{what}.png").read_bytes()[:4] == b"\x89PNG"


def test_a_network_of_a_fold_is_shown_the_cases_that_it_has_not_learnt_from(work: Path) -> None:
    assert main(["prepare", "data", "-o", "folds", "--folds", "2", "--patch", "32", "32", "64", "--workers", "0"]) == 0
    held_out = []
    for fold in (0, 1):
        train = (
            f"train folds -o fold{fold} --fold {fold} --epochs 1 --set steps_per_epoch=1 batch=2 crops=1 select=last"
        )
        assert main(train.split()) == 0
        assert main(f"inspect distances -m fold{fold} folds -o of{fold}".split()) == 0
        learnt = json.loads(Path(f"fold{fold}/model/model.json").read_text())["provenance"]["learning"]["train"]
        shown = json.loads(Path(f"of{fold}/distances.json").read_text())["cases"]
        assert shown
        assert not {case["name"] for case in learnt} & set(shown)
        held_out.append(shown)
    assert held_out[0] != held_out[1]


def test_a_network_without_attention_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "attention", "-m", "plain", "prepared", "-o", "none"]) == 2
    assert "has no attention" in capsys.readouterr().err
    assert not Path("none").exists()


def test_a_training_of_a_study_has_the_name_of_its_row() -> None:
    a, b = Path("study/runs/a/seed0/run"), Path("study/runs/b/seed0/run")
    assert names_of([a]) == ["a/seed0"]
    assert names_of([a, b]) == ["a/seed0", "b/seed0"]
    assert names_of([Path("x/own"), Path("y/other")]) == ["own", "other"]


def test_classes_are_of_the_decoders_grid_and_the_same_voxels_every_time() -> None:
    label, hot = np.zeros((8, 8, 8)), np.zeros((8, 8, 8))
    label[:4, :4, :4] = 1
    hot[:4] = 1
    kinds = classes_of(label, hot)
    assert kinds[0, 0, 0] == 2
    assert kinds[0, 1, 1] == 1
    assert kinds[1, 1, 1] == 0
    one, other = (sample_voxels([kinds, kinds], most=6, seed=3) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert np.bincount(one.kind).tolist() == [2, 2, 2]


def test_what_fills_up_a_small_case_is_of_no_class() -> None:
    """The network sees zeros there; they are no tissue of low metabolism."""
    label, hot = np.zeros((8, 8, 8)), np.ones((8, 8, 8))
    kinds = classes_of(label, hot, (8, 5, 4))
    assert (kinds[:, 0, 0] == 1).all()
    assert (kinds[:, 1, :] == -1).all()
    assert (kinds[:, :, 1] == -1).all()
    assert set(sample_voxels([kinds]).kind) == {1}


@pytest.mark.parametrize(("what", "to"), [("ffn", "1.5M"), ("channels", "80%")])
def test_a_pruned_network_is_trained_and_predicts(what: str, to: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = f"pruned-{what}"
    assert main(f"prune -m b prepared -o {run} --what {what} --to {to} --epochs 1".split()) == 0
    assert "parameters before" in capsys.readouterr().out
    record = json.loads(Path(run, "pruned/widths.json").read_text())
    model = json.loads(Path(run, "model/model.json").read_text())
    assert record["parameters"] < record["parameters_before"]
    assert model["network"]["hidden"]
    assert main(f"info {run} --json".split()) == 0
    capsys.readouterr()
    for runtime in ("torch", "auto"):
        assert main(f"predict -m {run} -i prepared --split test -o {run}-{runtime} --runtime {runtime}".split()) == 0
    record = json.loads(next(Path(f"{run}-auto").glob("*.json")).read_text())
    assert record["runtime"]["name"] != "torch"  # a faster one takes the pruned widths
    assert main(f"prune -m b prepared -o {run} --to {to} --continue".split()) == 0


def test_pruning_to_all_keeps_the_weights() -> None:
    from veloxseg.files import sha256

    assert main(["prune", "-m", "b", "prepared", "-o", "whole", "--to", "100%", "--no-training"]) == 0
    assert sha256("whole/model.safetensors") == sha256("b/model/model.safetensors")
    assert main(["prune", "-m", "b", "prepared", "-o", "whole2", "--to", "much", "--no-training"]) == 2


def test_pruning_to_more_than_there_is_says_that_nothing_happens(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", "-m", "b", "prepared", "-o", "more", "--to", "900M", "--no-training"]) == 0
    text = capsys.readouterr()
    assert "nothing is pruned" in text.err
    assert "ct, pet: what its weights alone would keep" in text.out
