"""Splines as matrices are scipy's."""

import numpy as np
import pytest
from scipy import ndimage

from veloxseg.image.spline import spline_matrix, zoom

SIZES = [((9, 14, 11), (13, 14, 7)), ((5, 6, 7), (5, 6, 7)), ((20, 3, 8), (7, 11, 8)), ((1, 4, 5), (3, 2, 1))]


@pytest.mark.parametrize("order", [0, 1, 3])
@pytest.mark.parametrize(("source", "target"), SIZES)
def test_zoom_is_scipys(order: int, source: tuple[int, int, int], target: tuple[int, int, int]) -> None:
    array = np.random.default_rng(0).standard_normal(source)
    factors = [n / m for n, m in zip(target, source, strict=True)]
    expected = ndimage.zoom(array, factors, order=order, mode="nearest", grid_mode=True)
    assert np.abs(zoom(array, target, (order,) * 3) - expected).max() < 1e-6


def test_orders_may_differ_between_axes() -> None:
    """Nearest along the first axis picks whole slices."""
    array = np.random.default_rng(0).standard_normal((4, 6, 6))
    found = zoom(array, (8, 6, 6), (0, 3, 3))
    assert np.array_equal(found, np.repeat(array, 2, axis=0).astype(np.float32))


def test_work_in_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.random.default_rng(0).standard_normal((9, 14, 11)).astype(np.float32)
    whole = zoom(array, (12, 9, 20), (3, 3, 3))
    monkeypatch.setattr("veloxseg.image.spline.CHUNK_BYTES", 1000)
    assert np.allclose(zoom(array, (12, 9, 20), (3, 3, 3)), whole, atol=1e-6)


def test_rows_add_up_to_one() -> None:
    """A constant stays a constant, whatever the order."""
    for order in (0, 1, 3):
        matrix = spline_matrix(11, 17, order)
        assert matrix is not None
        assert np.allclose(matrix.sum(axis=1), 1)
