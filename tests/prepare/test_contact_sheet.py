"""Contact sheets show every modality in three planes, with sides, distinct colours and the notice."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support.pictures import written  # noqa: F401 - a fixture
from veloxseg.image import Geometry
from veloxseg.image.views import palette
from veloxseg.machine import NOTICE
from veloxseg.prepare.contact_sheet import draw_contact_sheet
from veloxseg.prepare.plan import Normalisation

SHAPE = (40, 36, 30)


class Stored:
    """A prepared case in memory."""

    def __init__(self, plan: Any, label: Any) -> None:
        self.plan = plan
        self._label = label
        self._image = np.random.default_rng(0).normal(size=(len(plan.modalities), *SHAPE)).astype(np.float32)
        self.network = Geometry(shape=SHAPE, affine=np.diag([2.0, 2.0, 3.0, 1.0]))

    def image(self, name: str) -> Any:
        return self._image

    def label(self, name: str) -> Any:
        return self._label

    def placement(self, name: str) -> Any:
        return self


@pytest.fixture
def draw(tools: Any, tmp_path: Path) -> Callable[..., Any]:
    def drawn(label: Any, labels: dict[str, int], ignore: int | None = None) -> Any:
        plan = replace(tools.plan({"ct": "ct", "pet": "pet"}, (2, 2, 3)), labels=labels, ignore_label=ignore)
        hounsfield = Normalisation(scheme="clip_zscore", low=-900.0, high=300.0, mean=0.0, std=100.0)
        ct = replace(plan.modalities[0], normalisation=hounsfield)
        plan = replace(plan, modalities=(ct, plan.modalities[1]))
        draw_contact_sheet(Stored(plan, label), "anna", tmp_path / "anna.png")  # type: ignore[arg-type]
        return np.asarray(Image.open(tmp_path / "anna.png"))

    return drawn


def test_rows_columns_sides_and_notice(draw: Callable[..., Any], written: list[str]) -> None:  # noqa: F811
    label = np.zeros(SHAPE, np.uint8)
    label[10:20, 10:20, 10:20] = 1
    draw(label, {"background": 0, "lesion": 1})
    captions = {f"{name}, {plane}" for name in ("ct", "pet") for plane in ("axial", "coronal", "sagittal")}
    assert captions | {"R", "L", "A", "P", "S", "I", "lesion", NOTICE} <= set(written)
    assert any("40 × 36 × 30 voxels of 2 × 2 × 3 mm" in text for text in written)


def test_many_labels_do_not_share_colours(draw: Callable[..., Any]) -> None:
    label = np.zeros(SHAPE, np.uint8)
    for value in range(1, 10):
        label[4 * value - 3 : 4 * value, 8:28, 5:25] = value
    picture = draw(label, {"background": 0, **{f"organ {value}": value for value in range(1, 10)}})
    found = {tuple(colour) for colour in picture.reshape(-1, 3).tolist()}
    expected = set(palette(range(1, 10)).values())
    assert len(expected) == 9
    assert expected <= found


def test_a_case_without_label(draw: Callable[..., Any], written: list[str]) -> None:  # noqa: F811
    draw(np.zeros(SHAPE, np.uint8), {"background": 0, "lesion": 1})
    assert any(text.endswith("no label") for text in written)
