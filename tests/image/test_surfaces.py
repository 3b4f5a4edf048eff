"""Surfaces: true in size whatever the voxels, the patient's right on the left, the near before the far."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.ndimage import label

from veloxseg.image.surfaces import BACKGROUND, Camera, Layer, shaded
from veloxseg.types import Mask, Spacing

RED, YELLOW = (229, 57, 53), (255, 214, 0)


def ball(centre: tuple[float, float, float], radius: float, spacing: Spacing = (1.0, 1.0, 1.0), size: int = 60) -> Mask:
    """A ball in a cube of `size` mm; all in mm."""
    axes = [np.arange(round(size / mm)) * mm for mm in spacing]
    grid = np.meshgrid(*axes, indexing="ij")
    return sum((axis - c) ** 2 for axis, c in zip(grid, centre, strict=True)) <= radius**2


def painted(picture: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    return (np.abs(picture.astype(int) - BACKGROUND) > 8).any(axis=2)


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (0.7, 1.4, 3.0), (0.5, 0.4, 0.4)])
def test_a_ball_is_a_disc_of_its_size(spacing: Spacing) -> None:
    mask = ball((30, 30, 30), 20, spacing)
    camera = Camera.around(mask, spacing)
    seen = painted(shaded([Layer(camera.field(mask), RED)], camera))
    area = seen.sum() * camera.pixel[0] * camera.pixel[1]
    assert area == pytest.approx(np.pi * 20**2, rel=0.05)
    middle = (np.array(seen.shape) - 1) / 2
    assert np.argwhere(seen).mean(axis=0) == pytest.approx(middle, abs=0.02 * max(seen.shape))


def test_right_is_left_and_up_is_up() -> None:
    """A view's axes begin at the patient's right, front and head."""
    right_foot, left_head = ball((12, 30, 48), 6), ball((48, 30, 12), 6)
    camera = Camera.around(right_foot | left_head, (1.0, 1.0, 1.0))
    picture = shaded([Layer(camera.field(right_foot), RED), Layer(camera.field(left_head), YELLOW)], camera)
    yellow = np.argwhere(picture[:, :, 1] > 100).mean(axis=0)
    red = np.argwhere(painted(picture) & (picture[:, :, 1] <= 100)).mean(axis=0)
    assert red[0] < yellow[0]
    assert red[1] > yellow[1]


def test_the_near_hides_the_far() -> None:
    axis = Camera.around(ball((30, 30, 30), 5), (1.0, 1.0, 1.0)).axes[:, 2]
    middle = np.array([30.0, 30.0, 30.0])
    near, far = ball(tuple(middle - 15 * axis), 8), ball(tuple(middle + 15 * axis), 6)
    camera = Camera.around(near | far, (1.0, 1.0, 1.0))
    for order in (1, -1):
        layers = [Layer(camera.field(near), RED), Layer(camera.field(far), YELLOW)][::order]
        seen = shaded(layers, camera)
        assert (seen[painted(seen)][:, 1] < 120).all()


def test_what_is_thin_hides_little() -> None:
    inner = ball((30, 30, 30), 14)
    yellowness = []
    for thickness in (1, 10):
        outer = ball((30, 30, 30), 14 + thickness)
        camera = Camera.around(outer, (1.0, 1.0, 1.0))
        rim = np.minimum(camera.field(outer), 1 - camera.field(inner))
        seen = shaded([Layer(camera.field(inner), RED), Layer(rim, YELLOW, 3.0)], camera)
        column, row = (size // 2 for size in seen.shape[:2])
        yellowness.append(seen[column, row, 1] / seen[column, row, 0])
    assert yellowness[0] < 0.55 < 0.75 < yellowness[1]


def test_the_smallest_lesion_is_seen() -> None:
    mask = ball((20, 30, 30), 12)
    mask[52, 30, 30] = True
    camera = Camera.around(mask, (1.0, 1.0, 4.0))
    _, count = label(painted(shaded([Layer(camera.field(mask), RED)], camera)))
    assert count == 2


def test_nothing_is_drawn_of_nothing() -> None:
    mask = np.zeros((8, 8, 8), bool)
    camera = Camera.around(mask, (1.0, 1.0, 1.0))
    assert not painted(shaded([Layer(camera.field(mask), RED)], camera)).any()
