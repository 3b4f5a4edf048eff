"""One case: its label map and each method's prediction of it, scored structure by structure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.evaluate.cases import check_same_grid
from veloxseg.evaluate.evaluation import Row
from veloxseg.evaluate.lesions import Detection, detect
from veloxseg.evaluate.metrics import Mask, absent, failed, score
from veloxseg.evaluate.regions import Regions
from veloxseg.files import sha256
from veloxseg.io import Geometry, read_label

__all__ = ["CaseResult", "score_case", "score_without_case", "value_boxes"]

LabelMap = npt.NDArray[np.integer[Any]]
Box = tuple[slice, ...]


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
    ignore: int | None = None,
) -> CaseResult:
    """Scores the `structures` that follow from the label values found; a file that is None is a failure.

    Voxels labelled `ignore` count as background in label and prediction.
    """
    volume = read_label(label_file)
    label, geometry = volume.array, volume.geometry
    ignored = None if ignore is None else label == ignore
    if ignored is not None:
        label[ignored] = 0
    label_boxes = value_boxes(label)
    rows: dict[tuple[str, str], Row] = {}
    values = set(label_boxes)
    hashes: dict[str, str] = {}
    for method, path in prediction_files.items():
        prediction, boxes = None, dict[int, Box]()
        if path is not None:
            read = read_label(path)
            check_same_grid(read.geometry, geometry, case, method)
            prediction = read.array
            if ignored is not None:
                prediction[ignored] = 0
            boxes = value_boxes(prediction)
            hashes[method] = sha256(path)
        values |= boxes.keys()
        for name, members in structures(frozenset(boxes.keys() | label_boxes.keys())).items():
            found = [part[value] for part in (boxes, label_boxes) for value in members if value in part]
            if found:
                box = _around(found)
                masks = (
                    None if prediction is None else _mask(prediction[box], members),
                    _mask(label[box], members),
                )
                rows[method, name] = _score(case, method, name, *masks, geometry, tolerance_mm)
    return CaseResult(
        rows=rows,
        values=frozenset(values),
        geometry=geometry,
        label_hash=sha256(label_file),
        prediction_hashes=hashes,
    )


def score_without_case(case: str, method: str, structure: str, geometry: Geometry, *, missing: bool) -> Row:
    """The row of a structure whose values are in none of the case's files."""
    scores = failed(0, geometry.spacing, diagonal_mm(geometry)) if missing else absent()
    nothing = Detection(lesions=(), false_positives=0, false_positive_ml=0.0)
    return Row(method=method, case=case, structure=structure, scores=scores, detection=nothing)


def value_boxes(array: LabelMap) -> dict[int, Box]:
    """The box around each value above 0, in one pass: what follows costs the size of structures, not of the body."""
    from scipy.ndimage import find_objects

    # label maps are read in Fortran order, and scipy wants C
    return {value: box[::-1] for value, box in enumerate(find_objects(array.T), start=1) if box is not None}


def diagonal_mm(geometry: Geometry) -> float:
    """From corner to corner of the image: 373.13 mm for BraTS, as its organisers punish a missed structure."""
    return math.hypot(*(size * step for size, step in zip(geometry.shape, geometry.spacing, strict=True)))


def _score(
    case: str,
    method: str,
    name: str,
    prediction: Mask | None,
    label: Mask,
    geometry: Geometry,
    tolerance_mm: float,
) -> Row:
    diagonal = diagonal_mm(geometry)
    if prediction is None:
        scores = failed(int(np.count_nonzero(label)), geometry.spacing, diagonal)
        prediction = np.zeros_like(label)
    else:
        scores = score(prediction, label, geometry.spacing, tolerance_mm, diagonal)
    detection = detect(prediction, label, geometry.voxel_ml)
    return Row(method=method, case=case, structure=name, scores=scores, detection=detection)


def _mask(array: LabelMap, values: tuple[int, ...]) -> Mask:
    array = np.ascontiguousarray(array)
    mask: Mask = array == values[0]
    for value in values[1:]:
        mask |= array == value
    return mask


def _around(boxes: Sequence[Box]) -> Box:
    """The box around some boxes."""
    return tuple(
        slice(min(p.start for p in parts), max(p.stop for p in parts)) for parts in zip(*boxes, strict=True)
    )
