"""Models that come with VeloxSeg, by name: `veloxseg predict -m sarcoma-petct`.

Each is a MODEL folder in this one, with `card.json`: what it was trained on, under which licence, how well it did on
patients that it had not seen, and where it must not be trusted. A folder or file of the same name goes first, so a
name never hides what a user has. `python -m veloxseg.shipped.page` makes docs/models.md from the cards.
"""

from dataclasses import dataclass
from pathlib import Path

from veloxseg.errors import ModelError
from veloxseg.files import read_json
from veloxseg.schema import build

__all__ = ["Card", "cards", "located"]

FOLDER = Path(__file__).parent
CARD_NAME = "card.json"


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Dice of patients that were held out, each once."""

    dice: float
    interval: tuple[float, float]  # 95 %, of the mean over patients, by bootstrap
    least: float
    patients: int
    how: str


@dataclass(frozen=True, kw_only=True)
class Card:
    """card.json."""

    title: str
    finds: str
    data: str
    licence: str
    attribution: str
    trained: str
    scores: Scores
    limits: tuple[str, ...]
    weights_sha256: str


def located(path: str | Path) -> Path:
    """`path` itself; or, where there is nothing, the shipped model of that name."""
    path = Path(path)
    if path.exists() or len(path.parts) != 1:
        return path
    folder = FOLDER / path
    return folder if (folder / CARD_NAME).is_file() else path


def cards() -> dict[str, Card]:
    """The shipped models by name."""
    found = {}
    for file in sorted(FOLDER.glob(f"*/{CARD_NAME}")):
        found[file.parent.name] = build(Card, read_json(file), str(file), ModelError, "install VeloxSeg again")
    return found
