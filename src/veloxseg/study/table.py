"""A table that can be trained: rows of settings, as `train --set` takes them, and what the paper prints for each.

A row with `prune` starts from another row's weights. A user's own table is a TOML file:

    title = "Rates"
    first = "low"            # the row that the others are tested against; the first one if it is not given
    [settings]               # of all rows
    model = "s"
    [rows.low]
    learning_rate = 2.5e-4
    [rows.high]
    learning_rate = 4e-3
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from veloxseg.errors import ConfigError, did_you_mean, shown
from veloxseg.schema import OneOf, build, settle
from veloxseg.train.settings import check_settings, read_toml

__all__ = ["Pruning", "Row", "Settings", "Table", "choose_rows", "read_table", "row"]

ROW_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,59}")
Settings = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """A row that is cut from another one's network and trained again."""

    of: str  # the row that it starts from
    what: Annotated[str, OneOf("ffn", "channels")]
    to: str  # how many parameters are kept: a number such as 1.2M or 60%, or a row with as many

    def __post_init__(self) -> None:
        settle(self)


@dataclass(frozen=True, kw_only=True)
class Row:
    name: str  # of its folder
    title: str
    settings: Settings = field(default_factory=dict)  # on top of the table's
    paper: dict[str, float] = field(default_factory=dict)  # what is printed: {"Dice": 62.51, "M": 1.66, "G": 1.79}
    prune: Pruning | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    name: str
    title: str
    rows: tuple[Row, ...]
    first: str  # the row that the others are compared with
    settings: Settings = field(default_factory=dict)
    place: str = ""  # where the paper has it
    note: str = ""  # what a reader of the paper's values must know
    widths: tuple[dict[str, float], ...] = ()  # what the paper prints of pruned widths, by depth

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        for name in names:
            if not ROW_NAME.fullmatch(name):
                raise ConfigError(f"row {shown(name)!r} cannot name a folder; use letters, digits, +, -, _ and dots")
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"{shown(self.title)} has no row, or two of one name; give each row its own")
        wanted = [self.first, *(row.prune.of for row in self.rows if row.prune is not None)]
        if unknown := [name for name in wanted if name not in names]:
            raise ConfigError(f"{shown(self.title)} has no row {shown(unknown[0])!r}; it has {', '.join(names)}")

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def settings_of(self, row: Row) -> Settings:
        return self.settings | row.settings


def row(
    name: str, title: str, settings: Settings | None = None, prune: Pruning | None = None, /, **paper: float
) -> Row:
    """A row in one line; what the paper prints for it comes by name: Dice=62.51, M=1.66."""
    return Row(name=name, title=title, settings=dict(settings or {}), paper=paper, prune=prune)


def choose_rows(table: Table, names: Sequence[str]) -> Table:
    """The table with these rows alone, and those that they are pruned from; () for all."""
    known = [row.name for row in table.rows]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"study {table.name} has no row {shown(name)!r}{did_you_mean(name, known)}; it has {', '.join(known)}"
            )
    if not names:
        return table
    wanted = set(names)
    for row in table.rows:
        if row.name in wanted and row.prune is not None:
            wanted |= {row.prune.of} | ({row.prune.to} & set(known))
    rows = tuple(row for row in table.rows if row.name in wanted)
    return replace(table, rows=rows, first=table.first if table.first in wanted else names[0])


@dataclass(frozen=True, kw_only=True)
class _File:
    """A table as a TOML file has it."""

    rows: dict[str, dict[str, Any]]
    title: str = ""
    first: str = ""
    note: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


def read_table(path: Path) -> Table:
    where = shown(path)
    value: _File = build(_File, read_toml(path), where, ConfigError, "see `veloxseg study -h`")
    rows = []
    for name, entry in value.rows.items():
        entry = dict(entry)
        prune = entry.pop("prune", None)
        rows.append(
            Row(
                name=name,
                title=str(entry.pop("title", name)),
                paper=_printed(entry.pop("paper", {}), f"{where}: rows.{name}.paper"),
                prune=None if prune is None else build(Pruning, prune, f"{where}: rows.{name}.prune", ConfigError),
                settings=check_settings(entry, f"{where}: rows.{name}"),
            )
        )
    return Table(
        name=path.stem,
        title=value.title or path.stem,
        note=value.note,
        settings=check_settings(value.settings, f"{where}: settings"),
        rows=tuple(rows),
        first=value.first or next(iter(value.rows), ""),
    )


def _printed(value: Any, where: str) -> dict[str, float]:
    if not isinstance(value, Mapping) or not all(isinstance(number, int | float) for number in value.values()):
        raise ConfigError(f"{where} must name numbers, such as {{ Dice = 62.51, M = 1.66 }}")
    return {str(name): float(number) for name, number in value.items()}
