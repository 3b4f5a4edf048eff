"""The page: whole, self-contained, safe against names, and the files beside it agree with it."""

import base64
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from veloxseg.cli import main
from veloxseg.errors import OutputError
from veloxseg.evaluate import Evaluation, evaluate_folder, write_report
from veloxseg.evaluate.metrics import METRICS, Metric
from veloxseg.evaluate.report.html import VOID, element
from veloxseg.evaluate.report.page import chosen_cases
from veloxseg.image.regions import CONNECTIVITY

from .conftest import cube, save


class Page(HTMLParser):
    """Checks that tags close in order, and gathers text and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.text += data


@pytest.fixture
def evaluation(dataset: Path) -> Evaluation:
    return evaluate_folder([dataset / "good", dataset / "bad"], dataset / "labels")


def test_the_page(evaluation: Evaluation, dataset: Path) -> None:
    path = write_report(evaluation, dataset / "report", dataset / "images")
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    names = [tag for tag, _ in page.tags]
    assert not {"link", "iframe", "object", "embed", "base", "form", "a"} & set(names)
    for _, attributes in page.tags:
        assert not any(key.startswith("on") for key in attributes), attributes
        assert "href" not in attributes
        if "src" in attributes:
            assert (attributes["src"] or "").startswith("data:image/png;base64,")
            assert attributes["alt"]
    assert not re.search(r"https?://|url\(|@import", text)
    for words in ("Research use only, not a medical device", "Correctly empty", "SHA-256", "is better", "case_3"):
        assert words.lower() in page.text.lower()
    assert "PET MIP, front" in page.text
    assert "CT, axial" in page.text
    assert re.findall(r"(?:Worst|Median|Best): case_\d", page.text) == [
        "Worst: case_4",
        "Median: case_1",
        "Best: case_6",
    ]
    assert "table.sortable" in page.scripts[0]
    assert ("table", {"class": "sortable", "id": "cases"}) in page.tags


def test_only_our_script_may_run(evaluation: Evaluation, dataset: Path) -> None:
    page = Page(write_report(evaluation, dataset / "report").read_text(encoding="utf-8"))
    (policy,) = (a["content"] or "" for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    (script,) = page.scripts
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{allowed}'" in policy
    assert "default-src 'none'" in policy


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)> & \"'$x_1$"
    for folder in ("labels", "<b>pred"):
        save(tmp_path / folder / f"{evil}.nii.gz", cube())
        save(tmp_path / folder / "other.nii.gz", cube())
    regions = {"<script>alert(2)</script>": (1,), "$\\frac{": (1,)}
    found = evaluate_folder(
        [tmp_path / "<b>pred", tmp_path / "labels"], tmp_path / "labels", regions=regions, names=["</style>", "_$"]
    )
    page = Page(write_report(found, tmp_path / "report").read_text(encoding="utf-8"))
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == names.count("style") == 1
    assert "b" not in [tag for tag, a in page.tags if tag == "b" and "pred" in str(a)]
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert evil in page.text
    assert "<script>alert(2)</script>" in page.text


def test_a_name_that_is_no_unicode_is_reported(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")  # latin-1, as old archives have it
    for folder in ("labels", "predicted"):
        save(tmp_path / folder / f"{name}.nii.gz", cube())
    page = write_report(evaluate_folder(tmp_path / "predicted", tmp_path / "labels"), tmp_path / "report")
    assert r"caf\udce9" in page.read_text(encoding="utf-8")
    assert r"caf\udce9" in (tmp_path / "report" / "metrics.csv").read_text(encoding="utf-8")


def test_element_escapes() -> None:
    assert element("p", "<", element("b", "&"), title='"') == '<p title="&quot;">&lt;<b>&amp;</b></p>'
    assert element("img", alt="x", hidden=True, lazy=False) == '<img alt="x" hidden>'


def test_files_beside_the_page(evaluation: Evaluation, dataset: Path) -> None:
    write_report(evaluation, dataset / "report")
    content = json.loads((dataset / "report" / "metrics.json").read_text(encoding="utf-8"))
    with open(dataset / "report" / "metrics.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(content["cases"]) == 14
    for row, case in zip(rows, content["cases"], strict=True):
        assert row["dice"] == ("" if case["dice"] is None else f"{case['dice']:.6g}")
    assert content["summary"]["good"]["lesion"]["metrics"]["dice"]["count"] == 6
    assert content["summary"]["good"]["lesion"]["outcomes"]["missed"] == 1
    assert content["missing_predictions"] == {"good": [], "bad": ["case_6"]}
    assert content["notice"] == "research use only, not a medical device"
    assert len(content["comparisons"]) == 6
    label = dataset / "labels" / "case_0.nii.gz"
    assert content["provenance"]["sha256"]["labels"]["case_0"] == hashlib.sha256(label.read_bytes()).hexdigest()
    with open(dataset / "report" / "per-lesion.csv", encoding="utf-8", newline="") as file:
        lesions = list(csv.DictReader(file))
    assert len(lesions) == 12  # six labelled lesions, two methods
    assert {row["found"] for row in lesions if row["case"] == "case_4" and row["method"] == "good"} == {"False"}


def test_chosen_cases(evaluation: Evaluation) -> None:
    assert chosen_cases(evaluation) == {"case_4": "Worst", "case_1": "Median", "case_6": "Best"}


def test_an_unreadable_image_is_left_out(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(7):
        (dataset / "images" / f"case_{number}_0000.nii.gz").write_bytes(b"")
    found = evaluate_folder(dataset / "good", dataset / "labels")
    page = Page(write_report(found, dataset / "report", dataset / "images").read_text(encoding="utf-8"))
    assert "PET, axial" in page.text
    assert "is empty" in capsys.readouterr().err


def test_secondary_metrics_do_not_weaken_the_primary_one(tmp_path: Path) -> None:
    """Six differing cases give p = 0.031: enough for one structure by Dice, whatever else is measured."""
    for number in range(6):
        save(tmp_path / "labels" / f"{number}.nii.gz", cube(start=1, stop=11))
        save(tmp_path / "good" / f"{number}.nii.gz", cube(start=1, stop=10 - number % 2))
        save(tmp_path / "poor" / f"{number}.nii.gz", cube(start=2, stop=8 - number))
    found = evaluate_folder([tmp_path / "good", tmp_path / "poor"], tmp_path / "labels")
    (dice,) = (comparison for comparison in found.comparisons if comparison.primary)
    assert dice.p_holm == dice.p == pytest.approx(0.03125)
    assert dice.verdict == "good is better"
    content = found.to_json()["comparisons"]
    assert [entry["metric"] for entry in content if entry["primary"]] == ["dice"]
    assert all(entry["p_holm"] is None for entry in content if not entry["primary"])


def test_a_metric_is_one_entry_in_one_table(
    dataset: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = Metric(
        title="Jaccard",
        definition="|P∩L| / |P∪L|.",
        value=lambda pair: pair.shared / (pair.predicted + pair.labelled - pair.shared),
        better="higher",
    )
    monkeypatch.setitem(METRICS, "jaccard", toy)
    folders = ["-p", str(dataset / "good"), "-p", str(dataset / "bad"), "-l", str(dataset / "labels")]
    assert main(["evaluate", *folders, "-o", str(dataset / "out")]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^structure .* Jaccard ", shown, re.MULTILINE)
    assert re.search(r"^lesion +Jaccard +bad − good +-0\.\d{3}", shown, re.MULTILINE)
    content = json.loads((dataset / "out" / "metrics.json").read_text(encoding="utf-8"))
    expected = 125 / 216
    assert content["cases"][1]["jaccard"] == pytest.approx(expected)
    assert content["cases"][4]["jaccard"] == 0  # missed
    assert content["summary"]["good"]["lesion"]["metrics"]["jaccard"]["count"] == 6
    assert "Jaccard" in content["policy"]["missed"]
    with open(dataset / "out" / "metrics.csv", encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file))[1]["jaccard"] == f"{expected:.6g}"
    page = Page((dataset / "out" / "report.html").read_text(encoding="utf-8"))
    assert "|P∩L| / |P∪L|." in page.text
    assert page.text.count("Jaccard") >= 4  # summary, comparison, cases, definition
    assert f"{expected:.3f}" in page.text


def test_the_report_says_what_a_lesion_is(evaluation: Evaluation, dataset: Path) -> None:
    page = Page(write_report(evaluation, dataset / "report").read_text(encoding="utf-8"))
    settings = json.loads((dataset / "report" / "metrics.json").read_text(encoding="utf-8"))["settings"]
    assert settings["lesion_connectivity"] == CONNECTIVITY == 18
    for text in (page.text, settings["lesion"]):
        assert "18-connected component" in text
        assert "AutoPET" in text
    assert "never the thickness of a slice" in page.text
    assert "thickness" in settings["nsd_tolerance_rule"]


@pytest.mark.parametrize("beside", ["label", "prediction"])
def test_a_value_past_255_beside_uint8(tmp_path: Path, beside: str) -> None:
    large = cube().astype(np.uint16)
    large[12:, 10:, 9:] = 300
    save(tmp_path / "l" / "a.nii.gz", large if beside == "prediction" else cube())
    save(tmp_path / "p" / "a.nii.gz", large if beside == "label" else cube())
    paths = ["-p", str(tmp_path / "p"), "-l", str(tmp_path / "l"), "-o", str(tmp_path / "out")]
    assert main(["evaluate", *paths]) == 0
    content = json.loads((tmp_path / "out" / "metrics.json").read_text(encoding="utf-8"))
    assert content["structures"] == {"label 1": [1], "label 300": [300]}


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
def test_no_cell_is_a_formula(tmp_path: Path, start: str) -> None:
    name = f'{start}HYPERLINK("x")'
    for folder in ("l", "p"):
        save(tmp_path / folder / f"{name}.nii.gz", cube(stop=9 if folder == "l" else 7))
    found = evaluate_folder(tmp_path / "p", tmp_path / "l", regions={name: (1,)}, names=[name])
    write_report(found, tmp_path / "out")
    for file in ("metrics.csv", "per-lesion.csv"):
        with open(tmp_path / "out" / file, encoding="utf-8", newline="") as stream:
            (row,) = csv.DictReader(stream)
        assert row["method"] == row["case"] == row["structure"] == f"'{name}"
        for key, text in row.items():
            if text.startswith("-"):
                assert float(text) < 0, key  # a negative number is still a number
    assert float(row["volume_ml"]) > 0


def test_predictions_are_not_overwritten(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A report goes into the folder of the predictions, but not over the JSON of a case called `metrics`."""
    paths = ["-p", str(dataset / "good"), "-l", str(dataset / "labels"), "-o", str(dataset / "good")]
    for folder in ("labels", "good"):
        (dataset / folder / "case_0.nii.gz").rename(dataset / folder / "metrics.nii.gz")
    record = dataset / "good" / "metrics.json"
    record.write_text('{"notice": "research use only, not a medical device", "models": []}', encoding="utf-8")
    before = {path: path.read_bytes() for path in (dataset / "good").iterdir()}
    assert main(["evaluate", *paths]) == 2
    assert "metrics.json exists and is not of a report" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (dataset / "good").iterdir()} == before
    record.unlink()
    del before[record]
    assert main(["evaluate", *paths]) == 0
    assert main(["evaluate", *paths]) == 0  # an earlier report is replaced
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("name", ["report.html", "metrics.csv", "per-lesion.csv", "metrics.json"])
def test_a_file_of_another_program_stays(evaluation: Evaluation, dataset: Path, name: str) -> None:
    (dataset / "out").mkdir()
    (dataset / "out" / name).write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match=f"{name} exists and is not of a report"):
        write_report(evaluation, dataset / "out")
    assert [(path.name, path.read_text(encoding="utf-8")) for path in (dataset / "out").iterdir()] == [(name, "mine")]


