"""Models that come with the package: found by name, as their cards say, and able to predict."""

import json
from pathlib import Path

import nibabel
import numpy as np
import pytest

from veloxseg.cli import main
from veloxseg.files import sha256
from veloxseg.model_folder import ModelFolder, find_model
from veloxseg.shipped import FOLDER, cards, located
from veloxseg.shipped.page import page

PAGE = Path(__file__).parents[1] / "docs" / "models.md"
NAMES = sorted(cards())


def test_there_are_models() -> None:
    assert NAMES


def test_the_page_of_models_is_made_from_the_cards() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m veloxseg.shipped.page > docs/models.md"


@pytest.mark.parametrize("name", NAMES)
def test_a_card_tells_the_truth_about_its_files(name: str) -> None:
    card, folder = cards()[name], ModelFolder.open(name)
    assert folder.path == FOLDER / name
    assert card.weights_sha256 == sha256(folder.weights) == folder.provenance["weights_sha256"]
    assert 0 <= card.scores.interval[0] <= card.scores.dice <= card.scores.interval[1] <= 1
    assert folder.weights.stat().st_size < 5_000_000
    assert folder.learning is not None
    assert folder.learning.by_content


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_model_predicts_by_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    random, inputs = np.random.default_rng(0), []
    for modality in find_plan(name).names:
        scan = random.normal(0, 200, (40, 44, 36)).astype(np.float32)
        nibabel.save(nibabel.Nifti1Image(scan, np.diag([2.0, 2.0, 3.0, 1.0])), f"{modality}.nii.gz")
        inputs += ["-i", f"{modality}={modality}.nii.gz"]
    assert main(["predict", "-m", name, *inputs, "-o", "mask.nii.gz"]) == 0
    record = json.loads(Path("mask.json").read_text())
    assert record["models"][0]["weights_sha256"] == cards()[name].weights_sha256
    assert nibabel.load("mask.nii.gz").shape == (40, 44, 36)


def find_plan(name: str):
    return ModelFolder.open(name).plan


def test_what_a_user_has_goes_before_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert located(NAMES[0]) == FOLDER / NAMES[0]
    Path(NAMES[0]).mkdir()
    assert located(NAMES[0]) == Path(NAMES[0])
    assert located(f"elsewhere/{NAMES[0]}") == Path(f"elsewhere/{NAMES[0]}")
    with pytest.raises(Exception, match="is no model"):
        find_model(NAMES[0])


def test_info_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--models"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown and f"{card.scores.dice:.3f}" in shown for name, card in cards().items())
    assert "research use only" in shown
    assert main(["info", "--models", "--json"]) == 0
    assert sorted(json.loads(capsys.readouterr().out)) == NAMES
    assert main(["info", NAMES[0], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["card"]["licence"] == cards()[NAMES[0]].licence


def test_an_unknown_name_lists_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "-m", "liver", "-i", "ct=ct.nii.gz", "-o", "out"]) == 2
    assert NAMES[0] in capsys.readouterr().err
