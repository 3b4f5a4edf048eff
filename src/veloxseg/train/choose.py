"""What a training of minutes should be (`--max-minutes`): one function decides, and says why in words.

    passes = minutes · speed · cores / (voxels of a patch · cases)      how often each case will be seen, roughly

The speed is a constant, not measured, so that the same command chooses the same wherever there are as many cores. A
network that sees each case hundreds of times learns the cases by heart, unless they look different each time; one
that sees them ten times has no time to lose. What was compared, and how it came out, is in experiments/recipe.md.

Whatever the user sets stays as it is. settings.json keeps the choice and its reasons.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from veloxseg.machine import default_workers
from veloxseg.predict.sliding import count_windows
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.store import Prepared
from veloxseg.train.recipe import SHORT

__all__ = ["Choice", "choose", "choose_for"]

SPEED = 5e6 * 60  # voxels that one core trains in a minute: preset B without teachers, by our kernels (AVX-512)
MANY_PASSES = 150
LOOKED_AT = 100  # cases whose size is read
MIRRORED = ("strong", "zoom")  # augmentations that mirror along all axes
LEAST_STEPS = 25  # of an epoch, in whole passes: few cases would make thousands of epochs, a line each
FEW_WINDOWS = 12  # of a case, up to which eight mirror images are predicted in seconds


@dataclass(frozen=True)
class Choice:
    """Settings by name, and the reasons for those that were chosen here."""

    settings: dict[str, Any]
    why: tuple[str, ...] = ()


def choose_for(settings: Mapping[str, Any], prepared: Prepared) -> Choice:
    """`choose` for a prepared data set."""
    if settings.get("max_minutes") is None:
        return Choice(dict(settings))
    plan, names = prepared.plan, prepared.split(settings.get("fold")).train
    shapes = [prepared.label(name).shape for name in names[:LOOKED_AT]]
    patch = settings.get("patch", plan.patch)
    windows = [count_windows(shape, patch, settings.get("overlap", 0.5)) for shape in shapes]
    return choose(settings, plan, len(names), statistics.median(windows) if windows else 1)


def choose(settings: Mapping[str, Any], plan: Plan, cases: int, windows: float) -> Choice:
    """The settings of a training with `max_minutes` on so many cases, of so many windows each."""
    minutes = settings["max_minutes"]
    cores = settings.get("threads") or default_workers()
    passes = minutes * SPEED * cores / (math.prod(settings.get("patch", plan.patch)) * max(1, cases))
    chosen, why = dict(SHORT), [f"each of {cases} cases will be seen about {passes:.0f} times in {minutes:g} minutes"]
    if passes >= MANY_PASSES and "augmentation" not in settings:
        chosen["augmentation"] = "zoom"
        why.append("so they are turned, zoomed, mirrored and recoloured, lest they are learnt by heart")
    elif "augmentation" not in settings:
        why.append(f"fewer than {MANY_PASSES}, so strong augmentation would cost more than it brings")
    chosen |= settings
    a_pass = max(1, cases * chosen["crops"] // chosen["batch"])
    chosen.setdefault("steps_per_epoch", a_pass * math.ceil(LEAST_STEPS / a_pass))
    if "mirror" not in settings and chosen.get("augmentation") in MIRRORED and windows <= FEW_WINDOWS:
        chosen["mirror"] = True
        why.append(f"a case has about {windows:.0f} windows, so the model predicts the mean of eight mirror images")
    return Choice(chosen, tuple(why))
