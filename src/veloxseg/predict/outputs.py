"""What a prediction writes: every path is known and checked before anything is computed, and written at one time.

    <case>.nii.gz, .nrrd, .mha, .dcm     the mask
    <case>_<label>_probability.nii.gz    if asked for, as are <case>_statistics.json and <case>.png
    <case>.json                          the record: from what, by what and how it was made, and the hash of each file

A file is ours if the record beside it lists it with its present hash. Anything else is never replaced. A case is done
if its record answers the same request (the same scans, picks, models, options) and all files asked for are whole.
All files of a case are first written aside; then the record, and only then the files come to their places, so that a
kill at any moment leaves files that the record knows.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veloxseg.errors import OutputError, VeloxSegError, shown
from veloxseg.files import read_json, sha256, staged, write_json
from veloxseg.image.formats import without_suffix
from veloxseg.predict.extras import EXTRAS
from veloxseg.predict.result import Segmentation
from veloxseg.predict.scans import Scans

__all__ = ["Targets", "check_targets", "is_done", "other_scans", "write_result"]


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Where the files of one case will lie."""

    mask: Path
    probabilities: Mapping[str, Path]  # by output of the network
    extras: Mapping[str, Path]  # by name in EXTRAS

    @classmethod
    def of(cls, mask: Path, outputs: Sequence[str], extras: Sequence[str]) -> "Targets":
        stem = mask.parent / without_suffix(mask.name)
        return cls(
            mask=mask,
            probabilities={name: Path(f"{stem}_{name}_probability.nii.gz") for name in outputs},
            extras={name: Path(f"{stem}{EXTRAS[name].ending}") for name in extras},
        )

    @property
    def record(self) -> Path:
        return self.mask.parent / f"{without_suffix(self.mask.name)}.json"

    @property
    def files(self) -> list[Path]:
        """All but the record."""
        return [self.mask, *self.probabilities.values(), *self.extras.values()]


def check_targets(targets: Mapping[str, Targets], inputs: Iterable[Path]) -> None:
    """Refuses a path that is an input, that two cases share, or that holds a file which is not ours."""
    scans = {path.resolve() for path in inputs}
    taken: set[str] = set()
    for target in targets.values():
        for path in (*target.files, target.record):
            place = path.resolve()
            if place in scans or any(parent in scans for parent in place.parents):
                raise OutputError(f"{shown(path)} is an input scan, or lies in its folder; choose another -o")
            folded = str(place).casefold()  # some file systems do not tell A from a
            if folded in taken:
                raise OutputError(f"two cases would be written to {shown(path)}; give every case a name of its own")
            taken.add(folded)
        _check_ownership(target)


def _check_ownership(target: Targets) -> None:
    known = _known_hashes(_read_record(target.record))
    if target.record.exists() and known is None:
        raise OutputError(f"{shown(target.record)} exists and is no record of ours; move it, or choose another -o")
    for path in target.files:
        if path.exists() and not _is_ours(path, known):
            raise OutputError(
                f"{shown(path)} exists and is not as veloxseg wrote it; move it away, or choose another -o"
            )


def is_done(target: Targets, request: str) -> bool:
    """Whether the very result that is asked for is there, whole."""
    record = _read_record(target.record)
    outputs = record.get("outputs")
    if record.get("request") != request or not isinstance(outputs, dict):
        return False
    return all(path.is_file() and outputs.get(path.name) == sha256(path) for path in target.files)


def other_scans(target: Targets, inputs: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether there is a mask in this place that was made from other scans."""
    recorded = _read_record(target.record).get("inputs")
    if not isinstance(recorded, dict):
        return False
    before = {name: entry.get("sha256") for name, entry in recorded.items() if isinstance(entry, dict)}
    return before != {name: entry["sha256"] for name, entry in inputs.items()}


def write_result(result: Segmentation, scans: Scans, target: Targets, request: str) -> None:
    """Writes all files of a case; after an error nothing has changed."""
    folder = target.mask.parent
    with staged(folder) as stage:
        result.write_mask(stage / target.mask.name)
        for name, path in target.probabilities.items():
            result.write_probability(name, stage / path.name)
        for name, path in target.extras.items():
            EXTRAS[name].write(result, scans, stage / path.name)
        hashes = {path.name: sha256(stage / path.name) for path in target.files}
        before = _read_record(target.record).get("outputs")
        replaced = {**(before if isinstance(before, dict) else {})}
        replaced |= {path.name: sha256(path) for path in target.files if path.is_file()}
        record = {**result.provenance, "request": request, "outputs": hashes, "replaced": replaced}
        write_json(target.record, record)
        try:
            for path in target.files:
                os.replace(stage / path.name, path)
        except OSError as error:
            raise OutputError(
                f"cannot write {shown(path)}: {error.strerror or error}; was the folder removed?"
            ) from error


def _read_record(path: Path) -> dict[str, Any]:
    """What a record says; empty if there is none, or if it is none of ours."""
    try:
        value = read_json(path) if path.is_file() else {}
    except VeloxSegError:
        return {}
    return value if isinstance(value, dict) and {"notice", "models", "inputs"} <= value.keys() else {}


def _known_hashes(record: Mapping[str, Any]) -> dict[str, set[str]] | None:
    """File name → hashes that we gave it; None without a record. Records before 0.2.0 list no files: any is ours."""
    if not record:
        return None
    known: dict[str, set[str]] = {}
    for entries in (record.get("outputs"), record.get("replaced")):
        for name, value in entries.items() if isinstance(entries, dict) else ():
            known.setdefault(name, set()).add(str(value))
    return known


def _is_ours(path: Path, known: Mapping[str, set[str]] | None) -> bool:
    if known is None:
        return False
    return not known or sha256(path) in known.get(path.name, ())
