"""A least size of components: what it would change, and when it is suggested."""

from pathlib import Path

import numpy as np
import pytest

from support.cases import save
from veloxseg.cli import main
from veloxseg.evaluate import evaluate_folder
from veloxseg.evaluate.component_sizes import Effect, effects_of_sizes, suggestion


@pytest.fixture
def speckled(tmp_path: Path) -> Path:
    """Two cases with voxels of 0.1 mL: a lesion of 6.4 mL that is found, and false components of 0.1 and 0.8 mL."""
    affine = np.diag([10.0, 10.0, 1.0, 1.0])
    for name in ("a", "b"):
        label = np.zeros((16, 16, 16), np.uint8)
        label[4:8, 4:8, 4:8] = 1
        predicted = label.copy()
        predicted[::4, 12:16:2, 12] = 1  # eight false ones of one voxel
        predicted[12:14, 0:2, 0:2] = 1  # and one of eight
        save(tmp_path / "labels" / f"{name}.nii.gz", label, affine)
        save(tmp_path / "masks" / f"{name}.nii.gz", predicted, affine)
    return tmp_path


def test_the_table_counts_what_dropping_changes(speckled: Path) -> None:
    evaluation = evaluate_folder(speckled / "masks", speckled / "labels")
    effects = {effect.size_ml: effect for effect in effects_of_sizes(evaluation, (0.0, 0.1, 0.5, 1.0, 10.0))}
    assert [effect.false for effect in effects.values()] == [18, 18, 2, 0, 0]
    assert [effect.missed for effect in effects.values()] == [0, 0, 0, 0, 2]
    assert effects[1.0].dice == 1
    assert effects[0.0].dice == pytest.approx(2 * 64 / (64 + 80))
    assert effects[10.0].dice == 0
    reported = evaluation.summary(evaluation.methods[0], next(iter(evaluation.structures)), "dice").mean
    assert effects[0.0].dice == pytest.approx(reported)


def test_the_best_size_is_suggested_and_stored_nowhere(speckled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "-p", speckled / "masks", "-l", speckled / "labels", "-o"]
    assert main([*map(str, words), str(speckled / "plain")]) == 0
    assert "--remove-smaller" not in capsys.readouterr().out
    assert main([*map(str, words), str(speckled / "sized"), "--sizes"]) == 0
    said = capsys.readouterr().out
    assert "--remove-smaller 1 (Dice 1.000 instead of 0.889, 0 false lesions instead of 18); it was chosen on" in said
    assert {path.name for path in (speckled / "sized").iterdir()} == {
        path.name for path in (speckled / "plain").iterdir()
    }


def test_nothing_is_suggested_where_nothing_is_gained() -> None:
    flat = [Effect(size_ml=size, dice=0.5, false=0, missed=0) for size in (0.0, 0.1, 1.0)]
    assert suggestion(flat) == "no least size does better than none"
    worse = [flat[0], Effect(size_ml=1.0, dice=0.6, false=0, missed=2)]
    assert "2 more missed" in suggestion(worse)
    assert suggestion([Effect(size_ml=0.0, dice=float("nan"), false=0, missed=0)]) == suggestion(flat)
