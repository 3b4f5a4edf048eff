"""docs/models.md, made from the cards: `python -m veloxseg.shipped.page > docs/models.md`."""

from veloxseg.files import read_json
from veloxseg.shipped import FOLDER, Card, cards

__all__ = ["page"]

HEADER = """# Models to use at once

They come with the package: `veloxseg predict -m NAME` takes them by name, `veloxseg info --models` lists them,
`veloxseg info NAME` tells all. **Research use only, not a medical device.** Each was trained in minutes on one core of
a CPU, on little public data: they show the tool and give a first mask to correct, and a model of your own data will be
better there.

Scores are of patients that a network of the same recipe had not seen (cross-validation); the shipped one was then
trained on all of them."""


def page() -> str:
    """One section for each model."""
    return "\n\n".join([HEADER, *(_section(name, card) for name, card in cards().items())]) + "\n"


def _section(name: str, card: Card) -> str:
    model, scores = read_json(FOLDER / name / "model.json"), card.scores
    spacing = " × ".join(f"{value:g}" for value in model["plan"]["spacing"])
    rows = {
        "finds": card.finds,
        "takes": ", ".join(f"`{modality}`" for modality in model["modalities"]) + f", computed at {spacing} mm",
        "data": card.data,
        "Dice": f"{scores.dice:.3f} (95 % interval {scores.interval[0]:.3f} to {scores.interval[1]:.3f}, least "
        f"{scores.least:.2f}; {scores.patients} patients; {scores.how})",
        "trained by": card.trained,
        "limits": " ".join(card.limits),
        "licence": f"{card.licence}. {card.attribution}",
        "weights": f"SHA-256 `{card.weights_sha256}`",
    }
    table = "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())])
    return f"## `{name}`: {card.title}\n\n{table}"


if __name__ == "__main__":
    print(page(), end="")
