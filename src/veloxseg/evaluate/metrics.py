"""How well a predicted mask agrees with a labelled one: overlap, distance and volume, as ONE table.

    Dice = 2|P∩L| / (|P|+|L|)      precision = |P∩L| / |P|      recall = |P∩L| / |L|
    HD95 = max(q95 of d(∂P, ∂L), q95 of d(∂L, ∂P))    in millimetres
    NSD  = (|{d(∂P, ∂L) <= t}| + |{d(∂L, ∂P) <= t}|) / (|∂P| + |∂L|)    for a tolerance of t mm

Conventions are MONAI's: the surface ∂M of a mask is its voxels with a face neighbour outside the mask (outside
the image counts as outside), distances are between voxel centres in millimetres, HD95 is the larger of the two
directed percentiles, and NSD counts surface voxels.

`METRICS` is all that the rest of the evaluation knows of metrics: terminal, JSON, CSV, report and statistics read
it, so another metric is one more entry. What a metric is where a mask is empty stands in its entry too.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from veloxseg.image.regions import bounding_box
from veloxseg.types import Array, Mask, Spacing

__all__ = [
    "DEFAULT_TOLERANCE_MM",
    "METRICS",
    "POLICY",
    "PRIMARY",
    "TOLERANCE_RULE",
    "Metric",
    "Outcome",
    "Pair",
    "Scores",
    "absent",
    "dice",
    "failed",
    "policy",
    "score",
    "tolerance_for",
]

Outcome = Literal["scored", "correctly empty", "missed", "false alarm", "no prediction"]

PRIMARY = "dice"  # the metric by which methods are compared; all others are told beside it
DEFAULT_TOLERANCE_MM = 2.0
TOLERANCE_RULE = "2 mm, or the in-plane side of a voxel if that is larger; never the thickness of a slice"
ROUNDING_MM = 1e-4  # a spacing of 1 mm may be stored as 1.00000003, and two such voxels are still within 2 mm

POLICY: dict[Outcome, str] = {
    "scored": "in both: all metrics as defined",
    "correctly empty": "in neither, counted here and not in the means (as nnU-Net, MONAI and AutoPET do)",
    "missed": "in the label, not in the prediction",
    "false alarm": "in the prediction, not in the label",
    "no prediction": "the file is missing, scored as a failure even where the structure is not in the label",
}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A predicted and a labelled mask of one structure, and what several metrics ask of them."""

    outcome: Outcome
    prediction: Mask  # both are cut to the box that holds what is in either
    label: Mask
    spacing: Spacing
    tolerance_mm: float = DEFAULT_TOLERANCE_MM
    diagonal_mm: float  # the diagonal of the whole image

    @cached_property
    def predicted(self) -> int:
        return int(np.count_nonzero(self.prediction))

    @cached_property
    def labelled(self) -> int:
        return int(np.count_nonzero(self.label))

    @cached_property
    def shared(self) -> int:
        return int(np.count_nonzero(self.prediction & self.label))

    @cached_property
    def distances(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return surface_distances(self.prediction, self.label, self.spacing)

    @property
    def voxel_ml(self) -> float:
        return math.prod(self.spacing) / 1000


Unscored = float | Literal["diagonal"]
# what a metric is in the outcomes other than "scored"; "diagonal" is the diagonal of the image
NOTHING: Mapping[Outcome, Unscored] = {
    "correctly empty": math.nan, "missed": 0.0, "false alarm": 0.0, "no prediction": 0.0
}  # fmt: skip
FARTHEST: Mapping[Outcome, Unscored] = {
    "correctly empty": math.nan, "missed": "diagonal", "false alarm": "diagonal", "no prediction": "diagonal"
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric: how it is computed, told and compared."""

    title: str
    definition: str  # for the report; {tolerance} stands for the tolerance of NSD in millimetres
    value: Callable[[Pair], float]
    better: Literal["higher", "lower", "nearer to zero"]
    unscored: Mapping[Outcome, Unscored] = field(default_factory=lambda: NOTHING)  # {}: `value` is right for all
    unit: str = ""
    digits: int = 3
    column: str = ""  # a shorter title for the terminal
    outliers: bool = False  # whether one bad case spoils the mean, so that the median is told too
    terminal: bool = True  # whether the terminal shows it
    report: bool = True  # whether the tables of the report show it; JSON and CSV always do
    compared: bool = True  # whether methods are compared by it

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def of(self, pair: Pair) -> float:
        """The metric's value by its definition, or by the policy for the outcome."""
        found = self.unscored.get(pair.outcome, "scored")
        if found == "scored":
            return self.value(pair)
        return pair.diagonal_mm if found == "diagonal" else float(found)


METRICS: dict[str, Metric] = {
    "dice": Metric(
        title="Dice",
        definition="2|P∩L| / (|P|+|L|) over voxels, P predicted and L labelled.",
        value=lambda pair: 2 * pair.shared / (pair.predicted + pair.labelled),
        better="higher",
    ),
    "hd95_mm": Metric(
        title="HD95",
        unit="mm",
        definition="the larger of the two directed 95th percentiles of the distances between surfaces, as MONAI.",
        value=lambda pair: float(max(np.quantile(side, 0.95) for side in pair.distances)),
        better="lower",
        unscored=FARTHEST,
        digits=2,
        outliers=True,
    ),
    "nsd": Metric(
        title="NSD",
        definition="normalised surface distance: the part of both surfaces that is within {tolerance:g} mm of the "
        f"other. Unless it was given, this tolerance is {TOLERANCE_RULE}.",
        value=lambda pair: nsd(*pair.distances, pair.tolerance_mm),
        better="higher",
    ),
    "precision": Metric(
        title="Precision",
        column="precis.",
        definition="|P∩L| / |P|.",
        value=lambda pair: pair.shared / pair.predicted,
        better="higher",
    ),
    "recall": Metric(
        title="Recall",
        column="recall",
        definition="|P∩L| / |L|.",
        value=lambda pair: pair.shared / pair.labelled,
        better="higher",
        unscored={**NOTHING, "false alarm": math.nan},
    ),
    "volume_error_ml": Metric(
        title="Vol. error",
        unit="mL",
        definition="predicted minus labelled.",
        value=lambda pair: (pair.predicted - pair.labelled) * pair.voxel_ml,
        better="nearer to zero",
        unscored={},
        digits=2,
        terminal=False,
        report=False,
    ),
    "volume_error_percent": Metric(
        title="Vol. error",
        unit="%",
        definition="the same, in percent of the labelled volume.",
        value=lambda pair: 100 * (pair.predicted / pair.labelled - 1) if pair.labelled else math.nan,
        better="nearer to zero",
        unscored={"correctly empty": math.nan, "false alarm": math.nan},
        digits=1,
        terminal=False,
        compared=False,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Scores:
    """One structure of one case; each metric is an attribute. Undefined is NaN here, empty in CSV, null in JSON."""

    outcome: Outcome
    values: dict[str, float]  # by the name of the metric
    volume_ml: float  # predicted
    label_volume_ml: float

    def __getattr__(self, name: str) -> float:
        values = self.__dict__.get("values", {})
        if name not in values:
            raise AttributeError(f"there is no metric {name!r}; there are {', '.join(values)}")
        return values[name]

    def value(self, name: str) -> float:
        return self.values[name]

    def to_json(self) -> dict[str, Any]:
        values = {**self.values, "volume_ml": self.volume_ml, "label_volume_ml": self.label_volume_ml}
        return {"outcome": self.outcome} | {k: v if math.isfinite(v) else None for k, v in values.items()}


def policy() -> dict[Outcome, str]:
    """What each outcome means, and what every metric is then, in words."""
    told = {}
    for outcome, meaning in POLICY.items():
        groups: dict[str, list[str]] = {}
        for metric in METRICS.values():
            if (found := metric.unscored.get(outcome)) is not None:
                groups.setdefault(_in_words(found), []).append(metric.heading)
        rules = "; ".join(f"{', '.join(names)} {words}" for words, names in groups.items())
        told[outcome] = f"{meaning}: {rules}" if rules else meaning
    return told


def _in_words(value: Unscored) -> str:
    if value == "diagonal":
        return "the diagonal of the image"
    return "undefined" if math.isnan(value) else f"{value:g}"


def tolerance_for(spacing: Spacing) -> float:
    """The tolerance of NSD by `TOLERANCE_RULE`: slices of 23 mm must not forgive an error of 23 mm in plane."""
    in_plane = sorted(spacing)[1]
    return max(DEFAULT_TOLERANCE_MM, math.ceil(round(in_plane * 10, 6)) / 10)


def dice(prediction: Array, label: Array) -> float:
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
    if diagonal_mm is None:
        diagonal_mm = math.hypot(*(size * step for size, step in zip(label.shape, spacing, strict=True)))
    box = bounding_box(prediction | label)
    outcomes: dict[tuple[bool, bool], Outcome] = {
        (True, True): "scored",
        (False, True): "missed",
        (True, False): "false alarm",
        (False, False): "correctly empty",
    }
    return _scores(
        Pair(
            outcome=outcomes[bool(prediction.any()), bool(label.any())],
            prediction=prediction[box],
            label=label[box],
            spacing=spacing,
            tolerance_mm=tolerance_mm,
            diagonal_mm=diagonal_mm,
        )
    )


def absent() -> Scores:
    """The scores of a structure that is rightly not there."""
    nothing = np.zeros((0, 0, 0), bool)
    return score(nothing, nothing, (1.0, 1.0, 1.0))


def failed(label_voxels: int, spacing: Spacing, diagonal_mm: float) -> Scores:
    """The scores of a case that has no prediction."""
    label = np.ones((label_voxels, 1, 1), bool)
    return _scores(
        Pair(
            outcome="no prediction",
            prediction=np.zeros_like(label),
            label=label,
            spacing=spacing,
            diagonal_mm=diagonal_mm,
        )
    )


def _scores(pair: Pair) -> Scores:
    return Scores(
        outcome=pair.outcome,
        values={name: metric.of(pair) for name, metric in METRICS.items()},
        volume_ml=pair.predicted * pair.voxel_ml,
        label_volume_ml=pair.labelled * pair.voxel_ml,
    )


def nsd(to_label: npt.NDArray[np.float64], to_prediction: npt.NDArray[np.float64], tolerance_mm: float) -> float:
    """The share of both surfaces that lies within the tolerance of the other one."""
    limit = tolerance_mm + ROUNDING_MM
    near = np.count_nonzero(to_label <= limit) + np.count_nonzero(to_prediction <= limit)
    return float(near / (len(to_label) + len(to_prediction)))


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
