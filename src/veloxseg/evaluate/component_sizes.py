"""What `predict --remove-smaller` would do: Dice, false and missed lesions if components below some sizes were dropped.

It is a suggestion, made on cases that did not train the model and are not its test: validation cases, or those of
folds. It is printed and stored nowhere; who follows it says so to `predict`.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veloxseg.console import say
from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.evaluate.lesions import detect
from veloxseg.evaluate.metrics import dice
from veloxseg.predict.postprocess import remove_smaller
from veloxseg.types import Array, Mask

__all__ = ["Effect", "effects_of_sizes", "print_sizes", "suggestion"]

SIZES_ML = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, kw_only=True)
class Effect:
    """The figures of all cases if smaller components were dropped."""

    size_ml: float
    dice: float  # mean over structures of the mean over cases; NaN if there is none
    false: int  # predicted lesions that touch no label
    missed: int  # labelled lesions that no prediction touches


def effects_of_sizes(evaluation: Evaluation, sizes: Sequence[float] = SIZES_ML) -> list[Effect]:
    """Reads every predicted case of the first method once, and drops more and more of it; `sizes` ascend."""
    method, ignore = evaluation.methods[0], evaluation.masks.truth.ignore
    dices: dict[tuple[float, str], list[float]] = defaultdict(list)
    false, missed = dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0)
    for case in (case for case in evaluation.cases if case in evaluation.prediction_files[method]):
        label = evaluation.masks.label(case)
        predicted = evaluation.masks.prediction(method, case, label).array.copy()
        if ignore is not None:
            predicted[label.array == ignore] = 0
        for size in sizes:
            remove_smaller(predicted, size, label.geometry.voxel_ml)
            for name, values in evaluation.structures.items():
                mask, truth = (_mask(array, values) for array in (predicted, label.array))
                found = detect(mask, truth, label.geometry.voxel_ml)
                false[size] += found.false_positives
                missed[size] += found.false_negatives
                if not math.isnan(score := dice(mask, truth)):
                    dices[size, name].append(score)
    return [Effect(size_ml=s, dice=_mean(s, dices), false=false[s], missed=missed[s]) for s in sizes]


def suggestion(effects: Sequence[Effect]) -> str:
    """The size with the best Dice; of equal ones that with the fewest errors, and then the smallest."""
    first = effects[0]
    known = [effect for effect in effects if not math.isnan(effect.dice)]
    best = max(known, key=lambda e: (round(e.dice, 3), -e.false - e.missed, -e.size_ml), default=first)
    if best.size_ml == first.size_ml:
        return "no least size does better than none"
    more = f", {best.missed - first.missed} more missed" if best.missed > first.missed else ""
    return (
        f"a suggestion for `predict`: --remove-smaller {best.size_ml:g} (Dice {best.dice:.3f} instead of "
        f"{first.dice:.3f}, {best.false} false lesions instead of {first.false}{more}); it was chosen on these cases, "
        "so it has to be scored on others"
    )


def print_sizes(evaluation: Evaluation) -> None:
    """The table and the suggestion."""
    effects = effects_of_sizes(evaluation)
    say(f"components below a size dropped, {len(evaluation.cases)} cases, {evaluation.methods[0]}:")
    say(f"{'least mL':>9s} {'Dice':>7s} {'false lesions':>14s} {'missed lesions':>15s}")
    for effect in effects:
        say(f"{effect.size_ml:9g} {effect.dice:7.3f} {effect.false:14d} {effect.missed:15d}")
    say(suggestion(effects))


def _mean(size: float, dices: dict[tuple[float, str], list[float]]) -> float:
    means = [sum(values) / len(values) for (at, _), values in dices.items() if at == size and values]
    return sum(means) / len(means) if means else math.nan


def _mask(array: Array, values: tuple[int, ...]) -> Mask:
    return np.isin(array, values)
