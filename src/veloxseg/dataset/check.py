"""`veloxseg check`: every problem of a data set at once, each with case, file and remedy.

Errors make a case useless or a training wrong; warnings deserve a look; notes are facts that preparing deals with.
Cases are read in parallel, one at a time per process, and only their numbers are kept.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.console import progress
from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.problems import LEVELS, Problem, Report
from veloxseg.dataset.reading import label_grid_problem, open_label, read_scan, unknown_values
from veloxseg.dataset.seen import same_scans
from veloxseg.errors import VeloxSegError
from veloxseg.image import Volume, grid_difference
from veloxseg.image.align import alignment_warnings
from veloxseg.image.content import content_hash
from veloxseg.modality import kind_of
from veloxseg.workers import Failure, run_all

__all__ = ["check_case", "check_dataset"]


@dataclass
class CaseFacts:
    """What a worker sends back."""

    problems: list[Problem] = field(default_factory=list)
    spacings: dict[str, tuple[float, ...]] = field(default_factory=dict)
    scans: dict[str, str] = field(default_factory=dict)  # modality -> content hash


def check_dataset(dataset: Dataset, workers: int = 1) -> Report:
    """Looks at every file of every case."""
    problems = [*_names_and_splits(dataset)]
    work = partial(check_case, modalities=dataset.modalities, labels=dataset.labels)
    facts: dict[str, CaseFacts] = {}
    for case, result in progress(run_all(work, dataset.cases, workers), "check", len(dataset.cases)):
        if isinstance(result, Failure):
            result = CaseFacts([Problem("error", "crash", case.name, "", result.message, "look at the case's files")])
        facts[case.name] = result
    for case in dataset.cases:
        problems += facts[case.name].problems
    problems += _same_scans(dataset, facts)
    problems += _spacing_outliers(dataset.modalities, facts)
    problems.sort(key=lambda p: LEVELS.index(p.level))
    return Report(dataset.name, len(dataset.cases), tuple(problems))


def check_case(case: Case, modalities: tuple[str, ...], labels: dict[str, int]) -> CaseFacts:
    """One case: every file is tried, whatever is wrong with the others."""
    facts = CaseFacts()

    def add(level: str, kind: str, file: Path | str | None, problem: str, remedy: str) -> None:
        facts.problems.append(Problem(level, kind, case.name, str(file or ""), problem, remedy))

    volumes: dict[str, Volume] = {}
    for name in modalities:
        if name not in case.images:
            found = ", ".join(case.images) or "no modality"
            add(
                "error",
                "missing",
                None,
                f"modality {name} is missing, found {found}",
                "add the file or leave the case out",
            )
            continue
        try:
            volumes[name] = read_scan(case, name)
        except VeloxSegError as error:
            add("error", "file", case.images[name], *_split(str(error), case.images[name]))
            continue
        for warning in volumes[name].warnings:
            add("warning", "file", case.images[name], *_split(warning, case.images[name]))
        facts.spacings[name] = volumes[name].geometry.spacing
    for name, text in _swapped(volumes).items():
        add("warning", "swapped", case.images[name], text, "check which file is which modality, and its units")
    _check_grids(case, volumes, add)
    _check_label(case, volumes, labels, add)
    reference = next((n for n in volumes if kind_of(n) == "ct"), next(iter(volumes), None))
    if reference is not None:
        facts.scans = {name: content_hash(volume) for name, volume in volumes.items()}
        for text in alignment_warnings(volumes, reference, {n: kind_of(n) for n in volumes})[1]:
            add("warning", "alignment", None, *_split(text, None))
    return facts


def _split(message: str, file: Path | None) -> tuple[str, str]:
    """A one-line error as problem and remedy, without the path, which has its own column."""
    if file is not None:
        message = message.removeprefix(f"{file}: ")
    problem, _, remedy = message.partition("; ")
    return problem, remedy or "look at the file"


def _check_grids(case: Case, volumes: dict[str, Volume], add: Any) -> None:
    first = next(iter(volumes), None)
    for name, volume in volumes.items():
        if first is None or name == first:
            continue
        ours, theirs = (_bounds(volumes[n]) for n in (first, name))
        overlap = np.minimum(ours[1], theirs[1]) - np.maximum(ours[0], theirs[0])
        if (overlap <= 0).any():
            gap = float(-overlap.min())
            problem = f"{name} and {first} do not overlap in space, they are {gap:.0f} mm apart"
            add("error", "grid", case.images[name], problem, "restore the geometry or register them before")
        elif difference := grid_difference(volumes[first].geometry, volume.geometry):
            problem = f"{first} and {name} lie on different grids: {difference}"
            add(
                "note", "grid", case.images[name], problem, f"prepare resamples {name}; --register rigid also aligns it"
            )


def _bounds(volume: Volume) -> tuple[Any, Any]:
    """The box around a scan in RAS millimetres."""
    corners = np.array(np.meshgrid(*[(-0.5, n - 0.5) for n in volume.geometry.shape])).reshape(3, -1)
    points = volume.geometry.affine[:3, :3] @ corners + volume.geometry.affine[:3, 3:]
    return points.min(axis=1), points.max(axis=1)


def _check_label(case: Case, volumes: dict[str, Volume], labels: dict[str, int], add: Any) -> None:
    if case.label is None:
        if case.split != "test":
            add("warning", "label", None, "there is no label", "the case is left out of training")
        return
    try:
        label = open_label(case.label, labels, volumes, case.rois)
    except VeloxSegError as error:
        add("error", "label", case.label, *_split(str(error), case.label))
        return
    if not label.array.any():
        add("warning", "label", case.label, "the label map is empty", "right for a healthy patient; else restore it")
    unknown = unknown_values(label, labels)
    if unknown:
        listed = ", ".join(map(str, sorted(labels.values())))
        problem = f"label value {', '.join(map(str, unknown[:5]))} is not listed by the data set ({listed})"
        add(
            "error",
            "label",
            case.label,
            problem,
            "correct the label map, or list the value in dataset.json or cases.json",
        )
    # with a scan unread, the label may be drawn on that one
    if volumes.keys() == case.images.keys() and (difference := label_grid_problem(label, volumes)):
        add("error", "grid", case.label, difference, "resample the label to its image with nearest neighbour")


def _swapped(volumes: dict[str, Volume]) -> dict[str, str]:
    """Modalities whose values look like another kind. Careful: a hint, never an error."""
    found = {}
    for name, volume in volumes.items():
        low, high = float(volume.array.min()), float(volume.array.max())
        if kind_of(name) == "ct" and low >= 0:
            found[name] = (
                f"no negative value in a CT ({low:g} to {high:g}), expected air near -1000 HU; swapped with another?"
            )
        elif kind_of(name) == "pet" and low < -100:
            found[name] = (
                f"values down to {low:g} in a PET ({low:g} to {high:g}), expected none below 0; swapped with CT?"
            )
    return found


def _names_and_splits(dataset: Dataset) -> Iterable[Problem]:
    by_name: dict[str, Case] = {}
    for case in dataset.cases:
        folded = case.name.casefold()
        if folded in by_name:
            other = by_name[folded]
            kind = "split" if other.split != case.split else "duplicate"
            where = f"in {other.split or 'train'} and {case.split or 'train'}" if kind == "split" else "listed twice"
            yield Problem("error", kind, case.name, "", f"the case is {where}", "remove one of the two or rename it")
        by_name.setdefault(folded, case)
    patients: dict[str, Case] = {}
    for case in dataset.cases:
        other = patients.setdefault(case.patient, case)
        if other.name != case.name and other.split != case.split:
            parts = f"{other.split or 'train'} ({other.name}) and {case.split or 'train'}"
            problem = f"patient {case.patient} is in {parts}"
            yield Problem("error", "split", case.name, "", problem, "keep all cases of a patient in one part")
    patient_of = {case.name: case.patient for case in dataset.cases}
    for number, (train, validation) in enumerate(dataset.folds):
        for name in sorted({*train, *validation} - patient_of.keys()):
            yield Problem(
                "warning", "split", name, "splits_final.json", f"fold {number} names an unknown case", "remove it"
            )
        trained = {patient_of.get(name, name) for name in train}
        for name in validation:
            if patient_of.get(name, name) in trained:
                problem = f"fold {number} has the patient in train and val"
                yield Problem("error", "split", name, "splits_final.json", problem, "remove it from one of the two")


def _same_scans(dataset: Dataset, facts: dict[str, CaseFacts]) -> Iterable[Problem]:
    """Copies, whatever they are called: an error where they can come apart into training and test."""
    cases = {case.name: case for case in dataset.cases}
    for name, other, modality in same_scans({name: fact.scans for name, fact in facts.items()}):
        case, first = cases[name], cases[other]
        splits = (first.split or "train", case.split or "train")
        where = f", {' and '.join(splits)}" if splits[0] != splits[1] else ""
        together = case.patient == first.patient or (case.split is not None and case.split == first.split)
        remedy = "leave one of them out" if together else "leave one of them out, or give both the same patient"
        problem = f"the same voxels as case {other} ({modality}{where})"
        yield Problem("warning" if together and not where else "error", "duplicate", name, "", problem, remedy)


def _spacing_outliers(modalities: tuple[str, ...], facts: dict[str, CaseFacts]) -> Iterable[Problem]:
    """A spacing more than three times off the median is a mistake in a header more often than a scanner."""
    for modality in modalities:
        rows = {name: fact.spacings[modality] for name, fact in facts.items() if modality in fact.spacings}
        if len(rows) < 3:
            continue
        median = np.sort(np.median([sorted(row) for row in rows.values()], axis=0))
        for name, row in rows.items():
            ratio = np.sort(row) / median
            if ratio.max() > 3 or ratio.min() < 1 / 3:
                problem = f"{modality} has spacing {_millimetres(row)}, the median is {_millimetres(median)}"
                yield Problem("warning", "spacing", name, "", problem, "check the header's units; else keep it")


def _millimetres(values: Iterable[float]) -> str:
    return " × ".join(f"{value:.3g}" for value in values) + " mm"
