"""Little data: what does not fit it is said once, with the setting that helps."""

from pathlib import Path
from typing import Any

from support.tiny_training import plan_of, write_prepared
from veloxseg.train.hints import hints
from veloxseg.train.job import Job


def lines(prepared: Path, tmp_path: Path, settings: dict[str, Any]) -> list[str]:
    return list(hints(Job.open(prepared, tmp_path / "run", settings, resume=False)))


def test_one_case_is_told_of(tmp_path: Path, quick: dict[str, Any]) -> None:
    data = write_prepared(tmp_path / "one", plan_of(), {"a": "train"})
    few, epochs, batch = lines(data, tmp_path, quick | {"epochs": 300})
    assert few.startswith("1 training case can be learnt by heart")
    assert epochs.startswith("an epoch has 1 step, 300 in all")
    assert "--set steps_per_epoch=50" in epochs
    assert batch == "a batch of 2 patches of 32×32×64 is small; --set batch=16 fits memory"


def test_what_was_set_is_not_hinted_at(tmp_path: Path, quick: dict[str, Any]) -> None:
    data = write_prepared(tmp_path / "more", plan_of(), {name: "train" for name in "abcde"})
    assert lines(data, tmp_path, quick | {"steps_per_epoch": 2, "batch": 16}) == []


def test_a_patch_larger_than_the_scan_is_told_of(tmp_path: Path, quick: dict[str, Any]) -> None:
    data = write_prepared(tmp_path / "large", plan_of(patch=(64, 64, 96)), {name: "train" for name in "abcde"})
    (line,) = lines(data, tmp_path, quick | {"steps_per_epoch": 2})
    assert line.startswith("the patch 64×64×96 is larger than 5 of 5 training cases (such as 36×34×70)")
