"""The page: whole, self-contained, safe against names, and the files beside it agree with it."""

import base64
import csv
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from veloxseg.cli import main
from veloxseg.evaluate import Evaluation, evaluate_folder, write_report
from veloxseg.evaluate.markup import VOID, element
from veloxseg.evaluate.report import chosen_cases

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
    for words in (
        "Research use only, not a medical device",
        "Correctly empty",
        "SHA-256",
        "is better",
        "case_3",
    ):
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
        [tmp_path / "<b>pred", tmp_path / "labels"],
        tmp_path / "labels",
        regions=regions,
        names=["</style>", "_$"],
    )
    page = Page(write_report(found, tmp_path / "report").read_text(encoding="utf-8"))
    names = [tag for tag, _ in page.tags]
    assert names.count("script") == names.count("style") == 1
    assert "b" not in [tag for tag, a in page.tags if tag == "b" and "pred" in str(a)]
    assert not any("onerror" in attributes for _, attributes in page.tags)
    assert evil in page.text
    assert "<script>alert(2)</script>" in page.text


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
    assert (
        content["provenance"]["sha256"]["labels"]["case_0"] == hashlib.sha256(label.read_bytes()).hexdigest()
    )
    with open(dataset / "report" / "per-lesion.csv", encoding="utf-8", newline="") as file:
        lesions = list(csv.DictReader(file))
    assert len(lesions) == 12  # six labelled lesions, two methods
    assert {row["found"] for row in lesions if row["case"] == "case_4" and row["method"] == "good"} == {
        "False"
    }


def test_chosen_cases(evaluation: Evaluation) -> None:
    assert chosen_cases(evaluation) == {"case_4": "Worst", "case_1": "Median", "case_6": "Best"}


def test_an_unreadable_image_is_left_out(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(7):
        (dataset / "images" / f"case_{number}_0000.nii.gz").write_bytes(b"")
    found = evaluate_folder(dataset / "good", dataset / "labels")
    page = Page(write_report(found, dataset / "report", dataset / "images").read_text(encoding="utf-8"))
    assert "PET, axial" in page.text
    assert "is empty" in capsys.readouterr().err


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


def test_a_wrong_grid_is_one_line_and_leaves_no_file(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(dataset / "good" / "case_2.nii.gz", cube()[:-1])
    paths = ["-p", str(dataset / "good"), "-l", str(dataset / "labels"), "-o", str(dataset / "out")]
    assert main(["evaluate", *paths]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("error: case 'case_2'")
    assert shown.err.count("\n") == 1
    assert list((dataset / "out").iterdir()) == []


def test_a_damaged_prediction_is_one_line(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = dataset / "good" / "case_2.nii.gz"
    path.write_bytes(path.read_bytes()[:-20])
    paths = ["-p", str(dataset / "good"), "-l", str(dataset / "labels"), "-o", str(dataset / "out")]
    assert main(["evaluate", *paths]) == 2
    shown = capsys.readouterr()
    assert "case_2.nii.gz" in shown.err
    assert shown.err.count("\n") == 1
    assert list((dataset / "out").iterdir()) == []


def test_imports_nothing_heavy() -> None:
    code = "import sys, veloxseg.evaluate, veloxseg.cli.evaluate; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"torch", "scipy", "matplotlib", "PIL", "rich", "SimpleITK"} & set(loaded)


def test_a_wrong_folder_of_images_is_said_first(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["-p", str(dataset / "good"), "-l", str(dataset / "labels"), "-o", str(dataset / "out")]
    assert main(["evaluate", *paths, "--images", str(dataset / "nowhere")]) == 2
    shown = capsys.readouterr()
    assert "nowhere does not exist" in shown.err
    assert shown.out == ""
