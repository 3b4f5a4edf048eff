"""Scores that cannot fool: seen cases are scored apart, and whatever is written says so."""

import csv
import json
import shutil
from pathlib import Path

import pytest

from veloxseg.cli import main
from veloxseg.evaluate import evaluate_folder, write_report

RECORD = {"models": [], "plan": {"labels": {"background": 0, "lesion": 1}}}


def note(folder: Path, statuses: dict[str, dict[str, object] | None]) -> None:
    """The JSON that predict leaves beside each mask."""
    for case, learning in statuses.items():
        record = RECORD if learning is None else {**RECORD, "learning": learning}
        (folder / f"{case}.json").write_text(json.dumps(record), encoding="utf-8")


def by_content(status: str, **more: object) -> dict[str, object]:
    return {"status": status, "by": "content", **more}


@pytest.fixture
def predictions(dataset: Path) -> Path:
    """case_0 was trained on, case_1 validated on, the other five are unseen."""
    statuses = {f"case_{number}": by_content("unseen") for number in range(2, 7)}
    note(dataset / "good", {"case_0": by_content("trained on"), "case_1": by_content("validated on"), **statuses})
    return dataset / "good"


def test_the_mean_is_of_unseen_cases_alone(dataset: Path, predictions: Path) -> None:
    evaluation = evaluate_folder(predictions, dataset / "labels")
    assert evaluation.cases == tuple(f"case_{number}" for number in range(2, 7))
    alone = dataset / "alone"
    alone.mkdir()
    for case in evaluation.cases:
        shutil.copy(dataset / "labels" / f"{case}.nii.gz", alone)
    assert evaluation.mean() == evaluate_folder(predictions, alone).mean()
    assert evaluation.apart is not None
    assert evaluation.apart.cases == ("case_0", "case_1")
    assert "2 of 7 cases were seen in training (1 trained on: case_0; 1 validated on: case_1)" in evaluation.warnings[0]


def test_terminal_json_csv_and_page_tell_seen_cases(
    dataset: Path, predictions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = dataset / "report"
    assert main(["evaluate", "-p", str(predictions), "-l", str(dataset / "labels"), "-o", str(report)]) == 0
    said = capsys.readouterr()
    assert "2 of 7 cases were seen in training" in said.err
    assert said.out.index("5 unseen cases:") < said.out.index("NOT in the figures above")
    metrics = json.loads((report / "metrics.json").read_text())
    assert metrics["learning"]["seen_in_training"] == {"case_0": "trained on", "case_1": "validated on"}
    assert metrics["learning"]["summary_is_of"] == "unseen cases"
    assert "seen in training" in metrics["warnings"][0]
    unseen = metrics["summary"]["good"]["lesion"]["metrics"]["dice"]
    seen = metrics["seen_in_training"]["summary"]["good"]["lesion"]["metrics"]["dice"]
    assert unseen["mean"] != seen["mean"]
    for name in ("metrics.csv", "per-lesion.csv"):
        with open(report / name, newline="") as file:
            statuses = {row["case"]: row["learning"] for row in csv.DictReader(file)}
        assert statuses["case_0"] == "trained on"
        assert statuses["case_1"] == "validated on"
        assert statuses["case_2"] == "unseen"
    page = (report / "report.html").read_text()
    assert "Summary of unseen cases" in page
    assert "Seen in training: 2 cases" in page
    assert "validated on" in page


def test_all_seen_is_said_unmistakably(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note(dataset / "good", {f"case_{number}": by_content("trained on") for number in range(7)})
    report = dataset / "report"
    assert main(["evaluate", "-p", str(dataset / "good"), "-l", str(dataset / "labels"), "-o", str(report)]) == 0
    said = capsys.readouterr()
    assert "EVERY CASE (7) WAS SEEN IN TRAINING" in said.out
    assert "EVERY CASE WAS SEEN IN TRAINING" in said.err
    assert json.loads((report / "metrics.json").read_text())["learning"]["every_case_was_seen"] is True
    assert "Every case was seen in training. No figure" in (report / "report.html").read_text()


def test_a_case_that_one_method_has_seen_is_apart_for_all(dataset: Path, predictions: Path) -> None:
    evaluation = evaluate_folder([dataset / "bad", predictions], dataset / "labels")
    assert "case_0" not in evaluation.cases
    assert evaluation.status("case_0", "bad") == "unknown"
    assert evaluation.status("case_0", "good") == "trained on"


def test_what_is_not_known_is_said_once(dataset: Path) -> None:
    note(dataset / "good", {"case_0": None, "case_1": None, "case_2": {"status": "unknown"}})
    warnings = evaluate_folder(dataset / "good", dataset / "labels").warnings
    assert [line for line in warnings if "unknown" in line] == [
        "whether 3 of 7 cases were seen in training is unknown: their model or record does not say it "
        "(case_0, case_1, case_2)"
    ]


def test_names_alone_and_namesakes_are_doubtful(dataset: Path) -> None:
    by_name = {"status": "trained on", "by": "name", "learnt_as": "case_0"}
    note(dataset / "good", {"case_0": by_name, "case_1": by_content("unseen", namesake=True)})
    warnings = evaluate_folder(dataset / "good", dataset / "labels").warnings
    assert "told apart by name alone, so a renamed training case is not noticed: case_0" in warnings[1]
    assert "unseen, but with the name of a training case and other voxels: case_1" in warnings[2]


def test_predictions_of_other_programs_are_scored_as_before(dataset: Path) -> None:
    evaluation = evaluate_folder(dataset / "good", dataset / "labels")
    assert len(evaluation.cases) == 7
    assert evaluation.apart is None
    assert not any("training" in line for line in evaluation.warnings)
    write_report(evaluation, dataset / "report")
    assert "<h2>Summary</h2>" in (dataset / "report" / "report.html").read_text()
