"""The learning rate, and how many epochs fit in the time.

    warm-up    η(p) = η_max · p / w                                            for p < w
    cosine     η(p) = η_min + (η_max - η_min) · (1 + cos(π (p - w) / (1 - w))) / 2

with p the part of the training that is done and w the warm-up's part. In a training of so many epochs p is
steps / all steps. With `max_minutes` the number of epochs is planned anew after every epoch from the time that
epochs and validations took so far, so the rate reaches its end in time even if the machine's speed changes.
"""

import math
from dataclasses import dataclass

from veloxseg.train.recipe import Recipe

__all__ = ["Pace", "learning_rate", "validates"]

SHORT_WARMUP = 0.05  # of a timed training, whose number of epochs is not known before
SHORT_VALIDATIONS = 4  # of a timed training, evenly spread; a rate still high makes no best epoch anyway
SHORT_VALIDATION_PART = 0.1  # of the time; if validations take longer, the one at the end must do
SHORT_EPOCHS = 12  # a timed training has at least so many, so that it can be planned anew
SHORT_EPOCH = 8  # steps that an epoch has at least, if the data allow
TRIAL_STEPS = 5  # steps that are timed before the first plan, after one that is not (it allocates)
MEMORY = 50  # steps over which the time of a step is averaged: a moment's load must not end a training


def learning_rate(recipe: Recipe, done: float, warmup: float) -> float:
    """The rate after the part `done` of the training, both in [0, 1]."""
    if done < warmup:
        return recipe.learning_rate * done / warmup
    part = min(1.0, (done - warmup) / max(1e-9, 1 - warmup))
    span = recipe.learning_rate - recipe.final_learning_rate
    return recipe.final_learning_rate + span * (1 + math.cos(math.pi * part)) / 2


@dataclass
class Pace:
    """How long the training is: `epochs` is fixed, or planned from measured seconds."""

    recipe: Recipe
    steps_per_epoch: int
    epochs: int
    step_seconds: float = 0.0
    validation_seconds: float = 0.0

    @classmethod
    def start(cls, recipe: Recipe, steps_per_epoch: int) -> "Pace":
        return cls(recipe, steps_per_epoch, recipe.epochs)

    @property
    def timed(self) -> bool:
        return self.recipe.max_minutes is not None

    @property
    def short_validations(self) -> int:
        """How many a timed training can afford."""
        affordable = SHORT_VALIDATION_PART * 60 * (self.recipe.max_minutes or 0)
        return SHORT_VALIDATIONS if SHORT_VALIDATIONS * self.validation_seconds <= affordable else 1

    def learning_rate(self, step: int) -> float:
        """Of the step number `step` of the whole training, from 0."""
        total = self.epochs * self.steps_per_epoch
        warmup = SHORT_WARMUP if self.timed else min(0.5, self.recipe.warmup_epochs / self.epochs)
        return learning_rate(self.recipe, (step + 1) / total, warmup)

    def observe(self, seconds: float, steps: int) -> None:
        """So many steps took so many seconds."""
        weight = steps / (steps + MEMORY) if self.step_seconds else 1.0
        self.step_seconds += weight * (seconds / steps - self.step_seconds)

    def plan(self, epochs_done: int, elapsed: float, validations_done: int = 0) -> None:
        """Sets `epochs` to what fits in the time that is left. Does nothing in a training of fixed length."""
        if self.recipe.max_minutes is None or self.step_seconds <= 0:
            return
        validations = max(1, self.short_validations - validations_done)
        left = 60 * self.recipe.max_minutes - elapsed - validations * self.validation_seconds
        steps = max(0.0, left / self.step_seconds)
        if epochs_done == 0:  # a pass through much data may take longer than there is time
            self.steps_per_epoch = min(self.steps_per_epoch, max(SHORT_EPOCH, int(steps / SHORT_EPOCHS)))
        self.epochs = max(1, epochs_done + int(steps / self.steps_per_epoch))


def validates(pace: Pace, epochs_done: int) -> bool:
    """Whether the network is validated after this many epochs."""
    if epochs_done >= pace.epochs:
        return True
    if not pace.timed:
        return epochs_done % pace.recipe.validate_every == 0
    spacing = pace.epochs / pace.short_validations
    return int(epochs_done / spacing) > int((epochs_done - 1) / spacing)
