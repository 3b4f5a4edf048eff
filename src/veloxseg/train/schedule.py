"""The learning rate, and when a training is over.

    warm-up    η(p) = η_max · p / w                                            for p < w
    cosine     η(p) = η_min + (η_max - η_min) · (1 + cos(π (p - w) / (1 - w))) / 2

with p the part of the training that is done and w the warm-up's part. In a training of so many epochs p is
steps / all steps. With `max_minutes` it is the part of the time that is used: nothing has to be foreseen, and the rate
reaches its end in time however the machine's speed changes.
"""

import math
from dataclasses import dataclass

from veloxseg.train.recipe import Recipe

__all__ = ["Pace", "learning_rate"]

SHORT_WARMUP = 0.05  # of a timed training
SHORT_VALIDATIONS = 4  # of a timed training, evenly spread; a rate still high makes no best epoch anyway
SHORT_VALIDATION_PART = 0.1  # of the time; if validations take longer, the one at the end must do


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
    elapsed: float = 0.0  # seconds of work; of all processes the mean, so that they agree
    step_seconds: float = 0.0
    validation_seconds: float = 0.0

    @property
    def timed(self) -> bool:
        return self.recipe.max_minutes is not None

    @property
    def seconds(self) -> float:
        """The time for steps of a timed training: all but the last validation, once it is known how long one takes."""
        return max(1.0, 60 * (self.recipe.max_minutes or 0) - self.validation_seconds)

    def done(self, steps: int) -> float:
        """The part of the training that is done, in [0, 1]."""
        if self.timed:
            return min(1.0, self.elapsed / self.seconds)
        return min(1.0, steps / (self.recipe.epochs * self.steps_per_epoch))

    def learning_rate(self, step: int) -> float:
        """Of the step number `step` of the whole training, from 0."""
        if self.timed:
            return learning_rate(self.recipe, max(1e-3, self.done(step)), SHORT_WARMUP)
        return learning_rate(
            self.recipe, self.done(step + 1), min(0.5, self.recipe.warmup_epochs / self.recipe.epochs)
        )

    def time_is_up(self) -> bool:
        return self.timed and self.elapsed >= self.seconds

    def finished(self, epochs_done: int) -> bool:
        return self.time_is_up() if self.timed else epochs_done >= self.recipe.epochs

    def validates(self, epochs_done: int, validations_done: int) -> bool:
        """Whether the network is validated after this many epochs."""
        if self.finished(epochs_done):
            return True
        if not self.timed:
            return epochs_done % self.recipe.validate_every == 0
        affordable = SHORT_VALIDATION_PART * 60 * (self.recipe.max_minutes or 0)
        if SHORT_VALIDATIONS * self.validation_seconds > affordable:
            return False
        return validations_done < int(self.done(0) * SHORT_VALIDATIONS)

    def epochs(self, steps: int) -> int:
        """How many there will be, for people: planned, or as it looks now."""
        if not self.timed:
            return self.recipe.epochs
        more = (self.seconds - self.elapsed) / self.step_seconds if self.step_seconds else 0.0
        return max(1, round((steps + max(0.0, more)) / self.steps_per_epoch))

    def seconds_left(self, steps: int) -> float:
        if self.timed:
            return self.seconds - self.elapsed + self.validation_seconds
        left = self.recipe.epochs * self.steps_per_epoch - steps
        return left * self.step_seconds + self.validation_seconds
