"""Label values, grids that differ, and what a message says about them."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

import veloxseg.image as vio
from support.scan_samples import SHAPE, oblique_affine, ramp
from veloxseg.errors import GeometryError, ImageError, shown


def saved(path: Path, array: np.ndarray) -> Path:
    nib.save(nib.Nifti1Image(array, oblique_affine()), path)
    return path


@pytest.mark.parametrize(("top", "kind"), [(1, np.uint8), (255, np.uint8), (256, np.uint16), (65535, np.uint16)])
@pytest.mark.parametrize("stored", [np.int32, np.float32, np.float64])
def test_label_type_is_the_smallest(tmp_path: Path, top: int, kind: type, stored: type) -> None:
    array = np.zeros(SHAPE, stored)
    array[1, 2, 3] = top
    label = vio.read_label(saved(tmp_path / "label.nii.gz", array))
    assert label.array.dtype == kind
    assert label.array[1, 2, 3] == label.array.sum() == top


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.5, "2 of 336 voxels are not whole"),
        (np.nan, "2 of 336 voxels are not whole"),
        (np.inf, "2 of 336 voxels are not whole"),
        (-1, "-1 is negative"),
        (70000, "above"),
    ],
)
def test_values_that_are_no_label(tmp_path: Path, value: float, words: str) -> None:
    array = np.zeros(SHAPE, np.float32)
    array[:2, 0, 0] = value
    with pytest.raises(ImageError, match=words):
        vio.read_label(saved(tmp_path / "label.nii.gz", array))


def test_scaled_label_that_is_not_whole(tmp_path: Path) -> None:
    image = nib.Nifti1Image((ramp() % 3).astype(np.uint8), oblique_affine())
    image.header.set_slope_inter(0.3, 0)
    nib.save(image, tmp_path / "label.nii.gz")
    with pytest.raises(ImageError, match="not whole"):
        vio.read_label(tmp_path / "label.nii.gz")


def test_empty_label_is_a_warning(tmp_path: Path) -> None:
    label = vio.read_label(saved(tmp_path / "label.nii.gz", np.zeros(SHAPE, np.uint8)))
    assert label.warnings == ("the label map is empty: every voxel is background",)


def test_label_on_another_grid_than_the_image(tmp_path: Path) -> None:
    image = vio.read(saved(tmp_path / "image.nii.gz", ramp()))
    smaller = (ramp()[:-1] % 2).astype(np.uint8)
    with pytest.raises(GeometryError, match="image and label lie on different grids: shape 8×7×6 and 7×7×6"):
        vio.read_label(saved(tmp_path / "label.nii.gz", smaller), reference=image)


def grid(spacing: tuple[float, float, float] = (1, 1, 3), shift: float = 0, degrees: float = 0) -> vio.Geometry:
    turn = np.radians(degrees)
    affine = np.eye(4)
    affine[:3, :3] = [[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]] * np.array(spacing)
    affine[0, 3] = shift
    return vio.Geometry(shape=(101, 101, 51), affine=affine)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (grid(shift=2.5), ["origin by 2.5 mm", "2.5 mm apart"]),
        (grid(spacing=(1, 1, 3.2)), ["spacing differs by 0.2 mm", "corners up to 10 mm apart"]),
        (grid(degrees=2), ["direction by 2 degrees", "mm apart"]),
        (vio.Geometry(shape=(100, 101, 51), affine=grid().affine), ["shape 101×101×51 and 100×101×51"]),
    ],
)
def test_difference_in_millimetres_and_remedy(other: vio.Geometry, words: list[str]) -> None:
    with pytest.raises(GeometryError) as caught:
        vio.check_same_grid({"ct": grid(), "pet": other}, case="patient_7")
    for word in [*words, "patient_7: ct and pet", "resample pet to the grid of ct", "register"]:
        assert word in str(caught.value)


def test_rounding_is_no_difference() -> None:
    vio.check_same_grid({"ct": grid(), "pet": grid(shift=1e-4), "mr": grid(degrees=1e-4)})
    assert vio.grid_difference(grid(), grid(shift=1e-4)) == ""


def test_text_from_outside_stays_on_one_line() -> None:
    assert shown("a\nb\x1b[31mc\u2028d") == "a?b?[31mc?d"
    assert len(shown("x" * 1000)) == 200
