"""Lesion by lesion: what was found, what was missed, what was made up.

A lesion is a connected component (`image/regions.py` says of which neighbours, and why). A labelled lesion is found
if the prediction touches it in at least one voxel; a predicted one is false if it touches no label.

    false negative volume = mL of labelled lesions that were not found
    false positive volume = mL of predicted lesions that are false
    lesion recall = TP/(TP+FN),  precision = TP/(TP+FP),  F1 = 2TP/(2TP+FP+FN)

The Dice of a labelled lesion compares it with the predicted lesions that touch it, without what these share with
other labelled lesions: a prediction that bridges two lesions is not punished for finding both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.image.regions import CONNECTIVITY, bounding_box, components
from veloxseg.types import Mask

__all__ = ["DEFINITION", "Detection", "Lesion", "LesionSummary", "detect", "summarise_lesions"]

DEFINITION = (
    f"a lesion is an {CONNECTIVITY}-connected component: its voxels share a face or an edge, because AutoPET scores "
    "lesions so; it is found if the prediction touches it, and a predicted one is false if it touches no label"
)

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Lesion:
    """One labelled lesion."""

    volume_ml: float
    dice: float
    found: bool


@dataclass(frozen=True, kw_only=True)
class Detection:
    """All lesions of one structure in one case."""

    lesions: tuple[Lesion, ...]
    false_positives: int
    false_positive_ml: float

    @property
    def true_positives(self) -> int:
        return sum(lesion.found for lesion in self.lesions)

    @property
    def false_negatives(self) -> int:
        return len(self.lesions) - self.true_positives

    @property
    def false_negative_ml(self) -> float:
        return math.fsum(lesion.volume_ml for lesion in self.lesions if not lesion.found)

    def to_json(self) -> dict[str, Any]:
        return {
            "lesions": len(self.lesions),
            "lesions_found": self.true_positives,
            "lesions_missed": self.false_negatives,
            "lesions_false": self.false_positives,
            "false_negative_volume_ml": self.false_negative_ml,
            "false_positive_volume_ml": self.false_positive_ml,
        }


@dataclass(frozen=True, kw_only=True)
class LesionSummary:
    """Lesions of all cases together; volumes are means per case, of false negatives over the cases with lesions."""

    lesions: int
    found: int
    false: int
    false_negative_ml: float
    false_positive_ml: float

    @property
    def recall(self) -> float:
        return self.found / self.lesions if self.lesions else math.nan

    @property
    def precision(self) -> float:
        return self.found / (self.found + self.false) if self.found + self.false else math.nan

    @property
    def f1(self) -> float:
        total = self.lesions + self.found + self.false  # = 2TP + FN + FP
        return 2 * self.found / total if total else math.nan

    def to_json(self) -> dict[str, Any]:
        values = {
            "lesions": self.lesions,
            "found": self.found,
            "missed": self.lesions - self.found,
            "false": self.false,
            "recall": self.recall,
            "precision": self.precision,
            "f1": self.f1,
            "mean_false_negative_volume_ml": self.false_negative_ml,
            "mean_false_positive_volume_ml": self.false_positive_ml,
        }
        return {key: None if math.isnan(value) else value for key, value in values.items()}


def summarise_lesions(detections: Sequence[Detection]) -> LesionSummary:
    """The lesions of one structure in all cases."""
    ill = [detection for detection in detections if detection.lesions]
    return LesionSummary(
        lesions=sum(len(d.lesions) for d in detections),
        found=sum(d.true_positives for d in detections),
        false=sum(d.false_positives for d in detections),
        false_negative_ml=math.fsum(d.false_negative_ml for d in ill) / len(ill) if ill else math.nan,
        false_positive_ml=math.fsum(d.false_positive_ml for d in detections) / len(detections),
    )


def detect(prediction: Mask, label: Mask, voxel_ml: float) -> Detection:
    """Finds the lesions of both masks and which of them touch."""
    box = bounding_box(prediction | label)
    predicted, predicted_sizes = components(prediction[box])
    labelled, labelled_sizes = components(label[box])
    shared = _overlaps(labelled, predicted, len(labelled_sizes), len(predicted_sizes))
    lesions = tuple(
        Lesion(volume_ml=int(size) * voxel_ml, dice=overlap, found=overlap > 0)
        for size, overlap in zip(labelled_sizes, _lesion_dice(shared, labelled_sizes, predicted_sizes), strict=True)
    )
    hits = np.zeros(len(predicted_sizes), dtype=bool)
    hits[[column for _, column in shared]] = True
    return Detection(
        lesions=lesions,
        false_positives=int(np.count_nonzero(~hits)),
        false_positive_ml=float(predicted_sizes[~hits].sum()) * voxel_ml,
    )


def _overlaps(
    labelled: npt.NDArray[np.int32], predicted: npt.NDArray[np.int32], rows: int, columns: int
) -> dict[tuple[int, int], int]:
    """Voxels that labelled lesion i and predicted lesion j share (both from 0), for the pairs that touch."""
    both = (labelled > 0) & (predicted > 0)
    pairs = (labelled[both].astype(np.int64) - 1) * columns + predicted[both] - 1
    keys, counts = np.unique(pairs, return_counts=True)
    return {divmod(int(key), columns): int(count) for key, count in zip(keys, counts, strict=True)}


def _lesion_dice(shared: dict[tuple[int, int], int], labelled: Counts, predicted: Counts) -> list[float]:
    hit = np.zeros(len(labelled), dtype=np.int64)  # voxels shared with this lesion
    own = np.zeros(len(labelled), dtype=np.int64)  # voxels of touching predictions that no other lesion has
    in_labels = np.zeros(len(predicted), dtype=np.int64)
    for (_, column), count in shared.items():
        in_labels[column] += count
    for (row, column), count in shared.items():
        hit[row] += count
        own[row] += predicted[column] - in_labels[column] + count
    return [float(value) for value in 2 * hit / (labelled + own)]
