"""What a user with little data should know before the first step: few cases, short epochs, small or empty patches.

The recipe is the paper's, for hundreds of cases and patches of 96³ voxels. Nothing is changed here: a hint names the
setting that would.
"""

import math
from collections.abc import Iterator

from veloxseg.train.job import Job
from veloxseg.train.patches import steps_per_pass

__all__ = ["hints"]

FEW_CASES = 5
SHORT_EPOCH = 10  # steps; what an epoch stands for (validation, a line, a checkpoint) is then most of the work
USUAL_EPOCH = 50
SMALL_BATCH = 2 * 64**3  # voxels of a step; below, most of a step's time is overhead
USUAL_BATCH = 4 * 64**3
LARGEST_BATCH = 16  # patches
LOOKED_AT = 100  # cases whose size is read


def hints(job: Job) -> Iterator[str]:
    """One line each."""
    yield from _few_cases(job)
    yield from _short_epochs(job)
    yield from _small_batch(job)
    yield from _patch_beyond_the_scan(job)


def _few_cases(job: Job) -> Iterator[str]:
    count = len(job.split.train)
    if count < FEW_CASES:
        yield (
            f"{count} training case{'s' if count > 1 else ''} can be learnt by heart: expect little of new patients; "
            "label more, start from a model of similar scans (--init), or take --set augmentation=strong"
        )


def _short_epochs(job: Job) -> Iterator[str]:
    recipe, steps = job.recipe, steps_per_pass(job.recipe, len(job.split.train))
    if steps >= SHORT_EPOCH or recipe.steps_per_epoch:
        return
    whole = "" if recipe.max_minutes is not None else f", {steps * recipe.epochs} in all"
    yield (
        f"an epoch has {steps} step{'s' if steps > 1 else ''}{whole}, as each case is taken once; "
        f"--set steps_per_epoch={USUAL_EPOCH} makes it longer"
    )


def _small_batch(job: Job) -> Iterator[str]:
    recipe, voxels = job.recipe, math.prod(job.plan.patch)
    fitting = USUAL_BATCH // voxels // recipe.crops * recipe.crops
    larger = min(LARGEST_BATCH // recipe.crops * recipe.crops, fitting)
    if recipe.batch * voxels < SMALL_BATCH and larger > recipe.batch:
        yield f"a batch of {recipe.batch} patches of {_size(job.plan.patch)} is small; --set batch={larger} fits memory"


def _patch_beyond_the_scan(job: Job) -> Iterator[str]:
    """A patch that is longer than the scans is filled up with nothing, which costs time and teaches nothing."""
    names = job.split.train[:LOOKED_AT]
    shapes = [job.prepared.label(name).shape for name in names]
    beyond = [shape for shape in shapes if math.prod(shape) < math.prod(job.plan.patch) / 2 or _inside(shape, job)]
    if beyond:
        yield (
            f"the patch {_size(job.plan.patch)} is larger than {len(beyond)} of {len(names)} training cases "
            f"(such as {_size(beyond[0])}), and the rest of it is empty; prepare a smaller --patch or a finer --spacing"
        )


def _inside(shape: tuple[int, ...], job: Job) -> bool:
    """Whether a case ends before the patch along every axis."""
    return all(side < patch for side, patch in zip(shape, job.plan.patch, strict=True))


def _size(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
