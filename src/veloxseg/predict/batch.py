"""Many cases: continues where it stopped, reads the next case while computing this one, lists failures at the end.

Before the first case is read, all that will be written is planned and checked (outputs.py). A case that fails never
stops the others.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veloxseg.console import say, warn
from veloxseg.dataset.seen import SEEN, Seen
from veloxseg.errors import OutputError, VeloxSegError, alike, shown, some
from veloxseg.files import writable_folder
from veloxseg.image import Volume, output_suffix, read_header
from veloxseg.predict.estimate import Estimate
from veloxseg.predict.inputs import InputCase
from veloxseg.predict.outputs import Targets, check_targets, is_done, other_scans, write_result
from veloxseg.predict.predictor import Predictor
from veloxseg.predict.scans import Scans
from veloxseg.predict.sliding import Progress

__all__ = [
    "Wanted",
    "describe",
    "largest_estimate",
    "plan_cases",
    "predict_cases",
    "predict_one",
    "predict_planned",
    "reason",
    "tell_seen",
]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is written for every case besides the mask, and as which type of file."""

    suffix: str | None = None  # None: as the scan
    extras: tuple[str, ...] = ()


def predict_cases(
    predictor: Predictor,
    cases: Sequence[InputCase],
    output: Path,
    wanted: Wanted | None = None,
    progress: Callable[[str], Progress] | None = None,
) -> dict[str, str]:
    """Predicts every case to `output/<case><suffix>`; returns case → message of those that failed.

    A single case raises its error instead.
    """
    wanted = wanted or Wanted()
    writable_folder(output)
    todo, failures = plan_cases(predictor, cases, output, wanted)
    seen: dict[str, Seen] = {}
    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as reader:
        ahead: Future[Scans] | None = None
        for index, (case, target) in enumerate(todo):
            reading = ahead or reader.submit(_read, predictor, case)
            ahead = None
            try:
                scans = reading.result()
                # the queue holds one case, and none when memory is short
                if index + 1 < len(todo) and not scans.frugal and predictor.options.max_ram is None:
                    ahead = reader.submit(_read, predictor, todo[index + 1][0])
                seen[case.name] = _predict(predictor, case, scans, target, progress)
            except KeyboardInterrupt:
                reader.shutdown(wait=False, cancel_futures=True)
                raise
            except Exception as error:  # even a bug in one case must not cost the others
                if len(cases) == 1:
                    raise
                note_failure(failures, case.name, error)
    tell_seen(seen)
    return failures


def predict_planned(predictor: Predictor, case: InputCase, target: Targets) -> None:
    """Predicts one case of a batch that was planned elsewhere."""
    tell_seen({case.name: _predict(predictor, case, _read(predictor, case), target, None)})


def predict_one(
    predictor: Predictor, case: InputCase, path: Path, wanted: Wanted, progress: Callable[[str], Progress] | None = None
) -> None:
    """Predicts one case to a file of the user's choice."""
    writable_folder(path.parent)
    target = _targets(predictor, path, wanted)
    check_targets({case.name: target}, case.images.values())
    tell_seen({case.name: _predict(predictor, case, _read(predictor, case), target, progress)})


def tell_seen(cases: Mapping[str, Seen]) -> None:
    """Says which cases the model has learnt from, because a mask of such a case proves nothing."""
    for status in SEEN:
        names = [name for name, seen in cases.items() if seen.status == status]
        if names:
            by = " (by name)" if all(cases[name].by == "name" for name in names) else ""
            warn(
                f"the model was {status} {len(names)} of {len(cases)} cases{by}: {some(names)}; "
                "their masks do not tell how it does on new patients"
            )


def plan_cases(
    predictor: Predictor, cases: Sequence[InputCase], output: Path, wanted: Wanted
) -> tuple[list[tuple[InputCase, Targets]], dict[str, str]]:
    """The cases that are still to do and where they will be written, and those whose scans have no readable header."""
    targets: dict[str, Targets] = {}
    failures: dict[str, str] = {}
    for case in cases:
        try:
            targets[case.name] = _targets(predictor, output / f"{case.name}{_suffix(predictor, case, wanted)}", wanted)
        except VeloxSegError as error:
            if len(cases) == 1:
                raise
            note_failure(failures, case.name, error)
    check_targets(targets, [path for case in cases for path in case.images.values()])
    left = [(case, targets[case.name]) for case in cases if case.name in targets]
    todo = [(case, target) for case, target in left if not _is_done(predictor, case, target, len(cases) == 1)]
    if len(todo) < len(left):
        say(f"{len(left) - len(todo)} of {len(cases)} cases are done already")
    return todo, failures


