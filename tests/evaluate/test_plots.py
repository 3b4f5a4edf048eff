"""Plots are drawn from the right numbers, and not at all where there are none."""

import io
from pathlib import Path

from PIL import Image

from veloxseg.evaluate import evaluate_folder
from veloxseg.evaluate.report import plots

from .conftest import cube, save


def test_plots_are_pictures(dataset: Path) -> None:
    found = evaluate_folder([dataset / "good", dataset / "bad"], dataset / "labels")
    drawn = [
        plots.case_dice(found),
        plots.dice_by_volume(found, "lesion"),
        plots.volume_scatter(found, "lesion"),
        plots.bland_altman(found, "lesion"),
    ]
    for png in drawn:
        assert png is not None
        image = Image.open(io.BytesIO(png))
        assert min(image.size) > 300
        assert len(image.convert("RGB").getcolors(1 << 24) or []) > 10
    assert drawn[0] == plots.case_dice(found)  # the scatter of the dots is seeded


def test_no_lesion_no_box(tmp_path: Path) -> None:
    save(tmp_path / "l" / "a.nii.gz", cube(2))
    save(tmp_path / "p" / "a.nii.gz", cube(2))
    found = evaluate_folder(tmp_path / "p", tmp_path / "l", regions={"none": (1,), "some": (2,)})
    assert plots.dice_by_volume(found, "none") is None
    assert plots.volume_scatter(found, "none") is None
    assert plots.bland_altman(found, "none") is None
    assert plots.dice_by_volume(found, "some") is not None


def test_bins_cover_every_volume() -> None:
    assert plots.bin_names() == ["<0.5", "0.5–1", "1–5", "5–20", "20–100", "≥100"]
