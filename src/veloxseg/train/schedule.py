"""The learning rate, and when a training is over.

    warm-up    η(p) = η_max · p / w                                            for p < w
    cosine     η(p) = η_min + (η_max - η_min) · (1 + cos(π (p - w) / (1 - w))) / 2

with p the part of the training that is done and w the warm-up's part. In a training of so many epochs p is
steps / all steps. With `max_minutes` it is the part of the time that is used, so the rate reaches its end in time
however the machine's speed changes. What follows the last step belongs to the time, too: the last validation, which is
foreseen before it was ever measured, and saving.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from veloxseg.train.recipe import Recipe

__all__ = ["FEW_STEPS", "Pace", "learning_rate"]

SHORT_WARMUP = 0.05  # a timed training warms up in this part of its time
SHORT_VALIDATIONS = 4  # in a timed training, evenly spread; while the rate is high no epoch is the best anyway
SHORT_VALIDATION_PART = 0.1  # of the time; if four validations take longer, the one at the end must do
SHORT_END_PART = 1 / 3  # of the time; if the last validation takes longer, it leaves out cases
CLOSING_SECONDS = 2.0  # for the last picture and run.json
FEW_STEPS = 100  # fewer steps in all teach a network next to nothing


def learning_rate(recipe: Recipe, done: float, warmup: float) -> float:
    """The rate after the part `done` of the training, both in [0, 1]."""
    if done < warmup:
        return recipe.learning_rate * done / warmup
    part = min(1.0, (done - warmup) / max(1e-9, 1 - warmup))
    span = recipe.learning_rate - recipe.final_learning_rate
    return recipe.final_learning_rate + span * (1 + math.cos(math.pi * part)) / 2


@dataclass
class Pace:
    """How far a training is, by steps or by time."""

    recipe: Recipe
    steps_per_epoch: int
    elapsed: float = 0.0  # seconds of work; of all processes the longest, so that they agree
    step_seconds: float = 0.0
    validation_seconds: float = 0.0  # one validation, foreseen or measured
    saving_seconds: float = 0.0  # checkpoint and MODEL, foreseen or measured
    closing_validations: int = 0  # after the last one there are so many with modalities missing
    validation_cases: int | None = None  # a timed training may have no time for all; None: all

    @property
    def timed(self) -> bool:
        return self.recipe.max_minutes is not None

    @property
    def end_seconds(self) -> float:
        """The time from the last step to the end."""
        return (1 + self.closing_validations) * self.validation_seconds + self.saving_seconds + CLOSING_SECONDS

    @property
    def seconds(self) -> float:
        """The time for steps of a timed training: all but its end."""
        return max(1.0, 60 * (self.recipe.max_minutes or 0) - self.end_seconds)

    def foresee_validation(self, seconds_of_cases: Sequence[float]) -> None:
        """Plans the validations of a timed training: as many cases, in their order, as a third of the time allows."""
        affordable = SHORT_END_PART * 60 * (self.recipe.max_minutes or 0) / (1 + self.closing_validations)
        self.validation_cases = sum(total <= affordable for total in accumulate(seconds_of_cases))
        self.validation_seconds = sum(seconds_of_cases[: self.validation_cases])

    def done(self, steps: int) -> float:
        """The part of the training that is done, in [0, 1]."""
        if self.timed:
            return min(1.0, self.elapsed / self.seconds)
        return min(1.0, steps / (self.recipe.epochs * self.steps_per_epoch))

    def learning_rate(self, step: int) -> float:
        """The rate of step number `step` of the whole training, from 0."""
        if self.timed:
            return learning_rate(self.recipe, max(1e-3, self.done(step)), SHORT_WARMUP)
        return learning_rate(self.recipe, self.done(step + 1), min(0.5, self.recipe.warmup_epochs / self.recipe.epochs))

    def time_is_up(self) -> bool:
        """Whether a further step would end too late."""
        return self.timed and self.elapsed + self.step_seconds >= self.seconds

    def finished(self, epochs_done: int) -> bool:
        return self.time_is_up() if self.timed else epochs_done >= self.recipe.epochs

    def validates(self, epochs_done: int, validations_done: int) -> bool:
        """Whether the network is validated after this many epochs."""
        if self.finished(epochs_done):
            return True
        if not self.timed:
            return epochs_done % self.recipe.validate_every == 0
        affordable = SHORT_VALIDATION_PART * 60 * (self.recipe.max_minutes or 0)
        late = self.elapsed + self.validation_seconds + self.step_seconds >= self.seconds
        if late or SHORT_VALIDATIONS * self.validation_seconds > affordable:
            return False
        return validations_done < int(self.done(0) * SHORT_VALIDATIONS)

    def all_steps(self, steps: int) -> int:
        """How many steps there will be: planned, or as it looks after so many."""
        if not self.timed:
            return self.recipe.epochs * self.steps_per_epoch
        more = (self.seconds - self.elapsed) / self.step_seconds if self.step_seconds else 0.0
        return steps + max(0, int(more))

    def epochs(self, steps: int) -> int:
        """How many epochs there will be, for people."""
        return max(1, round(self.all_steps(steps) / self.steps_per_epoch))

    def seconds_left(self, steps: int) -> float:
        if self.timed:
            return self.seconds - self.elapsed + self.end_seconds
        left = self.recipe.epochs * self.steps_per_epoch - steps
        return left * self.step_seconds + self.validation_seconds
