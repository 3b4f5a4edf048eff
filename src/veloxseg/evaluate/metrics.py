"""How well a predicted mask agrees with a labelled one: overlap, distance and volume.

    Dice = 2|P∩L| / (|P|+|L|)      precision = |P∩L| / |P|      recall = |P∩L| / |L|
    HD95 = max(q95 of d(∂P, ∂L), q95 of d(∂L, ∂P))    in millimetres
    NSD  = (|{d(∂P, ∂L) <= t}| + |{d(∂L, ∂P) <= t}|) / (|∂P| + |∂L|)    for a tolerance of t mm

Conventions are MONAI's: the surface ∂M of a mask is its voxels with a face neighbour outside the mask (outside
the image counts as outside), distances are between voxel centres in millimetres, HD95 is the larger of the two
directed percentiles, and NSD counts surface voxels. What happens with empty masks is `POLICY`.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "DEFAULT_TOLERANCE_MM",
    "METRICS",
    "POLICY",
    "Metric",
    "Scores",
    "absent",
    "bounding_box",
    "dice",
    "failed",
    "score",
]

Mask = npt.NDArray[np.bool_]
Spacing = tuple[float, float, float]
Outcome = Literal["scored", "correctly empty", "missed", "false alarm", "no prediction"]

DEFAULT_TOLERANCE_MM = 2.0
ROUNDING_MM = 1e-4  # a spacing of 1 mm may be stored as 1.00000003, and two such voxels are still within 2 mm

POLICY: dict[Outcome, str] = {
    "scored": "in both: all metrics as defined",
    "correctly empty": "in neither: Dice, NSD, precision, recall and HD95 undefined, so not in their means, "
    "and counted here (as nnU-Net, MONAI and AutoPET do)",
    "missed": "in the label, not in the prediction: Dice, NSD, precision and recall 0; HD95 the diagonal of the image",
    "false alarm": "in the prediction, not in the label: Dice, NSD and precision 0; HD95 the diagonal of the image; "
    "recall and relative volume error undefined",
    "no prediction": "the file is missing: scored as a failure, Dice, NSD, precision and recall 0, HD95 the diagonal, "
    "even where the structure is not in the label",
}


@dataclass(frozen=True, kw_only=True)
class Scores:
    """One structure of one case. Undefined values are NaN here, empty in CSV and null in JSON."""

    outcome: Outcome
    dice: float
    hd95_mm: float
    nsd: float
    precision: float
    recall: float
    volume_ml: float  # predicted
    label_volume_ml: float
    volume_error_ml: float  # predicted - labelled
    volume_error_percent: float  # of the labelled volume

    def value(self, name: str) -> float:
        return float(getattr(self, name))

    def to_json(self) -> dict[str, Any]:
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in pairs}


@dataclass(frozen=True, kw_only=True)
class Metric:
    """How a metric is called, and which way is up."""

    title: str
    unit: str
    better: Literal["higher", "lower", "nearer to zero"]
    digits: int


METRICS: dict[str, Metric] = {
    "dice": Metric(title="Dice", unit="", better="higher", digits=3),
    "hd95_mm": Metric(title="HD95", unit="mm", better="lower", digits=2),
    "nsd": Metric(title="NSD", unit="", better="higher", digits=3),
    "precision": Metric(title="Precision", unit="", better="higher", digits=3),
    "recall": Metric(title="Recall", unit="", better="higher", digits=3),
    "volume_error_ml": Metric(title="Vol. error", unit="mL", better="nearer to zero", digits=2),
    "volume_error_percent": Metric(title="Vol. error", unit="%", better="nearer to zero", digits=1),
}


def dice(prediction: npt.NDArray[Any], label: npt.NDArray[Any]) -> float:
    """Dice of two masks; NaN if both are empty, 0 if one is.

    >>> dice(np.array([1, 1, 0]), np.array([1, 0, 0]))
    0.6666666666666666
    """
    prediction, label = prediction != 0, label != 0
    total = np.count_nonzero(prediction) + np.count_nonzero(label)
    return float(2 * np.count_nonzero(prediction & label) / total) if total else math.nan


def score(
    prediction: Mask,
    label: Mask,
    spacing: Spacing,
    tolerance_mm: float = DEFAULT_TOLERANCE_MM,
    diagonal_mm: float | None = None,
) -> Scores:
    """All metrics of one structure.

    `diagonal_mm` is HD95 when one mask is empty; give it when the masks are cut out of a larger image.
    """
    voxel_ml = math.prod(spacing) / 1000
    predicted, labelled = int(np.count_nonzero(prediction)), int(np.count_nonzero(label))
    volumes = _volumes(predicted * voxel_ml, labelled * voxel_ml)
    if diagonal_mm is None:
        diagonal_mm = math.hypot(*(size * step for size, step in zip(label.shape, spacing, strict=True)))
    if not predicted and not labelled:
        return absent()
    if not predicted:
        return _scores("missed", 0.0, diagonal_mm, recall=0.0, **volumes)
    if not labelled:
        return _scores("false alarm", 0.0, diagonal_mm, recall=math.nan, **volumes)
    box = bounding_box(prediction | label)
    prediction, label = prediction[box], label[box]
    hit = int(np.count_nonzero(prediction & label))
    to_label, to_prediction = surface_distances(prediction, label, spacing)
    limit = tolerance_mm + ROUNDING_MM
    near = np.count_nonzero(to_label <= limit) + np.count_nonzero(to_prediction <= limit)
    return Scores(
        outcome="scored",
        dice=2 * hit / (predicted + labelled),
        hd95_mm=float(max(np.quantile(to_label, 0.95), np.quantile(to_prediction, 0.95))),
        nsd=float(near / (len(to_label) + len(to_prediction))),
        precision=hit / predicted,
        recall=hit / labelled,
        **volumes,
    )


def absent() -> Scores:
    """The scores of a structure that is rightly not there."""
    return _scores("correctly empty", math.nan, math.nan, recall=math.nan, **_volumes(0.0, 0.0))


def failed(label_voxels: int, spacing: Spacing, diagonal_mm: float) -> Scores:
    """The scores of a case that has no prediction."""
    volumes = _volumes(0.0, label_voxels * math.prod(spacing) / 1000)
    return _scores("no prediction", 0.0, diagonal_mm, recall=0.0, **volumes)


def surface_distances(
    prediction: Mask, label: Mask, spacing: Spacing
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Millimetres from each surface voxel of one mask to the nearest of the other, both ways; none may be empty.

    A search tree over the surfaces' voxels rather than a distance transform of the image: the same numbers, and
    its cost follows the size of the lesions, not of the box around lesions at both ends of a body.
    """
    from scipy.spatial import cKDTree

    ours, theirs = surface(prediction), surface(label)

    def distances(source: Mask, target: Mask) -> npt.NDArray[np.float64]:
        result = np.zeros(int(np.count_nonzero(source)))  # voxels on both surfaces are at distance 0
        apart = source & ~target
        if apart.any():
            tree = cKDTree(np.argwhere(target) * spacing, balanced_tree=False, compact_nodes=False)
            found, _ = tree.query(np.argwhere(apart) * spacing)
            result[: len(found)] = found
        return result

    return distances(ours, theirs), distances(theirs, ours)