def test_the_command(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = ["-p", str(dataset / "good"), "-p", str(dataset / "bad"), "-l", str(dataset / "labels")]
    assert main(["evaluate", *folders, "-o", str(dataset / "out"), "--names", "new", "old"]) == 0
    shown = capsys.readouterr()
    assert {p.name for p in (dataset / "out").iterdir()} == {
        "report.html",
        "metrics.json",
        "metrics.csv",
        "per-lesion.csv",
    }
    assert "no prediction for 1 of 7 cases, counted as failures: case_6" in shown.err
    assert re.search(r"^lesion +new +6 +0\.\d{3}", shown.out, re.MULTILINE)
    assert "policy:" in shown.out
    assert shown.out.rstrip().endswith("report.html")


def test_a_wrong_grid_is_one_line_and_leaves_no_file(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(dataset / "good" / "case_2.nii.gz", cube()[:-1])
    paths = ["-p", str(dataset / "good"), "-l", str(dataset / "labels"), "-o", str(dataset / "out")]
    assert main(["evaluate", *paths]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: case 'case_2'")
    assert shown.err.count("\n") == 1
    assert not (dataset / "out").exists()  # an empty folder would look like a result


def test_a_damaged_prediction_is_one_line(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = dataset / "good" / "case_2.nii.gz"
    path.write_bytes(path.read_bytes()[:-20])
    paths = ["-p", str(dataset / "good"), "-l", str(dataset / "labels"), "-o", str(dataset / "out")]
    assert main(["evaluate", *paths]) == 2
    shown = capsys.readouterr()
    assert "case_2.nii.gz" in shown.err
    assert shown.err.count("\n") == 1
    assert not (dataset / "out").exists()  # an empty folder would look like a result


def test_imports_nothing_heavy() -> None:
    code = "import sys, veloxseg.evaluate, veloxseg.cli.evaluate; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "scipy", "matplotlib", "PIL", "rich", "SimpleITK"} & set(loaded)


def test_a_wrong_folder_of_images_is_said_first(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["-p", str(dataset / "good"), "-l", str(dataset / "labels"), "-o", str(dataset / "out")]
    assert main(["evaluate", *paths, "--images", str(dataset / "nowhere")]) == 2
    shown = capsys.readouterr()
    assert "nowhere does not exist" in shown.err
    assert shown.out == ""


def test_the_scan_behind_the_masks_is_chosen(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", "-p", dataset / "good", "-l", dataset / "labels", "--images", dataset / "images"]
    assert main([*map(str, words), "-o", str(dataset / "out"), "--behind", "pet"]) == 0
    page = Page((dataset / "out" / "report.html").read_text(encoding="utf-8"))
    assert "PET, axial" in page.text
    assert "CT, axial" not in page.text
    assert main([*map(str, words), "-o", str(dataset / "other"), "--behind", "t2"]) == 2
    assert "no case has an image 't2' to draw on" in capsys.readouterr().err
