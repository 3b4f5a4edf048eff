"""Pictures: the right side is on the left whatever the file's axes, colours and proportions are right."""

import io
import itertools

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from veloxseg.errors import ConfigError
from veloxseg.evaluate.report.pictures import COLOURS, agreement, draw_case, drawn_on, focus, shown_images
from veloxseg.image import Geometry
from veloxseg.image.views import to_radiological

ORIENTATIONS = [
    (order, signs) for order in itertools.permutations(range(3)) for signs in itertools.product((1, -1), repeat=3)
]


def patient() -> npt.NDArray[np.uint8]:
    """In RAS+ order: a mark at the far right, anterior, superior corner."""
    array = np.zeros((8, 10, 12), np.uint8)
    array[-1, -1, -1] = 1
    return array


@pytest.mark.parametrize(("order", "signs"), ORIENTATIONS)
def test_turned_as_radiologists_look(order: tuple[int, ...], signs: tuple[int, ...]) -> None:
    spacing = np.array([1.0, 2.0, 3.0])  # along right, anterior, superior
    array = np.transpose(patient(), order)[tuple(slice(None, None, sign) for sign in signs)]
    affine = np.eye(4)
    affine[:3, :3] = 0
    for axis, (world, sign) in enumerate(zip(order, signs, strict=True)):
        affine[world, axis] = sign * spacing[world]
    x, y, z = array.shape
    view = to_radiological(array, Geometry(shape=(x, y, z), affine=affine))
    assert view.array[0, 0, 0] == 1  # right, anterior and superior come first: left and top of the picture
    assert view.array.shape == (8, 10, 12)
    assert view.spacing == pytest.approx((1, 2, 3))


def test_agreement() -> None:
    prediction, label = np.array([0, 1, 0, 1, 2]), np.array([0, 1, 1, 0, 1])
    assert agreement(prediction, label).tolist() == [0, 1, 3, 2, 4]
    assert list(COLOURS) == ["true positive", "false positive", "false negative", "wrong structure"]
    red, yellow, blue = (COLOURS[name] for name in list(COLOURS)[:3])
    assert red[0] > 2 * max(red[1:])
    assert min(yellow[:2]) > 200 > yellow[2]
    assert blue[2] > 2 * max(blue[:1])


def test_focus_is_on_the_largest_labelled_lesion() -> None:
    code = np.zeros((20, 20, 20), np.uint8)
    code[2:5, 2:5, 2:5] = 3  # missed, 27 voxels
    code[10:11, 10:12, 10:12] = 1
    code[14:20, 14:20, 14:20] = 2  # larger, but only predicted
    assert all(2 <= place < 5 for place in focus(code))
    code[code != 2] = 0
    assert all(14 <= place < 20 for place in focus(code))
    assert focus(np.zeros((4, 6, 8), np.uint8)) == (2, 3, 4)


def decode(png: bytes) -> npt.NDArray[np.int64]:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(np.int64)


def count(picture: npt.NDArray[np.int64], colour: tuple[int, int, int]) -> int:
    return int(np.count_nonzero((np.abs(picture - colour) < 3).all(axis=2)))


def scene() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], Geometry, dict[str, npt.NDArray[np.float32]]]:
    label, prediction = np.zeros((40, 30, 20), np.uint8), np.zeros((40, 30, 20), np.uint8)
    label[25:35, 10:20, 5:15] = 1  # in RAS+, a high x is the patient's right
    prediction[28:35, 10:20, 5:15] = 1
    prediction[2:6, 2:6, 8:12] = 1
    geometry = Geometry(shape=(40, 30, 20), affine=np.diag([1.0, 1.0, 4.0, 1.0]))
    images = {"ct": np.full(label.shape, 40, np.float32), "pet": label.astype(np.float32) * 5 + 0.5}
    images["ct"][0] = -1000
    return prediction, label, geometry, images


def test_colours_and_proportions() -> None:
    prediction, label, geometry, images = scene()
    pictures = {picture.title: picture for picture in draw_case(prediction, label, geometry, images, [1])}
    assert list(pictures) == ["CT, axial", "CT, coronal", "PET MIP, front", "PET MIP, side"]
    axial = decode(pictures["CT, axial"].png)
    for name in ("true positive", "false positive", "false negative"):
        assert count(axial, COLOURS[name]) > 20, name
    assert count(axial, COLOURS["wrong structure"]) == 0
    columns = np.flatnonzero((np.abs(axial - COLOURS["true positive"]) < 3).all(axis=2).any(axis=0))
    assert columns.max() < axial.shape[1] / 2  # the patient's right is on the left
    front = decode(pictures["PET MIP, front"].png)
    assert front.shape[1] / front.shape[0] == pytest.approx(40 / (20 * 4), rel=0.02)
    assert pictures["PET MIP, front"].aspect == pytest.approx(0.5)
    side = decode(pictures["PET MIP, side"].png)
    assert side.shape[1] / side.shape[0] == pytest.approx(30 / (20 * 4), rel=0.02)


def test_a_small_lesion_gets_a_close_up() -> None:
    prediction, label, geometry, images = scene()
    prediction[:20] = 0
    wide = Geometry(shape=geometry.shape, affine=np.diag([5.0, 5.0, 5.0, 1.0]))
    pictures = list(draw_case(prediction, label, wide, images, [1]))
    assert pictures[1].title == "CT, axial, close-up"
    near, whole = decode(pictures[1].png), decode(pictures[0].png)
    red = COLOURS["true positive"]
    assert count(near, red) / near.size > 1.2 * count(whole, red) / whole.size


def test_values_outside_the_structures_are_not_drawn() -> None:
    prediction, label, geometry, images = scene()
    label[20:22, 10:20, 8:12] = 9
    pictures = list(draw_case(prediction, label, geometry, images, [1]))
    label[label == 9] = 0
    without = list(draw_case(prediction, label, geometry, images, [1]))
    assert [p.png for p in pictures] == [p.png for p in without]


def test_without_images_and_without_anything() -> None:
    prediction, label, geometry, _ = scene()
    assert [p.title for p in draw_case(prediction, label, geometry, {}, [1])] == ["axial", "coronal"]
    nothing = np.zeros_like(label)
    assert len(list(draw_case(nothing, nothing, geometry, {}, [1]))) == 2


def test_shown_images() -> None:
    assert shown_images(["pet", "ct", "mask"]) == ["ct", "pet"]
    assert shown_images(["t2", "flair"]) == ["flair"]
    assert shown_images(["pet"]) == ["pet"]
    assert shown_images(["channel 0", "channel 1"]) == ["channel 0"]
    assert shown_images([]) == []


def test_the_sequence_behind_can_be_chosen() -> None:
    images = {"a": {"t1ce": 1, "t2": 2, "pet": 3}, "b": {"t1ce": 4}}
    assert drawn_on(images, "T2") == {"a": {"t2": 2, "pet": 3}, "b": {}}
    assert shown_images(drawn_on(images, "t2")["a"]) == ["t2", "pet"]
    assert shown_images(drawn_on(images, "pet")["a"]) == ["pet"]
    assert shown_images(["pet", "t2"]) == ["t2", "pet"]  # PET has pictures of its own
    with pytest.raises(ConfigError, match="no case has an image 'dwi' to draw on; there is t1ce, t2, pet"):
        drawn_on(images, "dwi")
