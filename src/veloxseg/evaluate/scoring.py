"""One case: its label map and each method's prediction of it, scored structure by structure."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.evaluate.cases import check_same_grid
from veloxseg.evaluate.evaluation import Row
from veloxseg.evaluate.lesions import Detection, detect
from veloxseg.evaluate.metrics import Mask, absent, bounding_box, failed, score
from veloxseg.evaluate.regions import Regions
from veloxseg.files import sha256
from veloxseg.io import Geometry, read_label

__all__ = ["CaseResult", "label_values", "score_case", "score_without_case"]

LabelMap = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """What one case leaves behind once its images are forgotten."""

    rows: dict[tuple[str, str], Row]  # (method, structure)
    values: frozenset[int]  # label values in any of its files
    geometry: Geometry
    label_hash: str  # SHA-256
    prediction_hashes: dict[str, str]  # by method


def score_case(
    case: str,
    label_file: Path,
    prediction_files: Mapping[str, Path | None],
    structures: Callable[[frozenset[int]], Regions],
    tolerance_mm: float,
) -> CaseResult:
    """Scores the `structures` that follow from the label values found; a file that is None is a failure."""
    volume = read_label(label_file)
    label, geometry = volume.array, volume.geometry
    label_here = label_values(label)
    rows: dict[tuple[str, str], Row] = {}
    values = label_here
    hashes: dict[str, str] = {}
    for method, path in prediction_files.items():
        prediction = np.zeros_like(label)
        here = label_here
        if path is not None:
            read = read_label(path)
            check_same_grid(read.geometry, geometry, case, method)
            prediction = read.array
            here |= label_values(prediction)
            hashes[method] = sha256(path)
        values |= here
        box = tuple(map(_union, bounding_box(prediction), bounding_box(label)))
        ours, theirs = np.ascontiguousarray(prediction[box]), np.ascontiguousarray(label[box])
        for name, members in structures(here).items():
            masks = _mask(ours, members), _mask(theirs, members)
            rows[method, name] = _score(
                case, method, name, *masks, geometry, tolerance_mm, missing=path is None
            )
    return CaseResult(
        rows=rows,
        values=values,
        geometry=geometry,
        label_hash=sha256(label_file),
        prediction_hashes=hashes,
    )


def score_without_case(case: str, method: str, structure: str, geometry: Geometry, *, missing: bool) -> Row:
    """The row of a structure whose values are in none of the case's files."""
    scores = failed(0, geometry.spacing, diagonal_mm(geometry)) if missing else absent()
    nothing = Detection(lesions=(), false_positives=0, false_positive_ml=0.0)
    return Row(method=method, case=case, structure=structure, scores=scores, detection=nothing)


def label_values(array: LabelMap) -> frozenset[int]:
    """The values above 0, counted slab by slab: sorting a whole body takes seconds and gigabytes."""
    found: set[int] = set()
    for slab in array.T:  # label maps are read in Fortran order
        found.update(np.flatnonzero(np.bincount(slab.ravel())).tolist())
    return frozenset(found - {0})


def diagonal_mm(geometry: Geometry) -> float:
    """From corner to corner of the image: 373.13 mm for BraTS, as its organisers punish a missed structure."""
    return math.hypot(*(size * step for size, step in zip(geometry.shape, geometry.spacing, strict=True)))


def _score(
    case: str,
    method: str,
    name: str,
    prediction: Mask,
    label: Mask,
    geometry: Geometry,
    tolerance_mm: float,
    *,
    missing: bool,
) -> Row:
    diagonal = diagonal_mm(geometry)
    if missing:
        scores = failed(int(np.count_nonzero(label)), geometry.spacing, diagonal)
    else:
        scores = score(prediction, label, geometry.spacing, tolerance_mm, diagonal)
    detection = detect(prediction, label, geometry.voxel_ml)
    return Row(method=method, case=case, structure=name, scores=scores, detection=detection)


def _mask(array: LabelMap, values: tuple[int, ...]) -> Mask:
    mask: Mask = array == values[0]
    for value in values[1:]:
        mask |= array == value
    return mask


def _union(ours: slice, theirs: slice) -> slice:
    if ours.start == ours.stop or theirs.start == theirs.stop:  # one is empty
        return theirs if ours.start == ours.stop else ours
    return slice(min(ours.start, theirs.start), max(ours.stop, theirs.stop))
