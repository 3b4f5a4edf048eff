"""What predict is given becomes cases; what cannot be is refused in one line."""

from pathlib import Path

import pytest

from veloxseg.cli.predict import list_failures
from veloxseg.dataset.cases import Selection
from veloxseg.errors import ConfigError, DatasetError
from veloxseg.predict.batch import note_failure
from veloxseg.predict.inputs import InputCase, find_cases


@pytest.mark.parametrize("path", ["x" * 5000, "ct=" + "x" * 5000, "x/" * 3000, "a\0b", "ct=a\0b"])
def test_a_path_that_no_file_can_have_is_one_line(path: str) -> None:
    with pytest.raises((ConfigError, DatasetError)) as caught:
        find_cases([path, "pet=x"] if "=" in path else [path], ("ct", "pet"))
    assert len(str(caught.value)) < 400


def test_a_list_gives_cases_with_their_picks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "case,ct,pet,pet.series,mr,split\na,a.nii,pet,PT,m.nii,test\nb,b.nii,pet,2,m.nii,train\n"
    (tmp_path / "list.csv").write_text(rows)
    (case,) = find_cases([str(tmp_path / "list.csv")], ("ct", "pet"), Selection(split="test"))
    assert case == InputCase("a", {"ct": tmp_path / "a.nii", "pet": tmp_path / "pet"}, {"pet": {"series": "PT"}})
    out = capsys.readouterr().out
    assert "1 of 2 cases are taken (test)" in out
    assert "mr of the data set are not used" in out


def test_one_scan_for_a_model_of_one_modality(tmp_path: Path) -> None:
    (tmp_path / "anna.nii.gz").write_bytes(b"")
    assert find_cases([str(tmp_path / "anna.nii.gz")], ("mr",)) == [InputCase("anna", {"mr": tmp_path / "anna.nii.gz"})]
    with pytest.raises(ConfigError, match="one case is given by its files alone"):
        find_cases([f"mr={tmp_path / 'anna.nii.gz'}"], ("mr",), Selection(split="test"))


def test_the_same_failure_of_many_cases_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    failures: dict[str, str] = {}
    for number in range(45):
        note_failure(failures, f"case_{number:02d}", DatasetError(f"case_{number:02d}.nii is empty"))
    note_failure(failures, "last", DatasetError("another"))
    assert capsys.readouterr().err.count("\n") == 2
    assert list_failures(failures, 50) == 2
    assert capsys.readouterr().err.splitlines() == [
        "warning: 46 of 50 cases failed:",
        "warning:   45 times (case_00, case_01, case_02, case_03, case_04 and 40 more): <case>.nii is empty",
        "warning:   last: another",
    ]
