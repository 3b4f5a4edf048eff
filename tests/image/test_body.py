"""The body: lungs are filled, the couch's specks are not body, the box holds it all."""

import numpy as np
import pytest
from scipy.ndimage import binary_fill_holes

from veloxseg.image.body import body_box, body_mask, threshold


def chest() -> np.ndarray:
    ct = np.full((60, 50, 20), -1000, np.float32)
    ct[10:50, 8:40, :] = 40
    ct[18:28, 14:30, 3:17] = -850  # a lung
    ct[2:4, 2:4, 4:6] = 300  # a speck of metal beside the patient
    return ct


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_holes_are_filled_slice_by_slice(axis: int) -> None:
    random = np.random.default_rng(axis)
    ct = np.where(random.random((17, 19, 13)) < 0.85, 40, -1000).astype(np.float32)
    tissue = np.moveaxis(ct > -500, axis, 0)
    expected = np.moveaxis(np.stack([binary_fill_holes(plane) for plane in tissue]), 0, axis)
    np.testing.assert_array_equal(body_mask(ct, "ct", axis), expected)


def test_lung_is_body_and_a_speck_is_not() -> None:
    mask = body_mask(chest(), "ct", 2)
    assert mask[20:26, 16:28, 5:15].all()
    assert not mask[:5].any()


def test_box_holds_the_body() -> None:
    box = body_box(chest(), "ct", 2)
    assert box is not None
    assert [(part.start, part.stop) for part in box] == [(8, 52), (6, 42), (0, 20)]
    assert body_box(np.full((5, 5, 5), -1000, np.float32), "ct", 2) is None


def test_threshold_of_pet_is_not_moved_by_a_hot_spot() -> None:
    pet = np.zeros((40, 40, 40), np.float32)
    pet[5:35, 5:35, 5:35] = 0.6
    pet[10:16, 10:16, 10:16] = 30.0
    assert 0 < threshold(pet, "pet") < 0.6
