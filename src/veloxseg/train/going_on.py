"""What may change when a training goes on: its length, and nothing else.

The schedule is a function of the part that is done, so a longer training plans it anew: the rate goes on where the
longer training would have it, above where it ended, and falls to its end again. The change is recorded in
settings.json together with the steps that were done. A kill right after it is therefore harmless: a checkpoint that
calls itself finished, and is not newer than the change, goes on.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from veloxseg.errors import ConfigError
from veloxseg.schema import OneOf
from veloxseg.train.checkpoint import newest_state
from veloxseg.train.recipe import Recipe
from veloxseg.train.settings import by_name, check_settings

__all__ = ["Extension", "longer", "reconcile"]

OTHER_LENGTH = {"epochs": "max_minutes", "max_minutes": "epochs"}
UNITS = {"epochs": "epochs", "max_minutes": "minutes"}


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A change of a training's length, after so many steps."""

    setting: Annotated[str, OneOf("epochs", "max_minutes")]
    before: float
    after: float
    steps: int

    @property
    def words(self) -> str:
        change = "extended" if self.after > self.before else "shortened"
        return f"{change} from {self.before:g} to {self.after:g} {UNITS[self.setting]} in all"


def reconcile(stored: Recipe, asked: dict[str, Any]) -> dict[str, Any]:
    """The new length by its setting, {} if it stays; whatever else is asked for otherwise is an error."""
    values, length = by_name(stored), "epochs" if stored.max_minutes is None else "max_minutes"
    changed = {
        name: value for name, value in check_settings(asked).items() if name not in values or values[name] != value
    }
    if OTHER_LENGTH[length] in changed:
        option = f"--{length.replace('_', '-')}"
        raise ConfigError(
            f"this training is planned by {UNITS[length]} ({values[length]:g}); give its new length by {option}"
        )
    new = {name: changed.pop(name) for name in (length,) if name in changed}
    if changed:
        differing = [
            f"{name} ({values.get(name, 'as the preset has it')!r} stored, {value!r} asked)"
            for name, value in changed.items()
        ]
        raise ConfigError(
            f"--continue keeps the run's settings, but these differ: {', '.join(differing)}; "
            "leave them out, or train in another folder"
        )
    return new


def longer(stored: Recipe, new: dict[str, Any], checkpoints: Path) -> tuple[Recipe, Extension]:
    """The recipe with its new length, which must be more than what is done; and the record of the change."""
    ((setting, after),) = new.items()
    state = newest_state(checkpoints)
    done = 0.0 if state is None else state.epoch if setting == "epochs" else state.seconds / 60
    if after <= done:
        unit = UNITS[setting]
        raise ConfigError(f"{done:.4g} {unit} are done already, {after:g} {unit} in all were asked for; give more")
    before = getattr(stored, setting)
    extension = Extension(
        setting=setting, before=float(before), after=float(after), steps=0 if state is None else state.steps
    )
    return dataclasses.replace(stored, **new), extension
