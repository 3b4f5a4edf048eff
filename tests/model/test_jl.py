"""The Johnson–Lindenstrauss bound gives the paper's tables and its group sizes."""

import pytest

from veloxseg.model import jl
from veloxseg.model.config import preset


@pytest.mark.parametrize(
    ("modalities", "expected"), [(1, (4.2, 6.2, 8.3, 10.4)), (2, (4.9, 6.9, 9.0, 11.1)), (4, (5.5, 7.6, 9.7, 11.8))]
)
def test_tables_of_the_appendix(modalities: int, expected: tuple[float, ...]) -> None:
    assert jl.table(modalities) == expected


def test_recommendation_for_natural_images() -> None:
    assert jl.table(3, jl.RATIOS_2D) == (1.1, 2.5, 3.9, 5.3)
    assert jl.group_sizes(3, jl.RATIOS_2D) == (1, 2, 4, 4)


def test_the_presets_use_n_of_four() -> None:
    n = jl.unit(alpha=1)
    assert n == 4
    assert jl.group_sizes() == (n, 2 * n, 2 * n, 4 * n) == preset("b").group_sizes == preset("b").head_sizes


def test_harder_data_and_more_modalities_need_wider_groups() -> None:
    assert jl.bound(2, 64, alpha=2) == 2 * jl.bound(2, 64)
    assert jl.bound(4, 64) > jl.bound(2, 64) > jl.bound(1, 64)
