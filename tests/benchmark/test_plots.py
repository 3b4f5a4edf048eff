"""The pictures are written, and names do not cover each other."""

import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from veloxseg.benchmark import plots
from veloxseg.benchmark.dice import Dice, read_dice
from veloxseg.errors import ConfigError


def row(title: str, runtime: str, size: float, rate: float) -> dict[str, Any]:
    return {
        "model": title.lower(),
        "title": title,
        "runtime": runtime,
        "input": [2, 96, 96, 96],
        "threads": 1,
        "batch": 1,
        "macs": 1e9 * size,
        "peak_rss_mb": 300.0 * size,
        "peak_gpu_mb": None,
        "training_peak_rss_mb": 1000.0 if runtime == "torch" else None,
        "parameters": size * 1e6,
        "patches_per_second": rate,
        "patches_per_second_low": 0.9 * rate,
        "patches_per_second_high": 1.1 * rate,
        "published": {"dice": 60.0},
    }


ROWS = [row("VeloxSeg-B", "openvino", 1.67, 10), row("Near", "torch", 1.7, 10), row("Near too", "torch", 1.68, 10.1)]


def test_names_keep_clear_of_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes: list[Any] = []

    def look(figure: Any, path: Path) -> None:
        boxes.extend(text.get_window_extent() for text in figure.axes[0].texts)

    matplotlib.use("Agg")
    monkeypatch.setattr(plots, "_save", look)
    plots.plot_throughput(ROWS, tmp_path / "unused.png")
    assert len(boxes) == 3
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_dice_of_a_study_is_drawn_with_its_families(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 1: both panels, a marker of its family for each network that has a Dice, and no other."""
    kept: list[Any] = []
    matplotlib.use("Agg")
    monkeypatch.setattr(plots, "_save", lambda figure, path: kept.append(figure))
    rows = [row("VeloxSeg-B", "native", 1.66, 10), row("VeloxSeg-B", "torch", 1.66, 5), row("Far", "torch", 9, 1)]
    rows += [row(name, "torch", 2, 3) for name in ("slim-unetr", "u-rwkv")]
    rows[0]["model"] = rows[1]["model"] = "b"
    dice = {"b": Dice(mean=75, low=70, high=80, cases=25), "slim-unetr": Dice(mean=74), "u-rwkv": Dice(mean=60)}
    plots.plot_dice(rows, tmp_path / "unused.png", dice)
    for axes, x in zip(kept[0].axes, (10, 1.66), strict=True):
        assert sorted(text.get_text() for text in axes.texts) == [
            "VeloxSeg-B (C+T)", "slim-unetr (C+T)", "u-rwkv (C+R)"
        ]  # fmt: skip
        points = [tuple(p) for group in axes.collections for p in group.get_offsets() if p[0] and p[1]]
        assert (x, 75) in points  # the fastest runtime
    assert {text.get_text() for text in kept[0].legends[0].get_texts()} == {"VeloxSeg", "lightweight"}


def test_dice_is_read_from_a_study(tmp_path: Path) -> None:
    summary = {"count": 4, "left_out": 0, "mean": 0.75, "median": 0.7, "deviation": 0.1, "low": 0.6, "high": 0.8}
    rows = [{"settings": {"model": "unet"}, "dice": summary}, {"settings": {}, "dice": summary | {"low": None}}]
    (tmp_path / "table.json").write_text(json.dumps({"rows": rows}))
    found = read_dice(tmp_path)
    assert found["unet"] == Dice(mean=75, low=pytest.approx(60), high=pytest.approx(80), cases=4)
    assert found["b"].low is None
    for content, message in (
        ({"rows": [*rows, {"settings": {"attention": "window"}, "dice": summary}]}, "several rows of b"),
        ({"rows": [{"settings": {}, "dice": summary | {"mean": 75}}]}, "from 0 to 1"),
        ({"rows": []}, "no rows"),
        ([], "no rows"),
    ):
        (tmp_path / "table.json").write_text(json.dumps(content))
        with pytest.raises(ConfigError, match=message):
            read_dice(tmp_path / "table.json")


def test_pictures_are_written(tmp_path: Path) -> None:
    plots.plot_dice(ROWS, tmp_path / "dice.png")
    plots.plot_memory(ROWS, tmp_path / "memory.png")
    plots.plot_cost(ROWS, tmp_path / "cost.png")
    grown = [
        {"attention": kind, "patch": patch, "voxels": patch**3, "seconds": patch / 1e3, "memory_mb": 0.0}
        for kind in ("PWA", "full")
        for patch in (48, 96)
    ]
    plots.plot_growth(grown, tmp_path / "growth.png")
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in tmp_path.iterdir())
    assert len(list(tmp_path.iterdir())) == 4
