"""Lesion numbers against values that can be worked out by hand."""

import numpy as np
import pytest

from veloxseg.image import Geometry, Volume
from veloxseg.predict.lesion_table import lesion_statistics
from veloxseg.predict.result import Segmentation


@pytest.fixture
def two_lesions() -> tuple[Segmentation, Volume]:
    """A cube of 1 mL at SUV 4 with one voxel of 9, and a single voxel at SUV 2; 2 mm voxels, origin at 10 mm."""
    labels = np.zeros((30, 30, 30), np.uint8)
    labels[5:10, 5:10, 5:10] = 1
    labels[20, 20, 20] = 1
    uptake = np.ones(labels.shape, np.float32)
    uptake[labels > 0] = 4
    uptake[7, 7, 7] = 9
    uptake[20, 20, 20] = 2
    affine = np.diag([2.0, 2.0, 2.0, 1.0])
    affine[:3, 3] = 10
    geometry = Geometry(shape=labels.shape, affine=affine)
    result = Segmentation(
        labels=Volume(array=labels, geometry=geometry),
        names={0: "background", 1: "lesion"},
        volumes_ml={"lesion": 126 * 0.008},
        probabilities={},
        warnings=(),
        provenance={},
    )
    return result, Volume(array=uptake, geometry=geometry)


def test_volume_uptake_and_totals(two_lesions):
    result, pet = two_lesions
    found = lesion_statistics(result, pet)["labels"]["lesion"]
    large, small = found["lesions"]
    assert found["count"] == 2
    assert large["volume_ml"] == pytest.approx(1.0)
    assert large["suv_max"] == 9
    assert large["suv_mean"] == pytest.approx((124 * 4 + 9) / 125)
    assert large["tlg"] == pytest.approx((124 * 4 + 9) * 0.008)
    assert large["centre_ras_mm"] == [24.0, 24.0, 24.0]
    assert small["suv_max"] == small["suv_mean"] == 2
    assert found["mtv_ml"] == pytest.approx(126 * 0.008)
    assert found["tlg"] == pytest.approx(large["tlg"] + small["tlg"])


def test_peak_is_the_mean_over_a_millilitre(two_lesions):
    result, pet = two_lesions
    large, small = lesion_statistics(result, pet)["labels"]["lesion"]["lesions"]
    offsets = np.stack(np.meshgrid(*[np.arange(-3, 4)] * 3, indexing="ij")) * 2.0
    sphere = (offsets**2).sum(0) <= 6.2035**2
    assert sphere.sum() * 0.008 == pytest.approx(1.0, abs=0.05)
    assert large["suv_peak"] == pytest.approx(pet.array[4:11, 4:11, 4:11][sphere].mean(), rel=1e-4)
    assert small["suv_peak"] == pytest.approx(1 + 1 / sphere.sum(), rel=1e-4)


def test_without_pet_there_are_volumes_only(two_lesions):
    found = lesion_statistics(two_lesions[0], None)
    assert found["uptake"] is None
    assert "tlg" not in found["labels"]["lesion"]


def test_the_preview_outlines_the_lesion(two_lesions, tmp_path):
    from matplotlib.image import imread

    from veloxseg.predict.preview import draw

    result, pet = two_lesions
    draw(result, pet, None, tmp_path / "with.png", title="case")
    result.array[:] = 0
    draw(result, pet, pet, tmp_path / "without.png", title="case")
    orange = [
        (np.abs(imread(tmp_path / name)[..., :3] - np.array([255, 90, 54]) / 255).max(-1) < 0.05).sum()
        for name in ("with.png", "without.png")
    ]
    assert orange[0] > 50
    assert orange[1] == 0


def test_uptake_is_that_of_the_pets_own_voxels(two_lesions):
    """A PET of 4 mm behind a mask of 2 mm, half a voxel aside: interpolation would lower its hottest voxel."""
    result, _ = two_lesions
    affine = np.diag([4.0, 4.0, 4.0, 1.0])
    affine[:3, 3] = 11
    uptake = np.ones((16, 16, 16), np.float32)
    uptake[3, 3, 3] = 7.5  # at 23 mm; the cube covers 19 to 29 mm
    uptake[2, 3, 3] = 2.5  # at 19 mm, on the border
    uptake[5, 5, 5] = 99  # at 31 mm, outside of both lesions
    pet = Volume(array=uptake, geometry=Geometry(shape=uptake.shape, affine=affine))
    large, small = lesion_statistics(result, pet)["labels"]["lesion"]["lesions"]
    assert large["suv_max"] == 7.5
    assert small["suv_max"] == 1.0  # a lesion of one mask voxel, between the centres of the PET's voxels


def test_a_lesion_outside_the_pet_has_no_uptake(two_lesions):
    result, pet = two_lesions
    part = Volume(array=pet.array[:15, :15, :15], geometry=Geometry(shape=(15, 15, 15), affine=pet.geometry.affine))
    large, small = lesion_statistics(result, part)["labels"]["lesion"]["lesions"]
    assert large["suv_max"] == 9
    assert small["suv_max"] is None
    assert small["volume_ml"] == pytest.approx(0.008)