def surface(mask: Mask) -> Mask:
    """The voxels of `mask` with a face neighbour outside it."""
    padded = np.pad(mask, 1)
    inside = mask.copy()
    centre = slice(1, -1)
    for axis in range(mask.ndim):
        for shifted in (slice(None, -2), slice(2, None)):
            inside &= padded[tuple(shifted if a == axis else centre for a in range(mask.ndim))]
    return mask & ~inside


def bounding_box(mask: npt.NDArray[Any]) -> tuple[slice, ...]:
    """The smallest box that holds everything that is not 0; an empty box if there is nothing."""
    box = []
    for axis in range(mask.ndim):
        others = tuple(a for a in range(mask.ndim) if a != axis)
        where = np.flatnonzero(mask.any(axis=others))
        box.append(slice(int(where[0]), int(where[-1]) + 1) if len(where) else slice(0, 0))
    return tuple(box)


def _volumes(predicted_ml: float, labelled_ml: float) -> dict[str, float]:
    error = predicted_ml - labelled_ml
    return {
        "volume_ml": predicted_ml,
        "label_volume_ml": labelled_ml,
        "volume_error_ml": error,
        "volume_error_percent": 100 * error / labelled_ml if labelled_ml else math.nan,
    }


def _scores(outcome: Outcome, overlap: float, hd95_mm: float, *, recall: float, **volumes: float) -> Scores:
    return Scores(
        outcome=outcome,
        dice=overlap,
        hd95_mm=hd95_mm,
        nsd=overlap,
        precision=overlap,
        recall=recall,
        **volumes,
    )
