"""Dice of networks, from the study that trained them: what Figure 1 of the paper sets against speed and size."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from veloxseg.errors import ConfigError, shown
from veloxseg.files import read_json
from veloxseg.schema import Count, Range, build

__all__ = ["Dice", "read_dice"]

Share = Annotated[float, Range(0, 1)]
REMEDY = "give the folder of a study, such as `veloxseg study peers` makes"


@dataclass(frozen=True, kw_only=True)
class Dice:
    """The mean over unseen cases, in percent."""

    mean: float
    low: float | None = None  # of its 95 % interval
    high: float | None = None
    cases: int | None = None  # None: as the paper prints it


@dataclass(frozen=True, kw_only=True)
class _Summary:
    """What table.json has of a metric."""

    count: Count
    left_out: int
    mean: Share
    median: Share
    deviation: float | None
    low: Share | None
    high: Share | None


def read_dice(path: str | Path) -> dict[str, Dice]:
    """Preset or peer → its Dice, from STUDY or its table.json; two rows of one network are refused."""
    path = Path(path)
    file = path / "table.json" if path.is_dir() else path
    value = read_json(file, ConfigError)
    rows = value.get("rows") if isinstance(value, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"{shown(file)} holds no rows of a study; {REMEDY}")
    found: dict[str, Dice] = {}
    for number, row in enumerate(rows):
        model = _model(row)
        if model in found:
            raise ConfigError(f"{shown(file)} has several rows of {shown(model)}; {REMEDY}")
        summary: _Summary = build(_Summary, row.get("dice"), f"{shown(file)}: rows.{number}.dice", ConfigError, REMEDY)
        low, high = (None if end is None else 100 * end for end in (summary.low, summary.high))
        found[model] = Dice(mean=100 * summary.mean, low=low, high=high, cases=summary.count)
    return found


def _model(row: dict[str, Any]) -> str:
    settings = row.get("settings")
    return str(settings.get("model", "b")).lower() if isinstance(settings, dict) else ""
