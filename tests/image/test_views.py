"""Patients are shown as radiologists look, whatever the file's axes; windows follow the kind; colours are distinct."""

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from veloxseg.image import Geometry
from veloxseg.image.drawing import Panel, draw_panel, draw_sheet
from veloxseg.image.views import (
    AXIAL,
    CORONAL,
    PLANES,
    SAGITTAL,
    View,
    fused,
    grey_level,
    palette,
    shown_box,
    to_radiological,
    widest_cut,
    window,
)
from veloxseg.machine import NOTICE


def marked(place: tuple[int, int, int]) -> View:
    """A body in RAS+ order of 20 × 30 × 40 voxels of 1 × 2 × 3 mm, with one bright voxel."""
    array = np.zeros((20, 30, 40), np.float32)
    array[place] = 1
    return to_radiological(array, Geometry(shape=(20, 30, 40), affine=np.diag([1.0, 2.0, 3.0, 1.0])))


def bright(picture: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Where the bright voxel is in a picture: the part of the way from left to right and from top to bottom."""
    column, row = np.argwhere(picture > 0)[0]
    return column / (picture.shape[0] - 1), row / (picture.shape[1] - 1)


def test_the_letters_are_true() -> None:
    """A voxel at the patient's right, front and head lies where the letters R, A and S stand, and so the opposite."""
    assert [plane.letters for plane in PLANES] == ["RLAP", "RLSI", "APSI"]  # left, right, top, bottom
    assert all(bright(marked((19, 29, 39)).projection(plane)) == (0, 0) for plane in PLANES)
    assert all(bright(marked((0, 0, 0)).projection(plane)) == (1, 1) for plane in PLANES)


def test_cuts_and_proportions() -> None:
    view = marked((19, 29, 39))
    assert view.pixel(AXIAL) == (1, 2)
    assert view.pixel(CORONAL) == (1, 3)
    assert view.pixel(SAGITTAL) == (2, 3)
    assert view.cut(AXIAL, (0, 0, 0)).shape == (20, 30)
    assert view.cut(SAGITTAL, (0, 0, 0)).max() == 1
    assert view.cut(SAGITTAL, (1, 0, 0)).max() == 0
    panel = Panel(picture=grey_level(view.projection(SAGITTAL), (0, 1)), plane=SAGITTAL, pixel=view.pixel(SAGITTAL))
    drawn = draw_panel(panel)
    assert drawn.width / drawn.height == pytest.approx(60 / 120, rel=0.02) == pytest.approx(panel.aspect, rel=0.02)
    assert draw_panel(panel, scale=2.0).size == (120, 240)


def test_windows_follow_the_kind() -> None:
    image = np.linspace(-1000, 1000, 10_000).reshape(10, 10, 100)
    assert window(image, "ct") == (-160, 240)
    assert window(image - image.min(), "pet")[0] == 0
    low, high = window(image, "mr")
    assert -1000 < low < high < 1000
    assert window(image / 500, "pet", air=-2.0)[0] == -2  # normalised: black is air, wherever that is
    assert window(image / 500, "ct", air=-2.0)[1] < 3
    flat = window(np.zeros((3, 3, 3)), "mr")
    assert flat[0] < flat[1]
    assert grey_level(np.array([0.0, 1.0]), (0, 1)).tolist() == [0, 255]
    assert grey_level(np.array([0.0, 1.0]), (0, 1), "pet").tolist() == [255, 0]  # hot is dark


def test_only_what_is_hot_covers_the_anatomy() -> None:
    anatomy = np.full((2, 1), 100, np.uint8)
    cold, hot = fused(anatomy, np.array([[0.0], [5.0]]), (0.0, 5.0))[:, 0]
    assert cold.tolist() == [100, 100, 100]
    assert hot.min() > 200


def test_many_labels_have_distinct_colours() -> None:
    colours = palette(range(1, 41))
    for (_, one), (_, other) in itertools.combinations(colours.items(), 2):
        assert np.linalg.norm(np.subtract(one, other)) > 40
    assert palette([1, 7])[7] == colours[7]  # the same in every picture
    assert len(set(palette(range(1, 121)).values())) == 120
    assert palette([0, 3], ignore=3) == {3: (160, 160, 160)}


def test_the_widest_cut_goes_through_the_largest_lesion() -> None:
    mask = np.zeros((20, 20, 20), bool)
    mask[2:5, 2:5, 2:5] = True
    mask[10:11, 10:12, 10:12] = True
    assert widest_cut(mask) == (3, 3, 3)
    assert widest_cut(np.zeros((4, 6, 8), bool)) == (2, 3, 4)


def test_air_is_cropped_but_no_lesion() -> None:
    image, mask = np.full((20, 20, 20), -1000.0), np.zeros((20, 20, 20), bool)
    image[5:15, 5:15, 5:15] = 40
    mask[17, 10, 10] = True
    assert shown_box(image, (-160, 240), mask) == (slice(5, 18), slice(5, 15), slice(5, 15))
    assert shown_box(np.zeros((4, 5, 6)), (0, 1), np.zeros((4, 5, 6), bool)) == (slice(0, 4), slice(0, 5), slice(0, 6))


def test_a_panel_has_contours_and_letters(written: list[str]) -> None:
    code = np.zeros((60, 60), np.uint16)
    code[20:40, 20:40] = 300  # a label past 255
    panel = Panel(
        picture=np.full((60, 60), 90, np.uint8), plane=AXIAL, pixel=(2.0, 2.0), code=code, colours={300: (255, 0, 0)}
    )
    drawn = np.asarray(draw_panel(panel)).astype(int)
    red = (drawn == (255, 0, 0)).all(axis=2)
    assert red.any()
    middle = drawn.shape[0] // 2
    assert drawn[middle, middle].tolist() == [90, 90, 90]  # a contour, not a fill
    assert {"R", "L", "A", "P"} < set(written)
    assert any(text.endswith("cm") for text in written)


def test_a_sheet_has_a_title_a_legend_and_the_notice(written: list[str]) -> None:
    panel = Panel(picture=np.zeros((40, 40), np.uint8), plane=CORONAL, pixel=(1.0, 1.0), caption="CT")
    legend = [(f"a label with a long name {number}", (255, 255, 255)) for number in range(9)]
    sheet = draw_sheet([[panel], [panel]], "Straße 日本", legend)
    assert {"Straße 日本", "CT", NOTICE, "R", "L", "S", "I", legend[-1][0]} < set(written)
    narrow = draw_sheet([[panel]], "x", legend[:1])
    assert sheet.height > 2 * narrow.height - 200
