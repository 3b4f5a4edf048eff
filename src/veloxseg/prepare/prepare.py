"""The whole run: fingerprint → plan → every case to the network grid, in parallel, resumable.

A stored case holds the hash of its plan and inputs; a second run skips it if nothing changed. A case that fails
is listed and left out of cases.json; the others are kept.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from veloxseg.console import progress, say, warn
from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.layouts.prepared import write_sources
from veloxseg.dataset.reading import read_case_images, read_case_label
from veloxseg.dataset.seen import same_scans
from veloxseg.dataset.splits import assign_splits, given_folds, make_folds
from veloxseg.dataset.targets import as_in_files
from veloxseg.errors import DatasetError, alike, some
from veloxseg.files import read_json, writable_folder, write_json
from veloxseg.image.content import content_hash
from veloxseg.prepare.fingerprint import make_fingerprint
from veloxseg.prepare.network_input import label_to_network, to_network
from veloxseg.prepare.plan import Normalisation, Plan
from veloxseg.prepare.planner import make_plan
from veloxseg.prepare.store import Prepared, case_record, write_case
from veloxseg.workers import Failure, Team

__all__ = ["Settings", "prepare"]

VERSION = 4  # of what preprocessing does to voxels and writes down; a change makes what is stored stale


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user decides; None leaves it to the planner."""

    spacing: tuple[float, float, float] | None = None
    patch: tuple[int, int, int] | None = None
    reference: str | None = None
    register: str = "none"
    normalise: Mapping[str, str] | None = None
    normalisations: Mapping[str, Normalisation] = field(default_factory=dict)  # with their numbers, by modality
    seed: int = 0
    folds: int = 5
    workers: int = 1


def prepare(dataset: Dataset, folder: str | Path, settings: Settings) -> Prepared:
    """Prepares every labelled case of `dataset` in `folder`."""
    folder = writable_folder(folder)
    writable_folder(folder / "data")
    cases = [case for case in dataset.cases if case.label is not None]
    if not cases:
        raise DatasetError(f"{dataset.root} has no labelled case; training needs label maps")
    unlabelled = [case for case in dataset.cases if case.label is None]
    test = [case for case in unlabelled if case.split == "test"]
    if len(test) < len(unlabelled):
        say(f"{len(unlabelled) - len(test)} cases without a label are left out")
    _refuse_duplicates(cases)
    # a data set's own test cases may have no labels: then all labelled cases train and validate
    splits = assign_splits([case for case in dataset.cases if case.label or case.split], settings.seed)
    seen = [case for case in cases if splits[case.name] != "test"]  # the plan must not know the test cases
    with Team(settings.workers) as team:
        fingerprint = _fingerprint(dataset, seen or cases, folder, team)
        plan = make_plan(
            dataset,
            fingerprint,
            spacing=settings.spacing,
            patch=settings.patch,
            reference=settings.reference,
            register=settings.register,
            normalise=settings.normalise,
        )
        plan = _with_normalisations(plan, settings.normalisations)
        write_json(folder / "plan.json", plan.to_json())
        failures = _run(cases, folder, plan, settings.seed, team)
    done = [case for case in cases if case.name not in failures]
    for message, names in alike(failures).items():
        warn(f"{some(names)} {'is' if len(names) == 1 else 'are'} left out: {message}")
    if not done:
        raise DatasetError(f"no case could be prepared; the first failed with: {next(iter(failures.values()))}")
    _refuse_leaks(done, splits, folder)
    if test and "test" not in {splits[case.name] for case in done}:
        say(f"{len(test)} unlabelled cases are the test, so all {len(done)} labelled ones train and validate")
    write_sources(folder, as_in_files(dataset), [*done, *test], splits)
    _write_listing(dataset, done, splits, folder, settings)
    return Prepared.open(folder)


def _with_normalisations(plan: Plan, given: Mapping[str, Normalisation]) -> Plan:
    """The plan with normalisations that were decided elsewhere."""
    chosen = (replace(m, normalisation=given.get(m.name, m.normalisation)) for m in plan.modalities)
    return replace(plan, modalities=tuple(chosen))


def _refuse_duplicates(cases: list[Case]) -> None:
    seen: dict[str, str] = {}
    for case in cases:
        folded = case.name.casefold()  # some file systems do not tell A from a
        if folded in seen:
            raise DatasetError(f"two cases are called {case.name}; give every case a name of its own")
        seen[folded] = case.name


