"""Dice on whole volumes, by the same sliding window that prediction uses."""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from veloxseg.evaluate.metrics import dice
from veloxseg.predict.sliding import count_windows, predict_labels
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.store import Prepared
from veloxseg.runtimes.torch import TorchRuntime

__all__ = [
    "case_dice",
    "foresee_seconds",
    "known",
    "mean_dice",
    "network_image",
    "structures",
    "subset_name",
    "subsets",
    "validate_case",
]

MARGIN = 1.25  # reading, decoding and Dice of a whole case take more than its windows
QUICK = 5.0  # seconds; a window that takes less is timed again, as the first one prepares what the others use


def structures(plan: Plan) -> dict[str, tuple[int, ...]]:
    """What Dice is computed for: the regions, or every label but background; name → label values."""
    if plan.regions is not None:
        return dict(plan.regions)
    return {name: (plan.labels[name],) for name in plan.outputs[1:]}


def validate_case(
    network: nn.Module,
    prepared: Prepared,
    name: str,
    plan: Plan,
    *,
    overlap: float,
    device: str = "cpu",
    available: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Dice of each structure of a case; NaN where it is in neither label nor prediction."""
    image, runtime = network_image(prepared, name, plan, available), TorchRuntime(network, device=device)
    predicted = predict_labels(image, runtime, plan, overlap=overlap, progress=progress)
    return case_dice(predicted, np.asarray(prepared.label(name)), plan)


def foresee_seconds(
    network: nn.Module, prepared: Prepared, names: Sequence[str], plan: Plan, *, overlap: float, device: str
) -> list[float]:
    """How long `validate_case` will take for each case: one window is timed, and the windows are counted."""
    if not names:
        return []
    runtime = TorchRuntime(network, device=device)
    window_CXYZ = np.random.default_rng(0).standard_normal((len(plan.names), *plan.patch), np.float32)
    for _ in range(2):
        began = time.monotonic()
        predict_labels(window_CXYZ, runtime, plan, overlap=overlap)
        if (seconds := time.monotonic() - began) > QUICK:
            break
    shapes = [prepared.label(name).shape for name in names]
    return [MARGIN * seconds * count_windows((x, y, z), plan.patch, overlap) for x, y, z in shapes]


def network_image(
    prepared: Prepared, name: str, plan: Plan, available: Sequence[str] | None = None
) -> npt.NDArray[Any]:
    """The image of a prepared case as a network sees it, whose `plan` may use fewer modalities than are prepared.

    With `available`, its other modalities are blanked, as if they had not been scanned.
    """
    channels = [prepared.plan.names.index(modality) for modality in plan.names]
    image = prepared.image(name)
    if channels != list(range(len(image))):
        image = image[channels]
    if available is not None:
        image = np.array(image)
        image[[c for c, modality in enumerate(plan.names) if modality not in available]] = 0
    return image


def case_dice(predicted: npt.NDArray[Any], label: npt.NDArray[Any], plan: Plan) -> dict[str, float]:
    if plan.ignore_label is not None:
        known = label != plan.ignore_label
        predicted, label = predicted[known], label[known]
    return {name: dice(np.isin(predicted, values), np.isin(label, values)) for name, values in structures(plan).items()}


def mean_dice(cases: Sequence[dict[str, float]]) -> float:
    """Mean over structures of the mean over the cases that have them; NaN if none has."""
    if not cases:
        return math.nan
    per_structure = [[case[name] for case in cases if not math.isnan(case[name])] for name in cases[0]]
    means = [sum(values) / len(values) for values in per_structure if values]
    return sum(means) / len(means) if means else math.nan


def known(value: float) -> float | None:
    """A number for JSON, which has no NaN."""
    return value if math.isfinite(value) else None


def subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    """All choices of modalities that leave at least one."""
    return [chosen for size in range(1, len(names) + 1) for chosen in itertools.combinations(names, size)]


def subset_name(names: Sequence[str]) -> str:
    return "+".join(names)
