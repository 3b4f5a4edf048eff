"""A folder of predictions against a folder of labels, one case in memory at a time.

For example:

    evaluation = evaluate_folder("predictions", "labels")
    evaluation.summary(evaluation.methods[0], "tumour", "dice").mean
"""

import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np

from veloxseg import __version__
from veloxseg.errors import ConfigError, DatasetError
from veloxseg.evaluate.cases import check_same_grid, list_cases, open_labels
from veloxseg.evaluate.evaluation import Evaluation, Row
from veloxseg.evaluate.metrics import DEFAULT_TOLERANCE_MM
from veloxseg.evaluate.origin import predicted_by
from veloxseg.evaluate.regions import Regions
from veloxseg.evaluate.scoring import CaseResult, score_case, score_without_case
from veloxseg.io import read_header

__all__ = ["evaluate_folder"]

Files = Mapping[str, Path]
Progress = Callable[
    [Iterable[CaseResult], int], Iterable[CaseResult]
]  # passes cases on; knows how many will come


def evaluate_folder(
    predictions: str | Path | Sequence[str | Path],
    labels: str | Path,
    *,
    regions: Regions | None = None,
    names: Sequence[str] | None = None,
    tolerance_mm: float | None = None,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = lambda cases, total: cases,
) -> Evaluation:
    """Scores every case of `labels`; a case without a prediction counts as a failure.

    `labels` is a folder of label maps, or a data set in a layout that prepare knows. `regions` names the structures
    to score; without it they are those of the data set (or the `dataset.json` beside the labels) and every other
    label value. `names` are the methods' names, one per folder of predictions. `tolerance_mm` is that
    of NSD; without it, 2 mm or the longest side of a voxel (of the median case), whichever is larger.
    """
    started = time.monotonic()
    if tolerance_mm is not None and not 0 < tolerance_mm < math.inf:
        raise ConfigError(f"the tolerance of NSD is {tolerance_mm:g} mm; give a positive number, such as 2")
    folders = [Path(p) for p in ([predictions] if isinstance(predictions, str | Path) else predictions)]
    methods = _method_names(folders, names)
    truth = open_labels(Path(labels))
    label_files = truth.files
    prediction_files = {method: list_cases(folder) for method, folder in zip(methods, folders, strict=True)}
    for folder, found in zip(folders, prediction_files.values(), strict=True):
        _check_overlap(folder, found, Path(labels), label_files)
    sides = _check_grids(prediction_files, label_files)
    if tolerance_mm is None:
        tolerance_mm = max(DEFAULT_TOLERANCE_MM, math.ceil(median(sides) * 10) / 10)

    def structures(values: frozenset[int]) -> Regions:
        return regions or _with_unnamed(truth.structures, values)

    def work(case: str) -> CaseResult:
        files = {method: found.get(case) for method, found in prediction_files.items()}
        return score_case(case, label_files[case], files, structures, tolerance_mm, truth.ignore)

    scored = _map(work, list(label_files), threads)
    results = dict(zip(label_files, progress(scored, len(label_files)), strict=True))
    values = frozenset().union(*(result.values for result in results.values()))
    if not structures(values):
        raise DatasetError(
            f"no value but 0 in any label of {labels} or prediction; is this the right folder?"
        )
    return Evaluation(
        methods=methods,
        cases=tuple(label_files),
        structures=dict(structures(values)),
        rows=tuple(_all_rows(results, structures(values), prediction_files)),
        tolerance_mm=tolerance_mm,
        seed=seed,
        missing={m: tuple(c for c in label_files if c not in found) for m, found in prediction_files.items()},
        extra={m: _extra(found, label_files) for m, found in prediction_files.items()},
        warnings=(
            *_value_warnings(regions or truth.structures, values),
            *_tolerance_warnings(tolerance_mm, median(sides)),
        ),
        label_files=label_files,
        image_files=truth.images,
        prediction_files=prediction_files,
        provenance={
            "veloxseg": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": f"{platform.system()} {platform.machine()}",
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - started, 2),
            "labels": str(labels),
            "predictions": dict(zip(methods, map(str, folders), strict=True)),
            "predicted_by": {method: predicted_by(found) for method, found in prediction_files.items()},
            "sha256": {
                "labels": {case: result.label_hash for case, result in results.items()},
                "predictions": {
                    method: {
                        c: r.prediction_hashes[method]
                        for c, r in results.items()
                        if method in r.prediction_hashes
                    }
                    for method in methods
                },
            },
        },
    )


def _method_names(folders: Sequence[Path], names: Sequence[str] | None) -> tuple[str, ...]:
    if names is not None and len(names) != len(folders):
        raise ConfigError(
            f"{len(names)} names for {len(folders)} folders of predictions; give one name for each"
        )
    found = tuple(names or (folder.resolve().name for folder in folders))
    if len(set(found)) < len(found) and not names:  # runs/a/predictions and runs/b/predictions
        found = tuple("/".join(folder.resolve().parts[-2:]) for folder in folders)
    if len(set(found)) < len(found) or not all(found):
        raise ConfigError(
            f"the methods' names {', '.join(map(repr, found))} are not distinct; give others with --names"
        )
    return found


def _check_overlap(folder: Path, predictions: Files, label_folder: Path, labels: Files) -> None:
    if not predictions:
        raise DatasetError(f"{folder} holds no image; give the folder that predict wrote")
    if not predictions.keys() & labels.keys():
        example, other = next(iter(labels)), next(iter(predictions))
        raise DatasetError(
            f"no case of {label_folder} (such as {example!r}) is in {folder} (such as {other!r}); "
            "give folders whose files have the same names"
        )


def _extra(predictions: Files, labels: Files) -> tuple[str, ...]:
    """Predictions without a label; probability maps, which predict writes beside, are not meant to have one."""
    return tuple(case for case in predictions if case not in labels and not case.endswith("_probability"))


def _check_grids(predictions: Mapping[str, Files], labels: Files) -> list[float]:
    """All headers before the first voxel: a wrong grid is found in seconds, not after an hour.

    Gives the longest side of a voxel of each case, in millimetres.
    """
    sides = []
    for case, path in labels.items():
        label = read_header(path)
        sides.append(max(label.spacing))
        for method, found in predictions.items():
            if case in found:
                check_same_grid(read_header(found[case]), label, case, method)
    return sides


def _with_unnamed(named: Regions, values: Iterable[int]) -> Regions:
    covered = {value for members in named.values() for value in members}
    return {**named, **{f"label {value}": (value,) for value in sorted(set(values) - covered)}}


def _value_warnings(known: Regions, values: frozenset[int]) -> Iterator[str]:
    covered = {value for members in known.values() for value in members}
    for value in sorted(values - covered) if known else ():
        yield f"label value {value} occurs in the files but belongs to no structure of {', '.join(known)}"
    for name, members in known.items():
        if not values & set(members):
            yield f"no file holds {name} (label value {', '.join(map(str, members))})"


def _tolerance_warnings(tolerance_mm: float, side: float) -> Iterator[str]:
    if tolerance_mm < side:
        yield (
            f"the tolerance of NSD, {tolerance_mm:g} mm, is less than the longest side of a voxel, {side:.3g} mm, "
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


def _all_rows(
    results: Mapping[str, CaseResult], structures: Regions, predictions: Mapping[str, Files]
) -> Iterator[Row]:
    """Every method, case and structure: where nothing was there to be scored, that is said, not dropped."""
    for method, found in predictions.items():
        for case, result in results.items():
            for structure in structures:
                row = result.rows.get((method, structure))
                yield row or score_without_case(
                    case, method, structure, result.geometry, missing=case not in found
                )
