"""Distortion of distances: none by an identity, more by narrow groups than by wide ones, as the lemma says."""

import math
from dataclasses import replace

import pytest
import torch

from veloxseg.inspect.distances import distortion, draw_distances, group_distortion, measure_distances
from veloxseg.model.config import preset
from veloxseg.model.jl import bound
from veloxseg.model.network import VeloxSeg


def test_an_identity_layer_has_no_distortion() -> None:
    points = torch.randn(50, 16, 1)
    identity = torch.eye(16)[:, :, None]
    assert group_distortion(points, identity) == pytest.approx(0, abs=1e-12)
    assert distortion(points[..., 0], 7 * points[..., 0]) == pytest.approx(0, abs=1e-6)


def test_an_identity_that_sees_one_channel_distorts() -> None:
    points = torch.randn(50, 16, 1)
    assert group_distortion(points, torch.ones(16, 1, 1)) > 0.5


def test_what_falls_together_is_infinitely_distorted() -> None:
    assert distortion(torch.randn(10, 3), torch.zeros(10, 2)) == math.inf


def test_random_projections_distort_as_the_lemma_says() -> None:
    """ε falls as 1/√d': with 16 times the dimensions it is a quarter, within sampling."""
    torch.manual_seed(0)
    points = torch.randn(200, 4096)
    narrow, wide = (distortion(points, points @ torch.randn(4096, size)) for size in (32, 512))
    assert narrow / wide == pytest.approx(4, rel=0.15)


def test_every_stage_is_measured_beside_the_bound() -> None:
    torch.manual_seed(0)
    config = replace(preset("s"), patch=(64, 64, 32))
    rows = measure_distances(VeloxSeg(config).eval(), [torch.randn(1, 2, *config.patch)])
    assert [list(map(int, row["random"]))[-1] for row in rows] == [16, 32, 64, 128]
    assert [row["bound"] for row in rows] == [bound(2, 4**3 * 8**k) for k in range(4)]
    for row in rows[:3]:
        assert row["random"]["1"] > list(row["random"].values())[-1]  # depth-wise distorts more than full
        assert row["trained"] > 0


def test_the_legend_names_what_the_last_stage_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage of one voxel has no distances; the legend is of all panels, and an empty one says why it is so."""
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    full = {"bound": 4.9, "group_size": 4, "random": {"1": 2.0, "4": 0.8}, "trained": 0.9}
    rows = [full | {"stage": stage} for stage in (1, 2, 3)]
    draw_distances([("net", [*rows, full | {"stage": 4, "random": {"1": None}, "trained": None}])])
    (figure,) = figures
    words = {text.get_text() for text in figure.legends[0].get_texts()}
    assert words == {"net, random weights", "net, trained", "bound log(M·v), α = 1"}
    assert [[text.get_text() for text in axes.texts] for axes in figure.axes] == [[], [], [], ["no two voxels differ"]]
