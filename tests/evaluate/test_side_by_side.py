"""The grid of methods × cases: the paper's colours, the cases that were named, Dice under each picture."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from veloxseg.cli import main
from veloxseg.evaluate import evaluate_folder
from veloxseg.evaluate.report.side_by_side import _picture, structure_colours
from veloxseg.image.surfaces import Camera

from .conftest import cube, save


def shares(png: bytes) -> dict[str, float]:
    """How much of the painted picture is red, yellow, green or blue."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).reshape(-1, 3).astype(int)
    pixels = pixels[(pixels.max(axis=1) > 60) & (np.ptp(pixels, axis=1) > 40)]
    red, green, blue = pixels.T
    found = {
        "red": (red > 2 * green) & (red > 2 * blue),
        "yellow": (red > 2 * blue) & (green > 1.2 * blue) & (2 * green > red),
        "green": (green > 1.2 * red) & (green > 1.2 * blue),
        "blue": (blue > 1.3 * red),
    }
    return {name: float(part.mean()) for name, part in found.items()}


def test_colours_of_agreement() -> None:
    label = cube(start=3, stop=11)
    camera = Camera.around(label > 0, (2.0, 2.0, 3.0))
    for prediction, truth, colour in ((label, label, "red"), (label, 0 * label, "yellow"), (0 * label, label, "blue")):
        found = shares(_picture(prediction, truth, {"lesion": (1,)}, camera))
        assert max(found, key=found.get) == colour
        assert found[colour] > 0.8


def test_colours_of_a_glioma() -> None:
    regions = {"WT": (1, 2, 4), "TC": (1, 4), "ET": (4,)}
    label = cube(value=2, start=1, stop=11)
    label[4:8, 4:8, 4:8] = 4
    camera = Camera.around(label > 0, (2.0, 2.0, 3.0))
    found = shares(_picture(label, label, regions, camera))
    assert found["green"] > 0.5
    assert shares(_picture(np.where(label == 4, 4, 0), label, regions, camera))["red"] > 0.8
    assert list(structure_colours(regions)) == ["WT", "TC", "ET"]
    others = structure_colours({"GTVp": (1,), "GTVn": (2,)})
    assert len(set(others.values())) == 2


def test_named_cases_and_methods(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every named case is a row, and `-p NAME=FOLDER` names a method whatever made its masks."""
    words = f"evaluate -p ours={dataset}/good -p nnU-Net={dataset}/bad -l {dataset}/labels -o {dataset}/report"
    assert main([*words.split(), "--cases", "case_6", "case_0", "case_1", "case_2"]) == 0
    page = (dataset / "report" / "report.html").read_text(encoding="utf-8")
    grid = page[page.index("Side by side") : page.index("<h2>Pictures")]
    assert re.findall(r"<h3>(case_\d)</h3>", grid) == ["case_6", "case_0", "case_1", "case_2"]
    assert len(re.findall(r"<b>(?:Reference|ours|nnU-Net)</b>", grid)) == 4 * 3
    assert grid.count("data:image/png") == 4 * 3 - 1  # of case_6 one method has no prediction
    assert "no prediction" in grid
    found = evaluate_folder([dataset / "good", dataset / "bad"], dataset / "labels")
    for method, case in (("good", "case_1"), ("bad", "case_2")):
        assert f"Dice {found.case_dice(method)[case]:.3f}" in grid
    with_both = [*words.split(), "--names", "a", "b"]
    assert main(with_both) == 2
    assert "one way" in capsys.readouterr().err


def test_a_case_without_anything_has_no_surface(tmp_path: Path) -> None:
    for folder in ("labels", "masks"):
        save(tmp_path / folder / "full.nii.gz", cube())
        save(tmp_path / folder / "empty.nii.gz", 0 * cube())
    words = f"evaluate -p {tmp_path}/masks -l {tmp_path}/labels -o {tmp_path}/report --cases empty full"
    assert main(words.split()) == 0
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "nothing is labelled or predicted" in page
