"""The paper's cost tables: parameters and MACs of every network on a task, beside the published ones. Nothing is timed.

A row agrees if parameters and MACs, counted as the paper's counter does, are within half a percent (or one unit of the
last printed digit) of the printed ones. Rows that do not are explained in `peers/published.py`.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from veloxseg.benchmark.models import BenchmarkModel

__all__ = ["agrees", "cost_lines", "cost_rows", "count"]

Row = dict[str, Any]
SAME = 0.005
LAST_DIGIT = 0.0101
HEAD = ("model", "parameters M", "as published", "paper", "MACs G", "as published", "paper", "paper's Dice", "")


def count(model: BenchmarkModel, network: Any) -> dict[str, int]:
    from veloxseg.model.count import macs, macs_as_published, parameters, parameters_as_published

    return {
        "parameters": parameters(network),
        "parameters_as_published": parameters_as_published(network),
        "macs": macs(network, model.input_shape),
        "macs_as_published": macs_as_published(network, model.input_shape),
    }


def cost_rows(models: Sequence[BenchmarkModel], task: str | None = None) -> list[Row]:
    """One row per model, in the order given, with the keys of a measured row; what was not measured is None."""
    rows = []
    for model in models:
        counts = count(model, _without_weights(model))
        unmeasured = dict.fromkeys(("runtime", "threads", "patches_per_second", "peak_rss_mb"))
        row = {
            "model": model.name,
            "title": model.title,
            "task": task,
            "input": list(model.input_shape[1:]),
            "classes": model.classes,
            **counts,
            **unmeasured,
            "published": asdict(model.published),
            "deviation": model.deviation,
        }
        rows.append(row | {"agrees": agrees(row)})
    return rows


def _without_weights(model: BenchmarkModel) -> Any:
    """The network as shapes alone where that is possible: drawing a hundred million random weights takes seconds."""
    import torch

    from veloxseg.model_folder import build_network

    try:
        with torch.device("meta"):
            return build_network(model.architecture, model.settings()).eval()
    except RuntimeError:  # MONAI's Swin UNETR looks at values while it is built
        return build_network(model.architecture, model.settings()).eval()


def agrees(row: Row) -> bool | None:
    """Whether both counts are the published ones; None if nothing was published."""
    pairs = (
        (row["parameters_as_published"] / 1e6, row["published"]["parameters"]),
        (row["macs_as_published"] / 1e9, row["published"]["macs"]),
    )
    if any(printed is None for _, printed in pairs):
        return None
    return all(abs(ours - printed) <= max(SAME * printed, LAST_DIGIT) for ours, printed in pairs)


def cost_lines(rows: Sequence[Row]) -> list[str]:
    """Aligned lines for the terminal; below the table why rows marked with a star differ."""

    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.2f}"

    cells = [HEAD]
    for row in rows:
        paper = row["published"]
        cells.append(
            (
                row["title"],
                number(row["parameters"] / 1e6),
                number(row["parameters_as_published"] / 1e6),
                number(paper["parameters"]),
                number(row["macs"] / 1e9),
                number(row["macs_as_published"] / 1e9),
                number(paper["macs"]),
                number(paper["dice"]),
                "*" if row["agrees"] is False else "",
            )
        )
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
    lines = [
        "  ".join(
            text.rjust(width) if i else text.ljust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in cells
    ]
    for row in rows:
        if row["agrees"] is False:
            lines.append(f"* {row['title']}: {row['deviation'] or 'not explained'}")
    return [line.rstrip() for line in lines]
