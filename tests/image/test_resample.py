"""Interpolation keeps what it must: grids, ramps, means and labels."""

from typing import Any

import numpy as np
import pytest

from veloxseg.image.resample import axis_maps, oblique, resample_image, resample_label
from veloxseg.image.volume import Geometry


def random_grid(shape: tuple[int, int, int], spacing: tuple[float, float, float], tools: Any) -> Geometry:
    return Geometry(shape=shape, affine=tools.centred(shape, spacing))


@pytest.mark.parametrize("kernel", ["linear", "cubic"])
def test_same_grid_gives_the_same_voxels(kernel: str, tools: Any) -> None:
    array = np.random.default_rng(0).normal(size=(7, 9, 5)).astype(np.float32)
    grid = random_grid((7, 9, 5), (1, 2, 3), tools)
    for layout in ("C", "F"):
        volume = tools.volume(np.array(array, order=layout), grid.affine)
        np.testing.assert_array_equal(resample_image(volume, grid, kernel, 0), array)


@pytest.mark.parametrize("kernel", ["linear", "cubic"])
def test_a_ramp_stays_a_ramp(kernel: str, tools: Any) -> None:
    """Values that are a linear function of space must be so on any other grid, finer, coarser, turned or flipped."""
    source = random_grid((20, 22, 24), (1.0, 1.5, 2.0), tools)
    points = (
        np.einsum("ij,jxyz->ixyz", source.affine[:3, :3], np.indices(source.shape))
        + source.affine[:3, 3, None, None, None]
    )
    volume = tools.volume((2 * points[0] - points[1] + 3 * points[2]).astype(np.float32), source.affine)
    turned = np.array([[0, 0, -1.3, 0], [0.7, 0, 0, 0], [0, 3.1, 0, 0], [0, 0, 0, 1]], float)
    turned[:3, 3] = -turned[:3, :3] @ (np.array([5, 4, 6]) - 1) / 2
    for target in (Geometry(shape=(5, 4, 6), affine=turned), random_grid((6, 6, 6), (2.3, 0.4, 5.0), tools)):
        expected = (
            np.einsum("ij,jxyz->ixyz", target.affine[:3, :3], np.indices(target.shape))
            + target.affine[:3, 3, None, None, None]
        )
        result = resample_image(volume, target, kernel, 0)
        # a coordinate is off by up to a thousandth of a voxel, since it is rounded to 1/512
        slack = (2 * 1.0 + 1.5 + 3 * 2.0) / 1024 + 2e-4
        np.testing.assert_allclose(result, 2 * expected[0] - expected[1] + 3 * expected[2], atol=slack)


def test_downsampling_averages_instead_of_aliasing(tools: Any) -> None:
    stripes = np.zeros((40, 4, 4), np.float32)
    stripes[::2] = 1  # picking every second voxel would see only ones
    target = random_grid((10, 4, 4), (4, 1, 1), tools)
    result = resample_image(tools.volume(stripes, tools.centred((40, 4, 4), (1, 1, 1))), target, "linear", 0)
    assert np.abs(result[2:-2] - 0.5).max() < 0.05


def test_oblique_grids_agree_with_parallel_ones_when_nearly_parallel(tools: Any) -> None:
    volume = tools.volume(
        tools.phantom("ct", (30, 26, 20), tools.centred((30, 26, 20), (2, 2, 3))),
        tools.centred((30, 26, 20), (2, 2, 3)),
    )
    angle = np.deg2rad(0.6)
    turn = np.eye(4)
    turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    parallel = random_grid((30, 26, 20), (2, 2, 3), tools)
    oblique = Geometry(shape=parallel.shape, affine=turn @ parallel.affine)
    assert axis_maps(volume.geometry, parallel) is not None
    assert axis_maps(volume.geometry, oblique) is None
    one, other = (resample_image(volume, grid, "linear", -1000) for grid in (parallel, oblique))
    assert np.abs(one - other).mean() < 20  # HU; a sign error in the turn or a swapped axis gives hundreds


def test_what_lies_outside_is_filled(tools: Any) -> None:
    small = tools.volume(np.ones((4, 4, 4), np.float32), tools.centred((4, 4, 4), (1, 1, 1)))
    result = resample_image(small, random_grid((12, 4, 4), (1, 1, 1), tools), "linear", -5)
    assert (result[4:8] == 1).all()
    assert (result[:3] == -5).all()
    assert (result[-3:] == -5).all()


def test_labels_keep_their_values_and_volume(tools: Any) -> None:
    affine = tools.centred((40, 40, 30), (1, 1, 2))
    labels = tools.lesion((40, 40, 30), affine)
    labels[labels > 0] = 7
    labels[2:5, 2:5, 2:5] = 200
    target = random_grid((27, 27, 40), (1.5, 1.5, 1.5), tools)
    result = resample_label(tools.volume(labels, affine), target)
    assert set(np.unique(result)) == {0, 7, 200}
    for value in (7, 200):
        before, after = (labels == value).sum() * 2.0, (result == value).sum() * 1.5**3
        assert abs(after / before - 1) < 0.15


@pytest.mark.parametrize("spacing", [0.9, 1.7])
@pytest.mark.parametrize("kernel", ["linear", "cubic"])
def test_oblique_grids_are_what_simpleitk_makes_of_them(spacing: float, kernel: str) -> None:
    sitk = pytest.importorskip("SimpleITK")
    array = np.random.default_rng(0).standard_normal((30, 26, 22)).astype(np.float32)
    turn = np.array([[0.96, -0.28, 0.0], [0.28, 0.96, 0.0], [0.0, 0.0, 1.0]])
    affine = np.eye(4)
    affine[:3, :3], affine[:3, 3] = turn * spacing, (-3.0, 2.0, 1.0)
    source, target = Geometry(shape=array.shape, affine=np.eye(4)), Geometry(shape=(24, 22, 20), affine=affine)
    image = sitk.GetImageFromArray(array)
    if spacing > 1:
        variance = 0.42**2 * (spacing**2 - 1)
        image = sitk.DiscreteGaussian(image, [variance] * 3, useImageSpacing=False)
    transform = sitk.AffineTransform(3)
    transform.SetMatrix(affine[2::-1, 2::-1].ravel().tolist())
    transform.SetTranslation(affine[2::-1, 3].tolist())
    kind = sitk.sitkBSpline3 if kernel == "cubic" else sitk.sitkLinear
    size, unit = [20, 22, 24], np.eye(3).ravel().tolist()
    expected = sitk.GetArrayFromImage(
        sitk.Resample(image, size, transform, kind, [0.0] * 3, [1.0] * 3, unit, -9.0, sitk.sitkFloat32)
    )
    if kernel == "cubic":
        expected = np.clip(expected, -9.0, array.max())
    np.testing.assert_allclose(oblique(array, source, target, kernel, -9.0), expected, atol=2e-5)
    assert (expected == -9.0).any()
