"""What a person sees of a training: a live table or plain lines, progress.csv, progress.png, TensorBoard files.

RUN/train.log keeps what was said, on a terminal too. None of it is worth a training: a terminal that was closed is
forgotten, and a full disk is a warning.
"""

import contextlib
import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from veloxseg.console import is_quiet, outliving_the_terminal, say, warn, write_log
from veloxseg.errors import OutputError
from veloxseg.files import atomic_path
from veloxseg.train.schedule import Pace

__all__ = ["Display", "dice_text", "draw_curves", "duration", "write_csv"]

COLUMNS = {  # of a row of history: title and format
    "epoch": ("epoch", "{:d}"),
    "learning_rate": ("rate", "{:.1e}"),
    "total": ("loss", "{:.4f}"),
    "cross_entropy": ("CE", "{:.4f}"),
    "dice": ("Dice loss", "{:.4f}"),
    "reconstruction": ("reconstr.", "{:.4f}"),
    "transfer": ("transfer", "{:.5f}"),
    "validation_dice": ("val. Dice", "{:.4f}"),
    "seconds": ("s", "{:.1f}"),
}
TAUGHT = ("reconstruction", "transfer")  # always 0 without teachers, and then not shown
LIVE_ROWS = 12
QUIET_SECONDS = 30.0  # without a terminal a line within an epoch comes at most so often; so do new pictures
Row = dict[str, Any]


class Display:
    """One for each training; every method may be called as often as wanted."""

    def __init__(self, folder: Path, active: bool = True) -> None:
        self.folder, self.active = folder, active  # of several processes one is active
        self._live: Any = None
        self._rows: list[Row] = []
        self._drawn = self._said = time.monotonic()
        self._writer: Any = None

    def __enter__(self) -> "Display":
        if self.active and not is_quiet() and sys.stdout.isatty():
            from rich.live import Live

            self._live = Live(refresh_per_second=4)
            self._live.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        live, self._live = self._live, None
        if live is not None:
            with outliving_the_terminal():
                live.__exit__(*details)
        if self._writer is not None:
            with _worth_a_warning():
                self._writer.close()

    def step(self, epoch: int, pace: Pace, step: int, loss: float, left: float) -> None:
        """A step is done."""
        self.note(f"epoch {epoch}, step {step} of {pace.steps_per_epoch}, loss {loss:.3f}, {duration(left)} left")

    def note(self, text: str) -> None:
        """What happens within an epoch: below the live table, or as a line now and then."""
        if self._live is not None:
            with outliving_the_terminal():
                self._live.update(_table(self._rows, text))
        if self.active and time.monotonic() - self._said >= QUIET_SECONDS:
            self._said = time.monotonic()
            (say if self._live is None else write_log)(text)

    def epoch(self, history: list[Row], epochs: int, left: float) -> None:
        """An epoch is done: shows its row and writes the CSV; the picture, too, every few seconds."""
        if not self.active:
            return
        self._rows = history
        row = history[-1]
        values = [f"{COLUMNS[name][0]} {text}" for name, text in _texts(row, _columns(history)).items() if text]
        (say if self._live is None else write_log)(f"{', '.join(values)} ({epochs} epochs, {duration(left)} left)")
        self._said = time.monotonic()
        if self._live is not None:
            self.note(f"{duration(left)} left")
        with _worth_a_warning():
            write_csv(history, self.folder / "progress.csv")
            self._tensorboard(row)
        if time.monotonic() - self._drawn > QUIET_SECONDS:
            self.draw(history)

    def draw(self, history: list[Row]) -> None:
        if history and self.active:
            with _worth_a_warning():
                draw_curves(history, self.folder / "progress.png")
        self._drawn = time.monotonic()

    def _tensorboard(self, row: Row) -> None:
        if self._writer is None:
            try:
                from tensorboardX import SummaryWriter
            except ImportError:
                return  # an extra; CSV and picture hold the same
            folder = self.folder / "tensorboard"
            self._writer = SummaryWriter(str(folder), purge_step=row["epoch"], write_to_disk=True)
        for name, value in row.items():
            if name != "epoch" and value is not None:
                self._writer.add_scalar(name.replace(":", "/"), value, row["epoch"])
        self._writer.flush()


