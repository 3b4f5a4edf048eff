"""Geometry: what its numbers mean."""

import numpy as np
import pytest
from scan_samples import SHAPE, SPACING, oblique_affine

from veloxseg.io import Geometry


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
