"""Every planted problem is found, by case and kind, and a clean data set has none."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

from veloxseg.cli import main
from veloxseg.dataset.check import check_dataset
from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.problems import Report

Change = Callable[[Case, Any], Case | None]


def edit(path: Path, change: Callable[[np.ndarray], np.ndarray], affine: np.ndarray | None = None) -> None:
    image = nibabel.load(path)
    array = change(np.asanyarray(image.dataobj).copy())
    nibabel.save(nibabel.Nifti1Image(array, image.affine if affine is None else affine), path)


def kinds(report: Report, case: str) -> set[tuple[str, str]]:
    return {(p.level, p.kind) for p in report.problems if p.case == case and p.level != "note"}


def with_nan(a: np.ndarray) -> np.ndarray:
    a[3, 3, 3:6] = np.nan
    return a


def halves(a: np.ndarray) -> np.ndarray:
    return a.astype(np.float32) * 0.5


def stretched(path: Path) -> np.ndarray:
    affine = nibabel.load(path).affine.copy()
    affine[:3, 3] += 7
    return affine


PLANTED: dict[str, tuple[Callable[[Case], Any], tuple[str, str], str]] = {
    "missing modality": (
        lambda c: replace(c, images={"ct": c.images["ct"]}),
        ("error", "missing"),
        "modality pet is missing",
    ),
    "missing file": (lambda c: c.images["ct"].unlink(), ("error", "file"), "exist"),
    "truncated": (
        lambda c: c.images["ct"].write_bytes(c.images["ct"].read_bytes()[:2000]),
        ("error", "file"),
        "ends early",
    ),
    "NaN": (lambda c: edit(c.images["pet"], with_nan), ("error", "file"), "3 NaN"),
    "constant": (lambda c: edit(c.images["pet"], np.zeros_like), ("error", "file"), "every voxel is 0"),
    "label grid": (lambda c: edit(c.label, np.copy, stretched(c.label)), ("error", "grid"), "different grids"),
    "label value": (lambda c: edit(c.label, lambda a: a * 9), ("error", "label"), "label value 9"),
    "label not whole": (lambda c: edit(c.label, halves), ("error", "label"), "not whole numbers"),
    "label missing": (lambda c: c.label.unlink(), ("error", "label"), "exist"),
    "no label": (lambda c: replace(c, label=None), ("warning", "label"), "no label"),
    "empty label": (lambda c: edit(c.label, np.zeros_like), ("warning", "label"), "empty"),
    "CT without air": (lambda c: edit(c.images["ct"], lambda a: a + 1100), ("warning", "swapped"), "no negative value"),
    "swapped": (
        lambda c: replace(c, images={"ct": c.images["pet"], "pet": c.images["ct"]}),
        ("warning", "swapped"),
        "values down to",
    ),
    "far apart": (
        lambda c: edit(c.images["pet"], np.copy, nibabel.load(c.images["pet"]).affine + far()),
        ("error", "grid"),
        "do not overlap",
    ),
    "spacing": (lambda c: scale_case(c, 5.0), ("warning", "spacing"), "the median is"),
}


def far() -> np.ndarray:
    shift = np.zeros((4, 4))
    shift[0, 3] = 500
    return shift


def scale_case(case: Case, factor: float) -> None:
    for path in (*case.images.values(), case.label):
        assert path is not None
        affine = nibabel.load(path).affine @ np.diag([factor, factor, factor, 1])
        edit(path, np.copy, affine)


@pytest.mark.parametrize("planted", PLANTED)
def test_each_planted_problem_is_found_and_only_there(planted: str, make_dataset: Callable[..., Dataset]) -> None:
    change, expected, words = PLANTED[planted]
    dataset = make_dataset(4)
    assert [p for p in check_dataset(dataset).problems if p.level != "note"] == []
    changed = change(dataset.cases[1])
    if isinstance(changed, Case):
        dataset = replace(dataset, cases=(dataset.cases[0], changed, *dataset.cases[2:]))
    report = check_dataset(dataset)
    assert expected in kinds(report, "case_1")
    assert any(words in p.problem and p.remedy for p in report.problems)
    for other in ("case_0", "case_2", "case_3"):
        assert kinds(report, other) == set()


def test_all_problems_are_listed_at_once(make_dataset: Callable[..., Dataset], tmp_path: Path) -> None:
    dataset = make_dataset(4)
    edit(dataset.cases[0].images["pet"], with_nan)
    assert dataset.cases[0].label is not None
    edit(dataset.cases[0].label, np.zeros_like)
    dataset.cases[1].images["ct"].unlink()
    report = check_dataset(dataset)
    assert kinds(report, "case_0") == {("error", "file"), ("warning", "label")}
    assert kinds(report, "case_1") == {("error", "file")}
    assert json.loads(json.dumps(report.to_json()))["counts"]["error"] == 2
    assert [p.level for p in report.problems] == sorted(
        (p.level for p in report.problems), key=["error", "warning", "note"].index
    )


def test_duplicates_and_splits(make_dataset: Callable[..., Dataset]) -> None:
    dataset = make_dataset(3)
    first, second, third = dataset.cases
    copy = replace(second, name="copy", patient="copy")
    moved = replace(third, split="test")
    again = replace(third, name="visit_2", split="train")
    same = replace(first, split="test")
    report = check_dataset(
        replace(dataset, cases=(first, second, copy, moved, again, same), folds=((("case_0",), ("case_0",)),))
    )
    found = {(p.kind, p.case) for p in report.errors}
    assert ("duplicate", "copy") in found
    assert ("split", "visit_2") in found  # the same patient in train and test
    assert ("split", "case_0") in found  # in train and test, and on both sides of a fold


def test_modalities_on_other_grids_are_a_note_with_millimetres(make_dataset: Callable[..., Dataset]) -> None:
    notes = [p for p in check_dataset(make_dataset(1)).problems if p.level == "note"]
    assert len(notes) == 1
    assert "mm" in notes[0].problem
    assert "prepare resamples" in notes[0].remedy


def test_command_line(make_dataset: Callable[..., Dataset], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = make_dataset(2)
    images = {"ct": "{case}/ct.nii.gz", "pet": "{case}/pet.nii.gz"}
    table = {"images": images, "label": "{case}/label.nii.gz", "labels": {"lesion": 1}}
    (tmp_path / "raw" / "cases.json").write_text(json.dumps(table))
    arguments = ["check", str(tmp_path / "raw"), "--workers", "1", "--json", str(tmp_path / "report.json")]
    assert main(arguments) == 0
    edit(dataset.cases[0].images["pet"], with_nan)
    assert main(arguments) == 2
    assert "error: case_0:" in capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text())["counts"]["error"] == 1


@pytest.mark.shared
def test_the_misaligned_sarcoma_case_is_noticed_and_its_neighbour_not(shared: Path) -> None:
    folder = shared / "data" / "sts_petct"
    cases = tuple(
        Case(
            name=name,
            patient=name,
            images={"ct": folder / name / "CT_image.nii.gz", "pet": folder / name / "PET_image.nii.gz"},
            label=folder / name / "CT_mask.nii.gz",
        )
        for name in ("STS_019", "STS_025", "STS_002")
    )
    labels = {"background": 0, "tumour": 1}
    dataset = Dataset(name="sts", layout="table", root=folder, modalities=("ct", "pet"), labels=labels, cases=cases)
    report = check_dataset(dataset)
    assert [(p.case, p.kind) for p in report.problems if p.level != "note"] == [("STS_019", "alignment")]
