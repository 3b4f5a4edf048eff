"""A folder of predictions against a folder of labels, one case in memory at a time.

For example:

    evaluation = evaluate_folder("predictions", "labels")
    evaluation.summary(evaluation.methods[0], "tumour", "dice").mean
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from veloxseg.dataset.cases import Selection
from veloxseg.errors import ConfigError, DatasetError, shown
from veloxseg.evaluate.apart import told_apart
from veloxseg.evaluate.evaluation import Evaluation, Row
from veloxseg.evaluate.labels import Files, Labels, Regions, list_cases, open_labels, with_merged
from veloxseg.evaluate.lesions import Detection, detect
from veloxseg.evaluate.masks import Masks
from veloxseg.evaluate.metrics import absent, failed, score, tolerance_for
from veloxseg.evaluate.records import learning_of, predicted_by, predicted_merges, predicted_structures
from veloxseg.evaluate.task import Task, scored_regions
from veloxseg.files import sha256
from veloxseg.image import Geometry
from veloxseg.image.regions import box_around, label_boxes
from veloxseg.machine import software, versions
from veloxseg.types import Array, Box, Mask, Spacing

__all__ = ["evaluate_folder"]


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """What one case leaves behind once its images are forgotten."""

    rows: dict[tuple[str, str], Row]  # (method, structure)
    values: frozenset[int]  # label values in any of its files
    geometry: Geometry
    label_hash: str  # SHA-256
    prediction_hashes: dict[str, str]  # by method


Progress = Callable[[Iterable[CaseResult], int], Iterable[CaseResult]]  # passes cases on; knows how many will come


def evaluate_folder(
    predictions: str | Path | Sequence[str | Path],
    labels: str | Path,
    *,
    selection: Selection = Selection(),  # noqa: B008 - frozen
    regions: Regions | None = None,
    names: Sequence[str] | None = None,
    tolerance_mm: float | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = lambda cases, total: cases,
) -> Evaluation:
    """Scores every case of `labels`; a case without a prediction counts as a failure.

    `labels` is a folder of label maps, or whatever names cases, of which `selection` takes a part. `regions` names the
    structures to score; without it they are those of the data set (or the `dataset.json` beside the labels, or the JSON
    that predict left beside a mask) and every other label value. `names` are the methods' names, one per folder of
    predictions. Cases that a model has learnt from are scored apart (apart.py). `tolerance_mm` is that of NSD;
    without it, `metrics.TOLERANCE_RULE` decides for the median case.
    """
    started = time.monotonic()
    if tolerance_mm is not None and not 0 < tolerance_mm < math.inf:
        raise ConfigError(f"the tolerance of NSD is {tolerance_mm:g} mm; give a positive number, such as 2")
    folders = [Path(p) for p in ([predictions] if isinstance(predictions, str | Path) else predictions)]
    methods = _method_names(folders, names)
    truth = open_labels(Path(labels), selection)
    regions, unscored = scored_regions(regions, truth)
    files = {method: list_cases(folder) for method, folder in zip(methods, folders, strict=True)}
    for folder, found in zip(folders, files.values(), strict=True):
        _check_overlap(folder, found, Path(labels), truth.files)
    if regions is None:
        truth = with_merged(truth, {name: p for found in files.values() for name, p in predicted_merges(found).items()})
    masks = Masks(truth=truth, predictions=files, by_name=regions is None)
    spacings = masks.check_grids()
    task = Task(
        masks=masks,
        regions=regions,
        unscored=unscored,
        known=next(filter(None, map(predicted_structures, files.values())), {}),
        tolerance_mm=tolerance_mm or median(map(tolerance_for, spacings)),
    )
    scored = _map(lambda case: score_case(case, task), list(truth.files), threads)
    results = dict(zip(truth.files, progress(scored, len(truth.files)), strict=True))
    provenance = {
        **_provenance(task, results),
        "seconds": round(time.monotonic() - started, 2),
        "labels": str(labels),
        "predictions": dict(zip(methods, map(str, folders), strict=True)),
    }
    evaluation = _evaluation(task, results, spacings, seed, provenance)
    return told_apart(evaluation, {method: learning_of(found) for method, found in files.items()})


def _evaluation(
    task: Task, results: dict[str, CaseResult], spacings: Sequence[Spacing], seed: int, provenance: dict[str, Any]
) -> Evaluation:
    """All cases together."""
    cases = tuple(results)
    values = frozenset().union(*(result.values for result in results.values()))
    structures = task.structures(values)
    if not structures:
        folder = shown(provenance["labels"])
        raise DatasetError(f"no value but 0 in any label of {folder} or prediction; is this the right folder?")
    return Evaluation(
        methods=tuple(task.predictions),
        cases=cases,
        structures=dict(structures),
        rows=tuple(_all_rows(results, structures, task.predictions)),
        tolerance_mm=task.tolerance_mm,
        seed=seed,
        missing={m: tuple(c for c in cases if c not in found) for m, found in task.predictions.items()},
        extra={m: _extra(found, task.truth) for m, found in task.predictions.items()},
        warnings=(
            *_value_warnings(task.given, values - task.unscored),
            *_tolerance_warnings(task.tolerance_mm, spacings),
        ),
        label_files=task.truth.files,
        image_files=task.truth.images,
        prediction_files={method: dict(found) for method, found in task.predictions.items()},
        provenance=provenance,
        masks=task.masks,
    )


def _provenance(task: Task, results: Mapping[str, CaseResult]) -> dict[str, Any]:
    """What the figures came from: versions, who predicted, and the hash of every file."""
    facts = software()
    return {
        "veloxseg": facts["veloxseg"],
        "python": facts["python"],
        **versions("numpy"),
        "machine": facts["platform"],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "predicted_by": {method: predicted_by(found) for method, found in task.predictions.items()},
        "sha256": {
            "labels": {case: result.label_hash for case, result in results.items()},
            "predictions": {
                method: {c: r.prediction_hashes[method] for c, r in results.items() if method in r.prediction_hashes}
                for method in task.predictions
            },
        },
    }


def _method_names(folders: Sequence[Path], names: Sequence[str] | None) -> tuple[str, ...]:
    if names is not None and len(names) != len(folders):
        raise ConfigError(f"{len(names)} names for {len(folders)} folders of predictions; give one name for each")
    found = tuple(names or (folder.resolve().name for folder in folders))
    if len(set(found)) < len(found) and not names:  # runs/a/predictions and runs/b/predictions
        found = tuple("/".join(folder.resolve().parts[-2:]) for folder in folders)
    if len(set(found)) < len(found) or not all(found):
        raise ConfigError(
            f"the methods' names {', '.join(repr(shown(name)) for name in found)} are not distinct; "
            "give others with --names"
        )
    return found


def _check_overlap(folder: Path, predictions: Files, label_folder: Path, labels: Files) -> None:
    if not predictions:
        raise DatasetError(f"{shown(folder)} holds no image; give the folder that predict wrote")
    if not predictions.keys() & labels.keys():
        example, other = shown(next(iter(labels))), shown(next(iter(predictions)))
        raise DatasetError(
            f"no case of {shown(label_folder)} (such as {example!r}) is in {shown(folder)} (such as {other!r}); "
            "give folders whose files have the same names"
        )


def score_case(case: str, task: Task) -> CaseResult:
    """Scores the structures that follow from the label values found; a method without the file has failed.

    Voxels that the truth says to ignore count as background in label and prediction.
    """
    path = task.truth.files[case]
    volume = task.masks.label(case)
    label, geometry = volume.array, volume.geometry
    ignored = None if task.truth.ignore is None else label == task.truth.ignore
    if ignored is not None:
        label[ignored] = 0
    labelled = label_boxes(label)
    values = set(labelled)
    rows: dict[tuple[str, str], Row] = {}
    hashes: dict[str, str] = {}
    for method, files in task.predictions.items():
        prediction, boxes = None, dict[int, Box]()
        if case in files:
            prediction = task.masks.prediction(method, case, volume).array
            if ignored is not None:
                prediction[ignored] = 0
            boxes = label_boxes(prediction)
            hashes[method] = sha256(files[case])
        values |= boxes.keys()
        task.check_values(case, frozenset(values))
        for name, members in task.structures(frozenset(boxes.keys() | labelled.keys())).items():
            found = [part[value] for part in (boxes, labelled) for value in members if value in part]
            if found:
                box = box_around(found)
                predicted = None if prediction is None else _mask(prediction[box], members)
                row = _row(case, method, name, predicted, _mask(label[box], members), geometry, task.tolerance_mm)
                rows[method, name] = row
    return CaseResult(
        rows=rows, values=frozenset(values), geometry=geometry, label_hash=sha256(path), prediction_hashes=hashes
    )


def _row(
    case: str, method: str, name: str, prediction: Mask | None, label: Mask, geometry: Geometry, tolerance_mm: float
) -> Row:
    if prediction is None:
        scores = failed(int(np.count_nonzero(label)), geometry.spacing, diagonal_mm(geometry))
        prediction = np.zeros_like(label)
    else:
        scores = score(prediction, label, geometry.spacing, tolerance_mm, diagonal_mm(geometry))
    detection = detect(prediction, label, geometry.voxel_ml)
    return Row(method=method, case=case, structure=name, scores=scores, detection=detection)


def _all_rows(
    results: Mapping[str, CaseResult], structures: Regions, predictions: Mapping[str, Files]
) -> Iterator[Row]:
    """Every method, case and structure: where nothing was there to be scored, that is said, not dropped."""
    nothing = Detection(lesions=(), false_positives=0, false_positive_ml=0.0)
    for method, found in predictions.items():
        for case, result in results.items():
            for structure in structures:
                if (method, structure) in result.rows:
                    yield result.rows[method, structure]
                    continue
                grid = result.geometry
                scores = absent() if case in found else failed(0, grid.spacing, diagonal_mm(grid))
                yield Row(method=method, case=case, structure=structure, scores=scores, detection=nothing)


def diagonal_mm(geometry: Geometry) -> float:
    """From corner to corner of the image: 373.13 mm for BraTS, as its organisers punish a missed structure."""
    return math.hypot(*(size * step for size, step in zip(geometry.shape, geometry.spacing, strict=True)))


def _mask(array: Array, values: tuple[int, ...]) -> Mask:
    array = np.ascontiguousarray(array)
    mask: Mask = array == values[0]
    for value in values[1:]:
        mask |= array == value
    return mask


def _extra(predictions: Files, truth: Labels) -> tuple[str, ...]:
    """Predictions without a label; probability maps, and cases that were not asked for, are not meant to have one."""
    known = truth.files.keys() | truth.left_out
    return tuple(case for case in predictions if case not in known and not case.endswith("_probability"))


def _value_warnings(given: Regions, values: frozenset[int]) -> Iterator[str]:
    covered = {value for members in given.values() for value in members}
    for value in sorted(values - covered) if given else ():
        yield f"label value {value} occurs in the files but belongs to no structure of {shown(', '.join(given))}"
    for name, members in given.items():
        if not values & set(members):
            yield f"no file holds {shown(name)} (label value {', '.join(map(str, members))})"


def _tolerance_warnings(tolerance_mm: float, spacings: Sequence[Spacing]) -> Iterator[str]:
    side = median(sorted(spacing)[1] for spacing in spacings)
    if tolerance_mm < side:
        yield (
            f"the tolerance of NSD, {tolerance_mm:g} mm, is less than the in-plane side of a voxel, {side:.3g} mm, "
            "so a surface that is one voxel off counts as wrong there"
        )


def _map(work: Callable[[str], CaseResult], cases: Sequence[str], threads: int) -> Iterator[CaseResult]:
    if threads <= 1:
        yield from map(work, cases)
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield from pool.map(work, cases)
    finally:  # after an error the cases that have not begun are dropped
        pool.shutdown(cancel_futures=True)
