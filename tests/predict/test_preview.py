"""The preview shows what a reader needs: sides, scale, outlines; projections of PET and of nothing else."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support.pictures import written  # noqa: F401 - a fixture
from veloxseg.image import Geometry, Volume
from veloxseg.machine import NOTICE
from veloxseg.predict.extras import write_preview
from veloxseg.predict.preview import draw
from veloxseg.predict.result import Segmentation

GEOMETRY = Geometry(shape=(40, 36, 30), affine=np.diag([3.0, 3.0, 4.0, 1.0]))
ORANGE = (255, 90, 54)


def segmentation(names: dict[int, str]) -> Segmentation:
    """A lesion of each name, all of them on the patient's right."""
    labels = np.zeros(GEOMETRY.shape, np.uint16)
    for number, value in enumerate(names):
        labels[28:36, 5 + 3 * number : 8 + 3 * number, 8:20] = value
    volumes = {name: float((labels == value).sum() * GEOMETRY.voxel_ml) for value, name in names.items()}
    return Segmentation(
        labels=Volume(array=labels, geometry=GEOMETRY),
        names={0: "background", **names},
        volumes_ml=volumes,
        probabilities={},
        warnings=(),
        provenance={},
    )


def scan(kind: str) -> Volume:
    array = np.random.default_rng(0).random(GEOMETRY.shape, np.float32)
    if kind == "ct":
        array = array * 100 - 30
        array[:3] = -1000
    return Volume(array=array.astype(np.float32), geometry=GEOMETRY)


def test_sides_and_scale_are_written(written: list[str], tmp_path: Path) -> None:  # noqa: F811
    draw(segmentation({1: "lesion"}), scan("pet"), scan("ct"), tmp_path / "a.png", title="anna")
    assert {"R", "L", "A", "P", "S", "I", "anna", NOTICE, "PET, coronal projection", "CT + PET, axial"} <= set(written)
    assert any(text.startswith("lesion") and text.endswith("mL") for text in written)


@pytest.mark.parametrize(("kind", "name"), [("ct", "CT"), ("mr", "scan")])
def test_no_projection_without_pet(written: list[str], tmp_path: Path, kind: str, name: str) -> None:  # noqa: F811
    draw(segmentation({1: "lesion"}), None, scan(kind), tmp_path / "a.png", title="anna")
    assert not any("projection" in text for text in written)
    assert {f"{name}, {plane}" for plane in ("axial", "coronal", "sagittal")} < set(written)


def test_a_scan_of_no_known_kind_has_a_preview(tmp_path: Path) -> None:
    write_preview(segmentation({1: "lesion"}), {"ultrasound": scan("other")}, tmp_path / "a.png")  # type: ignore[arg-type]
    assert (tmp_path / "a.png").stat().st_size > 5000


def test_the_right_is_on_the_left_of_every_frontal_panel(tmp_path: Path) -> None:
    draw(segmentation({1: "lesion"}), scan("pet"), None, tmp_path / "a.png", title="")
    picture = np.asarray(Image.open(tmp_path / "a.png")).astype(int)
    panels = picture[60:]  # below the legend, whose text has the same colour
    columns = np.flatnonzero((np.abs(panels - ORANGE).max(axis=2) < 3).any(axis=0))
    first = columns[columns < picture.shape[1] / 5]  # the projection from the front comes first
    assert len(first)
    assert first.max() < picture.shape[1] / 10


def test_labels_that_shared_a_colour_are_told_apart(tmp_path: Path) -> None:
    """1 and 7 had the same colour, as had 2 and 8."""
    names = {value: f"organ {value}" for value in (1, 7, 2, 8)}
    draw(segmentation(names), None, scan("mr"), tmp_path / "a.png", title="")
    colours = {tuple(c) for c in np.asarray(Image.open(tmp_path / "a.png")).reshape(-1, 3).tolist()}
    saturated = {c for c in colours if max(c) - min(c) > 80}
    from veloxseg.image.views import palette

    assert set(palette(names).values()) <= saturated
    assert len(set(palette(names).values())) == 4
