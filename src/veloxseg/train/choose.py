"""What a training of minutes should be (`--max-minutes`): one function decides, and says why in words.

    passes = minutes · speed · cores / (voxels of a patch · cases)      how often each case will be seen, roughly

The speed is a constant, not measured, so that the same command chooses the same wherever there are as many cores. A
network that sees each case hundreds of times learns the cases by heart, unless they look different each time; one
that sees them ten times has no time to lose. What was compared, and how it came out, is in experiments/recipe.md.

Whatever the user sets stays as it is. settings.json keeps the choice and its reasons.
"""

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.machine import default_workers
from veloxseg.predict.sliding import count_windows
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.store import Prepared
from veloxseg.train.recipe import SHORT

__all__ = ["Choice", "choose", "choose_for"]

SPEED = 5e6 * 60  # voxels that one core trains in a minute: preset B without teachers, by our kernels (AVX-512)
MANY_PASSES = 150
LOOKED_AT = 100  # cases whose size is read
COUNTED = 1e6  # voxels of a case that are counted; of larger ones every n-th
LESIONS_VARY = 5.0  # between cases, the 90th percentile of the labelled volume against the 10th; organs vary less
TRANSPLANT = 0.3
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
    labels = [prepared.label(name) for name in names[:LOOKED_AT]]
    patch = settings.get("patch", plan.patch)
    windows = [count_windows(label.shape, patch, settings.get("overlap", 0.5)) for label in labels]
    return choose(settings, plan, len(names), statistics.median(windows) if windows else 1, variation(labels, plan))


def variation(labels: Iterable[npt.NDArray[Any]], plan: Plan) -> float:
    """How much the labelled volume varies from case to case: a large value tells lesions from organs."""
    volumes = []
    for label in labels:
        step = math.ceil((label.size / COUNTED) ** (1 / 3))
        seen = np.asarray(label[::step, ::step, ::step])
        volumes.append(step**3 * int(np.count_nonzero((seen != 0) & (seen != plan.ignore_label))))
    low, high = np.percentile([volume for volume in volumes if volume] or [1], (10, 90))
    return float(high / low)


def choose(settings: Mapping[str, Any], plan: Plan, cases: int, windows: float, varies: float = 1.0) -> Choice:
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
    # a bladder is as hot as a tumour and told by its place alone, which tumours put anywhere would unteach
    told_by_place = any(modality.kind == "pet" for modality in plan.modalities)
    lesions = varies >= LESIONS_VARY and not told_by_place
    if lesions and chosen.get("augmentation") in MIRRORED and "transplant" not in settings:
        chosen["transplant"] = TRANSPLANT
        why.append(f"labelled volumes vary {varies:.0f}-fold as lesions do, so patches get lesions of other cases too")
    a_pass = max(1, cases * chosen["crops"] // chosen["batch"])
    chosen.setdefault("steps_per_epoch", a_pass * math.ceil(LEAST_STEPS / a_pass))
    if "mirror" not in settings and chosen.get("augmentation") in MIRRORED and windows <= FEW_WINDOWS:
        chosen["mirror"] = True
        why.append(f"a case has about {windows:.0f} windows, so the model predicts the mean of eight mirror images")
    return Choice(chosen, tuple(why))
