"""From the network's logits to labels, without a soft-max volume.

Scores are what is accumulated over windows and interpolated: for two classes one channel, the difference of
their logits, whose sign is the label and whose sigmoid is the probability; for more classes the logits; for
overlapping regions one logit each. Arg-max and sign need neither soft-max nor the windows' weights.

Legend: K output of the network, S score, XYZ space.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ModelError
from veloxseg.prepare.plan import Plan
from veloxseg.types import Floats, Labels

__all__ = ["Decoding"]


@dataclass(frozen=True)
class Decoding:
    """How the outputs of a plan's network become labels."""

    plan: Plan

    @cached_property
    def by_region(self) -> bool:
        return self.plan.regions is not None

    @cached_property
    def channels(self) -> int:
        """How many scores there are for a voxel."""
        outputs = len(self.plan.outputs)
        return 1 if outputs == 2 and not self.by_region else outputs

    @cached_property
    def foreground_outputs(self) -> tuple[str, ...]:
        """The outputs that have a probability of their own: all but background."""
        return self.plan.outputs if self.by_region else self.plan.outputs[1:]

    @cached_property
    def values(self) -> tuple[int, ...]:
        """The label value of each output: of each class, or of what a region adds to the regions inside it."""
        if self.plan.regions is None:
            return tuple(self.plan.labels[name] for name in self.plan.outputs)
        return tuple(_own_value(name, self.plan) for name in self.plan.regions)

    @cached_property
    def dtype(self) -> Any:
        return np.uint8 if max(self.plan.labels.values()) < 256 else np.uint16

    def scores(self, logits_KXYZ: Floats) -> Floats:
        """The scores of one window."""
        outputs = logits_KXYZ.shape[0]
        if outputs == self.channels:
            return logits_KXYZ
        if self.channels == 1 and outputs == 2:
            return np.subtract(logits_KXYZ[1:], logits_KXYZ[:1])
        raise ModelError(
            f"the network gives {outputs} outputs, the plan lists {', '.join(self.plan.outputs)}; were files mixed up?"
        )

    def labels(self, scores_SXYZ: Floats) -> Labels:
        """The label of every voxel. A score of 0 everywhere, as in windows that were skipped, is background."""
        if self.by_region:
            labels = np.zeros(scores_SXYZ.shape[1:], self.dtype)
            for value, score in zip(self.values, scores_SXYZ, strict=True):
                labels[score > 0] = value
        elif self.channels == 1:
            labels = (scores_SXYZ[0] > 0).view(np.uint8).astype(self.dtype, copy=False)  # `where` branches per voxel
            if self.values != (0, 1):
                labels = np.array(self.values, self.dtype)[labels]
        else:
            labels = np.full(scores_SXYZ.shape[1:], self.values[0], self.dtype)
            best = scores_SXYZ[0].copy()
            for value, score in zip(self.values[1:], scores_SXYZ[1:], strict=True):
                wins = score > best
                labels[wins] = value
                np.maximum(best, score, out=best)
        return labels

    def foreground(self, scores_SXYZ: Floats) -> npt.NDArray[np.bool_]:
        """Voxels that are not background; where it is False all around, interpolation gives background too."""
        if self.by_region or self.channels == 1:
            return np.asarray((scores_SXYZ > 0).any(axis=0))
        return np.asarray((scores_SXYZ[1:] > scores_SXYZ[0]).any(axis=0))

    def probabilities(self, scores_SXYZ: Floats) -> dict[str, Floats]:
        """The probability of every output but background, by name; it is 0 where all windows were skipped."""
        empty = ~scores_SXYZ.any(axis=0)
        if self.by_region or self.channels == 1:
            found = {name: _sigmoid(s) for name, s in zip(self.foreground_outputs, scores_SXYZ, strict=True)}
        else:
            shifted = np.exp(scores_SXYZ - scores_SXYZ.max(axis=0))
            shifted /= shifted.sum(axis=0)
            found = dict(zip(self.plan.outputs[1:], shifted[1:], strict=True))
        for probability in found.values():
            probability[empty] = 0
        return found


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x), np.float32)


def _own_value(region: str, plan: Plan) -> int:
    """nnU-Net names a region's class; elsewhere (BraTS: WT, TC, ET) it is what no region inside it holds."""
    assert plan.regions is not None
    if region in plan.labels:
        return plan.labels[region]
    values = set(plan.regions[region])
    inner = {v for other in plan.regions.values() if set(other) < values for v in other}
    return min(values - inner or values)
