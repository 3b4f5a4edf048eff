"""Where a training stands: all that a checkpoint holds besides tensors, as plain JSON values."""

from dataclasses import asdict, dataclass, field
from typing import Any

from veloxseg.train.objective import TERMS

__all__ = ["Best", "State"]


@dataclass
class Best:
    """The epoch whose weights are MODEL's."""

    epoch: int  # epochs done
    step: int  # steps done: the name of its checkpoint
    dice: float | None  # None without cases to validate on
    structures: dict[str, float | None]


@dataclass
class State:
    epoch: int = 0  # epochs done
    step: int = 0  # steps done of the present epoch
    steps: int = 0  # steps done in all
    sums: list[float] = field(default_factory=lambda: [0.0] * len(TERMS))  # of the loss terms in this epoch
    counted: int = 0  # steps with a finite loss in `sums`
    bad: int = 0  # steps without a finite loss, the latest in a row
    seconds: float = 0.0  # of work, over all sessions
    epoch_seconds: float = 0.0  # of work on the present epoch
    validations: int = 0
    finished: bool = False
    best: Best | None = None
    history: list[dict[str, Any]] = field(default_factory=list)  # one row per epoch
    pace: dict[str, Any] = field(default_factory=dict)  # a timed training's plan, see schedule.py

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "State":
        best = value.get("best")
        return cls(**{**value, "best": Best(**best) if best else None})