def _targets(predictor: Predictor, mask: Path, wanted: Wanted) -> Targets:
    outputs = predictor.decoding.foreground_outputs if predictor.options.probabilities else ()
    return Targets.of(mask, outputs, wanted.extras)


def _suffix(predictor: Predictor, case: InputCase, wanted: Wanted) -> str:
    """The ending that was asked for, or that keeps the type of the scan on whose grid the mask is made."""
    if wanted.suffix is not None:
        return wanted.suffix
    scans = Scans(case.images, name=case.name, picks=case.picks)
    scans.missing(predictor.plan, predictor.may_miss)
    name = predictor.reference(scans)
    header = read_header(case.images[name], series=case.picks.get(name, {}).get("series"))
    without_voxels = np.empty((0, 0, 0), np.float32)
    scan = Volume(array=without_voxels, geometry=header.grid(), file_type=header.file_type, header=header.keep)
    return output_suffix(scan)


def _is_done(predictor: Predictor, case: InputCase, target: Targets, alone: bool) -> bool:
    """Whether the result is there. A mask of other scans is made anew, or, for a case alone, refused.

    A folder of cases is brought up to date; a case given by its files may be another patient's of the same name.
    """
    if not target.record.exists():
        return False
    scans = Scans(case.images, name=case.name, picks=case.picks)
    try:
        if is_done(target, predictor.request(scans)):
            return True
        others = other_scans(target, scans.hashes())
    except VeloxSegError:
        return False  # what is wrong with its scans is told when its turn comes
    if others and alone:
        raise OutputError(
            f"{shown(target.mask)} was made from other scans than {', '.join(p.name for p in case.images.values())}; "
            "name another file or folder with -o, or remove it"
        )
    if others:
        warn(f"{case.name}: its scans are not those that its mask was made from; it is made anew")
    return False


def note_failure(failures: dict[str, str], name: str, error: Exception) -> None:
    """Keeps why a case failed, and says so unless another case failed in the same way: all are listed at the end."""
    before = len(alike(failures))
    failures[name] = reason(error)
    if len(alike(failures)) > before:
        warn(f"{name}: {failures[name]}")


def reason(error: Exception) -> str:
    """Why a case failed, in one line."""
    if isinstance(error, VeloxSegError):
        return str(error)
    if isinstance(error, MemoryError):
        return "not enough memory; use --max-ram, or crop the scans"
    return f"internal error: {type(error).__name__}: {shown(error)}"


def _read(predictor: Predictor, case: InputCase) -> Scans:
    """Reads a case ahead, unless memory is so short that its scans are read one by one."""
    scans = Scans(case.images, name=case.name, picks=case.picks)
    scans.missing(predictor.plan, predictor.may_miss)
    predictor.keep_within_memory(scans)
    if not scans.frugal:
        for name in scans:
            scans[name]
    return scans


def _predict(
    predictor: Predictor, case: InputCase, scans: Scans, target: Targets, progress: Callable[[str], Progress] | None
) -> Seen:
    folder = target.mask.parent
    _check_space(scans.grids()[predictor.reference(scans)].shape, predictor.options.probabilities, folder)
    result = predictor(scans, progress and progress(case.name))
    for warning in result.warnings:
        warn(f"{target.mask.name}: {warning}")
    write_result(result, scans, target, predictor.request(scans))
    volumes = ", ".join(f"{name} {ml:.2f} mL" for name, ml in result.volumes_ml.items())
    seconds = sum(result.provenance["seconds"].values())
    say(f"{shown(target.mask)}: {volumes or 'no label'} ({seconds:.1f} s)")
    return predictor.seen(scans)


def _check_space(shape: tuple[int, int, int], probabilities: bool, output: Path) -> None:
    """Room for the mask, before it is computed. Masks compress well, so a tenth of their size is asked for."""
    needed = shape[0] * shape[1] * shape[2] * (1.3 if probabilities else 0.1) + (1 << 20)
    free = shutil.disk_usage(output).free
    if free < needed:
        raise OutputError(
            f"{output} has {free / 1e6:.0f} MB free and the result may need {needed / 1e6:.0f} MB; free space or "
            "choose another folder with -o"
        )


def describe(predictor: Predictor, cases: Sequence[InputCase], expected: Estimate | None) -> str:
    """One line before the start: what computes, how long it takes and what it needs, by the largest case."""
    runtime = f"{predictor.runtime.name}, {predictor.runtime.threads} threads"
    if expected is None:
        return runtime
    which = f"largest of {len(cases)} cases" if len(cases) > 1 else "this case"
    return (
        f"{runtime}; {which}: at most {expected.windows} windows, {expected.seconds:.0f} s, "
        f"{expected.gib:.2f} GiB of memory ({expected.frugal_gib:.2f} with --max-ram)"
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