@contextlib.contextmanager
def _worth_a_warning() -> Iterator[None]:
    try:
        yield
    except (OutputError, OSError) as error:
        warn(f"{error}; training goes on without this file")


def dice_text(dice: float | None) -> str:
    return "unknown" if dice is None else f"{dice:.3f}"


def duration(seconds: float) -> str:
    """
    >>> duration(3725)
    '1 h 02 min'
    """
    seconds = max(0, round(seconds))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def write_csv(history: list[Row], path: Path) -> None:
    """Written anew and whole each time, so that a resumed run has neither gaps nor doubled rows."""
    names = list(dict.fromkeys(name for row in history for name in row))
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(history)


def _columns(rows: list[Row]) -> list[str]:
    """The columns to show: those of the teachers only where there are teachers."""
    return [name for name in COLUMNS if name not in TAUGHT or any(row.get(name) for row in rows)]


def _texts(row: Row, columns: list[str]) -> dict[str, str]:
    values = {name: row.get(name) for name in columns}
    return {name: "" if value is None else COLUMNS[name][1].format(value) for name, value in values.items()}


def _table(rows: list[Row], note: str) -> Any:
    from rich.table import Table

    columns = _columns(rows)
    table = Table(caption=note, caption_justify="left", expand=False)
    for name in columns:
        table.add_column(COLUMNS[name][0], justify="right", no_wrap=True)
    for row in rows[-LIVE_ROWS:]:
        table.add_row(*_texts(row, columns).values())
    return table


def draw_curves(history: list[Row], path: Path) -> None:
    """Losses above, validated Dice below, over epochs."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6.4), dpi=110)
    FigureCanvasAgg(figure)
    losses, scores = figure.subplots(2, 1, sharex=True)
    figure.subplots_adjust(left=0.09, right=0.98, top=0.97, bottom=0.08, hspace=0.08)
    epochs = [row["epoch"] for row in history]
    for name, colour in (
        ("total", "#1f2937"),
        ("cross_entropy", "#2563eb"),
        ("dice", "#d97706"),
        ("reconstruction", "#059669"),
        ("transfer", "#9333ea"),
    ):
        values = [row[name] for row in history]
        if any(value for value in values):
            width = 2 if name == "total" else 1.2
            losses.plot(epochs, [v or None for v in values], color=colour, linewidth=width, label=COLUMNS[name][0])
    losses.set(ylabel="training loss", yscale="log")
    if losses.lines:  # none if no step of any epoch had a finite loss
        losses.legend(frameon=False, ncols=5, loc="upper right", fontsize=8)
    _draw_scores(scores, history)
    for axes in (losses, scores):
        axes.grid(alpha=0.25, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    scores.set_xlabel("epoch")
    with atomic_path(path) as temporary:
        figure.savefig(temporary)


def _draw_scores(axes: Any, history: list[Row]) -> None:
    rows = [row for row in history if row.get("validation_dice") is not None]
    epochs = [row["epoch"] for row in rows]
    parts = [name for name in dict.fromkeys(key for row in rows for key in row) if name.startswith("dice:")]
    if len(parts) > 1:
        for name in parts:
            axes.plot(epochs, [row.get(name) for row in rows], linewidth=1, label=name.removeprefix("dice:"))
    if rows:
        values = [row["validation_dice"] for row in rows]
        axes.plot(epochs, values, color="#b91c1c", linewidth=2, marker="o", markersize=3, label="mean")
        top = max(range(len(rows)), key=values.__getitem__)
        axes.annotate(
            f"{values[top]:.3f}", (epochs[top], values[top]), xytext=(0, 6), textcoords="offset points", ha="center"
        )
        axes.legend(frameon=False, loc="lower right", fontsize=8)
    axes.set(ylabel="Dice, whole validation volumes", ylim=(0, 1.05))
