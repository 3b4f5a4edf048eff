"""RTSTRUCT: polygons on a grid, by hand and against the real masks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import veloxseg.image as vio
from support.scan_samples import SHAPE, SPACING, box_contours, slice_dataset, write_rtstruct, write_series
from veloxseg.errors import GeometryError, ImageError
from veloxseg.image.dicom.rtstruct import fill_polygon


def test_box_covers_exactly_the_voxels_inside(tmp_path: Path) -> None:
    image = vio.read(write_series(tmp_path / "ct"))
    path = write_rtstruct(tmp_path / "rs.dcm", {"GTV": box_contours(range(1, 4))})
    expected = np.zeros(SHAPE, np.uint8)
    expected[2:6, 1:5, 1:4] = 1
    label = vio.read_label(path, reference=image)
    assert np.array_equal(label.array, expected)
    assert label.geometry.same_grid(image.geometry)


def test_inner_contour_is_a_hole(tmp_path: Path) -> None:
    image = vio.read(write_series(tmp_path / "ct"))
    outer = box_contours(range(2, 3))
    centre = outer[0].mean(axis=0)
    inner = [centre + (points - centre) * [0.4, 0.4, 1] for points in outer]
    label = vio.read_label(write_rtstruct(tmp_path / "rs.dcm", {"ring": outer + inner}), reference=image)
    expected = np.zeros(SHAPE, np.uint8)
    expected[2:6, 1:5, 2] = 1
    expected[3:5, 2:4, 2] = 0
    assert np.array_equal(label.array, expected)


def test_circle_has_its_area() -> None:
    angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    circle = np.stack([50.3 + 30 * np.cos(angle), 40.8 + 30 * np.sin(angle)], axis=1)
    mask = fill_polygon(circle, (100, 90))
    x, y = np.indices(mask.shape)
    assert np.array_equal(mask, fill_polygon(circle[::-1], (100, 90)))  # direction does not matter
    assert mask.sum() == pytest.approx(np.pi * 900, rel=0.005)
    distance = np.hypot(x - 50.3, y - 40.8)
    assert mask[distance < 29.9].all()
    assert not mask[distance > 30].any()


def test_polygon_over_the_edge_of_the_grid() -> None:
    square = np.array([[-5.0, -5.0], [2.5, -5.0], [2.5, 2.5], [-5.0, 2.5]])
    expected = np.zeros((6, 5), bool)
    expected[:3, :3] = True
    assert np.array_equal(fill_polygon(square, (6, 5)), expected)


def test_regions_are_picked_by_name_in_order(tmp_path: Path) -> None:
    image = vio.read(write_series(tmp_path / "ct"))
    path = write_rtstruct(tmp_path / "rs.dcm", {"edema": box_contours(range(1, 5)), "mass": box_contours(range(2, 3))})
    with pytest.raises(ImageError, match=r"2 regions \(edema, mass\)"):
        vio.read_label(path, reference=image)
    with pytest.raises(ImageError, match="no region 'node'"):
        vio.read_label(path, reference=image, rois=("node",))
    label = vio.read_label(path, reference=image, rois=("edema", "mass"))
    assert [int((label.array == value).sum()) for value in (1, 2)] == [48, 16]


def test_contours_of_another_image(tmp_path: Path) -> None:
    image = vio.read(write_series(tmp_path / "ct"))
    path = write_rtstruct(
        tmp_path / "rs.dcm", {"GTV": [p + np.array([0, 0, SPACING[2] / 2]) for p in box_contours(range(1, 3))]}
    )
    with pytest.raises(GeometryError, match=r"1.5 mm off the slices"):
        vio.read_label(path, reference=image)
    path = write_rtstruct(tmp_path / "far.dcm", {"GTV": box_contours(range(100, 102))})
    with pytest.raises(GeometryError, match="no contour lies inside"):
        vio.read_label(path, reference=image)
    with pytest.raises(ImageError, match="give the image that it was drawn on"):
        vio.read_label(path)


def test_contours_drawn_on_another_series(tmp_path: Path) -> None:
    """Both series lie on the same slices, so that only the UID tells."""
    image = vio.read(write_series(tmp_path / "ct"))
    own = write_rtstruct(tmp_path / "own.dcm", {"GTV": box_contours(range(1, 4))}, slice_dataset(0).SeriesInstanceUID)
    assert vio.read_label(own, reference=image).array.any()
    other = write_rtstruct(tmp_path / "other.dcm", {"GTV": box_contours(range(1, 4))}, "1.2.3")
    with pytest.raises(ImageError, match="drawn on another series than the CT that is given"):
        vio.read_label(other, reference=image)
    converted = replace(image, header={}, file_type="nifti")  # which does not tell its series any more
    assert vio.read_label(other, reference=converted).array.any()


@pytest.mark.shared
@pytest.mark.parametrize("name", ["CT", "PET"])
def test_real_contours_give_the_real_mask(shared: Path, name: str) -> None:
    folder = shared / "data/sts_dicom/STS_002" / name
    ours = vio.read_label(folder / "mask", reference=vio.read(folder / "image"))
    mask = vio.read_label(shared / f"data/sts_petct/STS_002/{name}_mask.nii.gz")
    assert ours.geometry.same_grid(mask.geometry)
    dice = 2 * np.sum(ours.array & mask.array) / (ours.array.sum() + mask.array.sum())
    assert dice >= 0.99  # 1.0 when measured; the task asks for 0.9


@pytest.mark.shared
def test_real_whole_body_contours(shared: Path) -> None:
    folder = shared / "data/pet_raw_dicom/STS_001/FDG_PET"
    label = vio.read_label(folder / "mask", reference=vio.read(folder / "image"), rois=("GTV_Mass",))
    mask = vio.read_label(shared / "data/sts_petct/STS_001/PET_mask.nii.gz")
    assert label.array.sum() == pytest.approx(mask.array.sum(), rel=0.02)