def _fingerprint(dataset: Dataset, cases: list[Case], folder: Path, team: Team) -> dict[str, Any]:
    """Made once; taken from the folder if the same inputs were looked at before."""
    path = folder / "fingerprint.json"
    merged = [dataset.merged] if dataset.merged else []
    inputs = [_inputs(case) for case in cases]
    digest = _digest([VERSION, dataset.labels, dataset.ignore_label, dataset.modalities, inputs, *merged])
    if path.is_file():
        stored = read_json(path)
        if isinstance(stored, dict) and stored.get("inputs") == digest:
            return stored
    fingerprint = {**make_fingerprint(dataset, cases, team), "inputs": digest}
    write_json(path, fingerprint)
    return fingerprint


def _run(cases: list[Case], folder: Path, plan: Plan, seed: int, team: Team) -> dict[str, str]:
    """Prepares what is not there yet; returns case → message of those that failed."""
    todo = [case for case in cases if (case_record(folder, case.name) or {}).get("made_from") != made_from(case, plan)]
    if len(todo) < len(cases):
        say(f"{len(cases) - len(todo)} of {len(cases)} cases are prepared already")
    work = partial(prepare_case, folder=folder, plan=plan, seed=seed)
    failures = {}
    results = team.run(work, todo)
    try:
        for case, result in progress(results, "prepare", len(todo)):
            if isinstance(result, Failure):
                failures[case.name] = result.message
            else:
                for warning in result:
                    warn(f"{case.name}: {warning}")
    finally:
        results.close()  # ends the workers, also after Ctrl-C; what one was writing is left half done
        for half in (folder / "data").glob(".part-*"):
            half.unlink(missing_ok=True)
    return failures


def prepare_case(case: Case, folder: Path, plan: Plan, seed: int) -> list[str]:
    """One case from its files to the store; returns warnings."""
    from veloxseg.image.align import alignment_warnings

    volumes = read_case_images(case, plan.names)
    label = read_case_label(case, plan.labels, volumes, plan.merged)
    if label is None:
        raise DatasetError(f"case {case.name} has no label; training needs one")
    scans = {name: content_hash(volume) for name, volume in volumes.items()}
    scores, warnings = alignment_warnings(volumes, plan.reference, {m.name: m.kind for m in plan.modalities})
    image_CXYZ, placement = to_network(volumes, plan)
    label_XYZ = label_to_network(label, placement)
    if not label_XYZ.any():
        warnings.append("no labelled voxel" if not label.array.any() else "every labelled voxel was lost by resampling")
    record = {
        "case": case.name,
        "made_from": made_from(case, plan),
        "scans": scans,
        "placement": placement.to_json(),
        "alignment": scores,
        "warnings": warnings,
    }
    write_case(folder, case.name, image_CXYZ, label_XYZ, record, seed)
    return warnings


def made_from(case: Case, plan: Plan) -> str:
    """Hash of all that a stored case depends on: the plan without the patch, the files, this code's version."""
    relevant = replace(plan, patch=(0, 0, 0), windows=(), why="").to_json()
    return _digest([VERSION, relevant, _inputs(case)])


def _inputs(case: Case) -> list[Any]:
    """Files by path, size and time of change: hashing gigabytes again at each start would take as long as the work."""
    files = {**case.images, "label": case.label}
    entries = []
    for name, path in files.items():
        if path is not None:
            parts = sorted(path.iterdir()) if path.is_dir() else [path]
            stats = [(part.name, part.stat().st_size, part.stat().st_mtime_ns) for part in parts if part.exists()]
            entries.append([name, str(path), case.volumes.get(name), stats])
    return [case.name, entries, case.series, case.rois]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _refuse_leaks(cases: list[Case], splits: dict[str, str], folder: Path) -> None:
    """The same scan in two parts of the split would make every score a lie; within one part it is a warning."""
    for name, other, modality in same_scans({case.name: _scans(folder, case.name) for case in cases}):
        if splits[name] == splits[other]:
            warn(f"{name} and {other} hold the same {modality} scan; leave one of them out")
            continue
        raise DatasetError(
            f"{other} ({splits[other]}) and {name} ({splits[name]}) hold the same {modality} scan, whatever the file "
            "is called; leave one of them out, or give both the same patient"
        )


def _scans(folder: Path, name: str) -> dict[str, str]:
    return (case_record(folder, name) or {}).get("scans", {})


def _write_listing(
    dataset: Dataset, cases: list[Case], splits: dict[str, str], folder: Path, settings: Settings
) -> None:
    if dataset.folds:
        folds = given_folds(cases, dataset.folds)
    else:
        folds = make_folds(cases, splits, settings.folds, settings.seed)
    listing = []
    for case in cases:
        record = case_record(folder, case.name) or {}
        seen = {key: record[key] for key in ("alignment", "warnings") if record.get(key)}
        listing.append(
            {
                "name": case.name,
                "patient": case.patient,
                "split": splits[case.name],
                "scans": _scans(folder, case.name),
                **seen,
            }
        )
    write_json(folder / "cases.json", {"seed": settings.seed, "cases": listing, "folds": folds})
