"""The pictures are written, and names do not cover each other."""

from pathlib import Path
from typing import Any

import matplotlib
import pytest

from veloxseg.benchmark import plots


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
