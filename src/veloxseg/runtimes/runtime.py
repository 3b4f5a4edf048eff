"""A runtime computes a network: float32 windows in, logits out. All of them are behind one small protocol.

`open_runtime` of this package opens one for a MODEL folder; ensembles and mirrored networks are runtimes too.
"""

import itertools
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from veloxseg.errors import ModelError, shown
from veloxseg.types import Array, Floats, Size

__all__ = ["Ensemble", "Mirrored", "Runtime", "check_inputs", "first_line", "logits_of"]


class Runtime(Protocol):
    """(1, C, X, Y, Z) float32 → (1, K, X, Y, Z) logits, or (1, 1, X, Y, Z), their difference, for two classes.

    The window may be a view of an image.
    """

    @property
    def name(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def windows_at_once(self) -> int:
        """How many threads may call it at the same time; 1 if it shares a window among its threads."""

    def __call__(self, window_1CXYZ: Floats) -> Floats: ...


def logits_of(runtime: Runtime, window_1CXYZ: Floats) -> Floats:
    """(1, K, X, Y, Z) of a window. An output of another shape is refused: numpy would spread it over the window."""
    logits: Array = runtime(window_1CXYZ)
    shape, size = logits.shape, window_1CXYZ.shape[2:]
    if len(shape) != 5 or shape[0] != 1 or shape[2:] != size or logits.dtype.kind != "f":
        raise ModelError(
            f"{runtime.name} gave {logits.dtype} {shape} for a window of {size}, and logits (1, outputs, *{size}) were "
            "expected; export the model again"
        )
    return logits


class Ensemble:
    """Several networks of the same task, such as the folds of a cross-validation: the mean of their logits."""

    def __init__(self, members: Sequence[Runtime]) -> None:
        self.members = members
        self.name = f"{members[0].name} x {len(members)}"
        self.threads = members[0].threads
        self.windows_at_once = min(member.windows_at_once for member in members)

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        total = np.array(logits_of(self.members[0], window_1CXYZ))
        for member in self.members[1:]:
            logits = logits_of(member, window_1CXYZ)
            if logits.shape != total.shape:
                raise ModelError(
                    f"the members of an ensemble give {total.shape[1]} and {logits.shape[1]} outputs; all must be "
                    "models of one task in one form, so name a --runtime that each of them has"
                )
            total += logits
        total /= len(self.members)
        return total


class Mirrored:
    """Test-time mirroring: the mean over all flips of the given axes; of all three it is eight times the work."""

    def __init__(self, runtime: Runtime, axes: Sequence[int] = (0, 1, 2)) -> None:
        self.runtime = runtime
        self.name = f"{runtime.name}, mirrored"
        self.threads = runtime.threads
        self.windows_at_once = runtime.windows_at_once
        spatial = sorted(axis + 2 for axis in axes)
        self.flips = [flip for count in range(len(spatial)) for flip in itertools.combinations(spatial, count + 1)]

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        total = np.array(logits_of(self.runtime, window_1CXYZ))
        for axes in self.flips:
            flipped = np.ascontiguousarray(np.flip(window_1CXYZ, axes))
            total += np.flip(logits_of(self.runtime, flipped), axes)
        total /= len(self.flips) + 1
        return total


def check_inputs(path: object, inputs: Sequence[tuple[str, Sequence[object]]], channels: int, patch: Size) -> None:
    """Refuses a graph whose inputs (type and sizes, as far as it names them) are not one window of the plan."""
    expected = (1, channels, *patch)
    if len(inputs) == 1 and inputs[0][0] == "float32" and len(inputs[0][1]) == len(expected):
        sizes = zip(inputs[0][1], expected, strict=True)
        if all(size == wanted for size, wanted in sizes if isinstance(size, int)):
            return
    found = " and ".join(f"{kind} {tuple(sizes)}" for kind, sizes in inputs) or "nothing"
    raise ModelError(f"{path} takes {shown(found)}, model.json gives float32 {expected}; were files mixed up?")


def first_line(error: BaseException) -> str:
    """What a library says about its failure, for a message of one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Exception from ")] or lines  # OpenVINO's own places in C++
    return shown(lines[0] if lines else type(error).__name__)
