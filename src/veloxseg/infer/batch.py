"""Many cases: continues where it stopped, reads the next case while computing this one, lists failures at the end.

A case is done when its JSON is there, made by the same models with the same options from the same files; the JSON
is written last. A case that fails never stops the others.
"""

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from veloxseg.console import say, warn
from veloxseg.errors import OutputError, VeloxSegError
from veloxseg.files import read_json, writable_folder
from veloxseg.infer.cases import InputCase
from veloxseg.infer.estimate import Estimate
from veloxseg.infer.predict import Predictor
from veloxseg.infer.result import Segmentation
from veloxseg.infer.scans import Scans
from veloxseg.infer.sliding import Progress
from veloxseg.io import output_suffix, read_header

__all__ = ["describe", "largest_estimate", "predict_cases", "predict_one", "reason", "unfinished"]

Extra = Callable[[Segmentation, Scans, Path], None]  # result, scans, path of the mask


def predict_cases(
    predictor: Predictor,
    cases: Sequence[InputCase],
    output: Path,
    *,
    suffix: str | None = None,
    extras: Sequence[Extra] = (),
    progress: Callable[[str], Progress] | None = None,
) -> dict[str, str]:
    """Predicts every case to `output/<case><suffix>`; returns case → message of those that failed.

    A single case raises its error instead.
    """
    writable_folder(output)
    todo = unfinished(predictor, cases, output)
    failures: dict[str, str] = {}
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as reader:
        ahead: Future[Scans] | None = None
        for index, case in enumerate(todo):
            reading = ahead or reader.submit(_read, predictor, case)
            following = todo[index + 1 : index + 2]
            try:
                scans = reading.result()
                # the queue holds one case, and none when memory is short
                spare = not scans.frugal and predictor.options.max_ram is None
                ahead = reader.submit(_read, predictor, following[0]) if following and spare else None
                _predict(predictor, case, scans, output, suffix, extras, progress)
            except KeyboardInterrupt:
                reader.shutdown(wait=False, cancel_futures=True)
                raise
            except Exception as error:  # even a bug in one case must not cost the others
                if len(cases) == 1:
                    raise
                failures[case.name] = reason(error)
                warn(f"{case.name}: {failures[case.name]}")
            if reading is ahead:
                ahead = None
    return failures


def unfinished(predictor: Predictor, cases: Sequence[InputCase], output: Path) -> list[InputCase]:
    """The cases that are still to do; says how many are not."""
    todo = [case for case in cases if not _done(predictor, case, output)]
    if len(todo) < len(cases):
        say(f"{len(cases) - len(todo)} of {len(cases)} cases are done already")
    return todo


def reason(error: Exception) -> str:
    """Why a case failed, in one line."""
    if isinstance(error, VeloxSegError):
        return str(error)
    return f"internal error: {type(error).__name__}: {error}"


def predict_one(
    predictor: Predictor,
    case: InputCase,
    path: Path,
    *,
    extras: Sequence[Extra] = (),
    progress: Callable[[str], Progress] | None = None,
) -> None:
    """Predicts one case to a file of the user's choice."""
    writable_folder(path.parent)
    scans = _read(predictor, case)
    _write(predictor(scans, progress and progress(case.name)), scans, path, extras)


def _read(predictor: Predictor, case: InputCase) -> Scans:
    """Reads a case ahead, unless memory is so short that its scans are read one by one."""
    scans = Scans(case.images, picks=case.picks)
    scans.check_names(predictor.plan, predictor.may_miss)
    predictor.keep_within_memory(scans)
    if not scans.frugal:
        for name in scans:
            scans[name]
    return scans


def _predict(
    predictor: Predictor,
    case: InputCase,
    scans: Scans,
    output: Path,
    suffix: str | None,
    extras: Sequence[Extra],
    progress: Callable[[str], Progress] | None,
) -> None:
    _check_space(scans.grids()[predictor.reference(scans)].shape, predictor.options.probabilities, output)
    result = predictor(scans, progress and progress(case.name))
    path = output / f"{case.name}{suffix or output_suffix(result.labels)}"
    _write(result, scans, path, extras)


def _write(result: Segmentation, scans: Scans, path: Path, extras: Sequence[Extra]) -> None:
    for warning in result.warnings:
        warn(f"{path.name}: {warning}")
    for extra in extras:
        extra(result, scans, path)
    result.save(path)
    volumes = ", ".join(f"{name} {ml:.2f} mL" for name, ml in result.volumes_ml.items())
    seconds = sum(result.provenance["seconds"].values())
    say(f"{path}: {volumes or 'no label'} ({seconds:.1f} s)")


def _check_space(shape: tuple[int, int, int], probabilities: bool, output: Path) -> None:
    """Room for the mask, before it is computed. Masks compress well, so a tenth of their size is asked for."""
    needed = shape[0] * shape[1] * shape[2] * (1.3 if probabilities else 0.1) + (1 << 20)
    free = shutil.disk_usage(output).free
    if free < needed:
        raise OutputError(
            f"{output} has {free / 1e6:.0f} MB free and the result may need {needed / 1e6:.0f} MB; free space or "
            "choose another folder with -o"
        )


def _done(predictor: Predictor, case: InputCase, output: Path) -> bool:
    """Whether the JSON beside the mask says that this very result is there."""
    record = output / f"{case.name}.json"
    if not record.is_file():
        return False
    try:
        value: dict[str, Any] = read_json(record)
        files = {name: entry["file"] for name, entry in value["inputs"].items()}
        same = (
            [model["weights_sha256"] for model in value["models"]] == predictor.weights_hashes
            and value["options"] == asdict(predictor.options)
            and files == {name: path.name for name, path in case.images.items()}
        )
    except (VeloxSegError, KeyError, TypeError, AttributeError):
        return False
    masks = [path for path in output.glob(f"{case.name}.*") if path.suffix not in (".json", ".png")]
    newest_input = max((path.stat().st_mtime for path in case.images.values() if path.exists()), default=0.0)
    return same and bool(masks) and record.stat().st_mtime >= newest_input


def describe(predictor: Predictor, cases: Sequence[InputCase], expected: Estimate | None) -> str:
    """One line before the start: what computes, how long it takes and what it needs, by the largest case."""
    runtime = f"{predictor.runtime.name}, {predictor.runtime.threads} threads"
    if expected is None:
        return runtime
    which = f"largest of {len(cases)} cases" if len(cases) > 1 else "this case"
    return (
        f"{runtime}; {which}: at most {expected.windows} windows, {expected.seconds:.0f} s, "
        f"{expected.gib:.1f} GiB of memory ({expected.frugal_gib:.1f} with --max-ram)"
    )


def largest_estimate(predictor: Predictor, cases: Sequence[InputCase]) -> Estimate | None:
    """Time and memory of the case with most voxels; None if no case can be read."""
    largest, voxels = None, -1
    for case in cases:
        try:
            size = sum(_voxels(path) for path in case.images.values())
        except VeloxSegError:
            continue  # reported when its turn comes
        if size > voxels:
            largest, voxels = case, size
    if largest is None:
        return None
    try:
        return predictor.estimate(Scans(largest.images, picks=largest.picks))
    except VeloxSegError:
        return None


def _voxels(path: Path) -> int:
    x, y, z = read_header(path).grid().shape
    return x * y * z
