"""A benchmark's rows as a table for people: plain for the terminal, Markdown for the repository."""

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["COUNTER_NOTE", "lines", "machine_line", "markdown"]

Row = dict[str, Any]

COUNTER_NOTE = (
    "Figures in brackets are the paper's (Xeon Gold 5320, its own counter, which leaves out attention products and "
    "bare parameters and counts transposed convolutions stride³ too dear). U is one eager forward pass of MONAI's "
    "BasicUNet in the same run: '× U' compares across machines, patches/s do not. Spread is the interquartile range."
)


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _beside(value: float, published: float | None, digits: int = 2) -> str:
    return _number(value, digits) + (f" [{published:.2f}]" if published is not None else "")


def _rate(row: Row) -> str:
    if row["patches_per_second"] is None:
        return "–"
    low, high = row["patches_per_second_low"], row["patches_per_second_high"]
    return f"{row['patches_per_second']:.2f} ({low:.2f}–{high:.2f})"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "model": lambda row: row["title"],
    "runtime": lambda row: row["runtime"],
    "threads": lambda row: str(row["threads"]),
    "batch": lambda row: str(row["batch"]),
    "input": lambda row: "×".join(map(str, row.get("input", ()))) or "–",
    "parameters M": lambda row: _beside(row["parameters"] / 1e6, row["published"]["parameters"]),
    "MACs G": lambda row: _number(row["macs"] / 1e9),
    "as published": lambda row: _beside(row["macs_as_published"] / 1e9, row["published"]["macs"]),
    "patches/s": _rate,
    "paper's CPU": lambda row: _number(row["published"]["cpu"]),
    "× U": lambda row: _number(row["times_unet"], 1),
    "GPU MB": lambda row: _number(row["peak_gpu_mb"], 0),
    "paper's GPU MB": lambda row: _number(row["published"]["inference_mb"] if row["peak_gpu_mb"] else None, 0),
    "RSS MB": lambda row: _number(row["peak_rss_mb"], 0),
    "cold start s": lambda row: _number(row["cold_start_seconds"]),
    "file MB": lambda row: _number(row["file_mb"], 1),
    "training step s": lambda row: _number(row["training_step_seconds"], 1),
    "training RSS MB": lambda row: _number(row["training_peak_rss_mb"], 0),
    "training GPU MB": lambda row: _number(row["training_peak_gpu_mb"], 0),
}


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    """The header and the rows, fastest first within a thread count; columns in which nothing was measured go."""
    ordered = sorted(rows, key=lambda row: (row["threads"], -(row["patches_per_second"] or 0)))
    columns = {name: [make(row) for row in ordered] for name, make in COLUMNS.items()}
    kept = {name: cells for name, cells in columns.items() if any(cell != "–" for cell in cells)}
    if set(kept.get("batch", [])) == {"1"}:
        del kept["batch"]
    if len(set(kept.get("input", []))) == 1:
        del kept["input"]
    return [list(kept), *(list(cells) for cells in zip(*kept.values(), strict=True))]


def lines(rows: Sequence[Row]) -> list[str]:
    """Aligned lines for the terminal."""
    cells = _cells(rows)
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return [
        "  ".join(
            text.ljust(width) if i < 2 else text.rjust(width)
            for i, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]


def markdown(rows: Sequence[Row]) -> str:
    head, *body = _cells(rows)
    rule = ["---" if i < 2 else "---:" for i in range(len(head))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))


def machine_line(machine: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    vector = f" ({', '.join(machine['vector'])})" if machine["vector"] else ""
    return (
        f"{machine['cpu']}{vector}, {machine['cores']} core(s), {machine['memory_gb']} GB, {machine['system']}; "
        f"Python {machine['python']}, {packages}; load before the run {machine['load_before']}"
    )
