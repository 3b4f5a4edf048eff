"""Geometry: what its numbers mean."""

import itertools

import numpy as np
import pytest

from support.scan_samples import SHAPE, SPACING, oblique_affine
from veloxseg.image import Geometry, Volume


def test_parts_make_up_the_affine() -> None:
    grid = Geometry(shape=SHAPE, affine=oblique_affine())
    assert grid.spacing == pytest.approx(SPACING)
    assert grid.voxel_ml == pytest.approx(1.5 * 2.0 * 3.0 / 1000)
    assert np.allclose(grid.direction.T @ grid.direction, np.eye(3))
    rebuilt = np.eye(4)
    rebuilt[:3, :3], rebuilt[:3, 3] = grid.direction * grid.spacing, grid.origin
    assert np.allclose(rebuilt, grid.affine)


def test_distance_is_that_of_the_worst_corner() -> None:
    one = Geometry(shape=(11, 11, 11), affine=np.eye(4))
    moved, stretched = np.eye(4), np.diag([1.0, 1.0, 1.3, 1.0])
    moved[:3, 3] = (3, 4, 0)
    assert one.distance(Geometry(shape=(11, 11, 11), affine=moved)) == pytest.approx(5)
    assert one.distance(Geometry(shape=(11, 11, 11), affine=stretched)) == pytest.approx(3)
    assert one.same_grid(Geometry(shape=(11, 11, 11), affine=np.eye(4) + 1e-5))
    assert not one.same_grid(Geometry(shape=(11, 11, 10), affine=np.eye(4)))


@pytest.mark.parametrize("axes", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("flips", list(itertools.product((1, -1), repeat=3)))
def test_in_ras_is_the_same_however_the_scan_is_stored(axes: tuple[int, ...], flips: tuple[int, ...]) -> None:
    array, affine = np.random.default_rng(0).normal(size=SHAPE), oblique_affine()
    stored_index = np.zeros((4, 4))
    stored_index[3, 3] = 1
    for new, (old, flip) in enumerate(zip(axes, flips, strict=True)):
        stored_index[old, new], stored_index[old, 3] = flip, 0 if flip == 1 else SHAPE[old] - 1
    stored_array = array.transpose(axes)[tuple(slice(None, None, flip) for flip in flips)]
    x, y, z = stored_array.shape
    stored = Volume(array=stored_array, geometry=Geometry(shape=(x, y, z), affine=affine @ stored_index))
    expected = Volume(array=array, geometry=Geometry(shape=SHAPE, affine=affine)).in_ras()
    found = stored.in_ras()
    assert np.array_equal(found.array, expected.array)
    assert np.allclose(found.geometry.affine, expected.geometry.affine, atol=1e-9)
    assert np.array_equal(stored.geometry.orientation.undo(found.array), stored.array)
