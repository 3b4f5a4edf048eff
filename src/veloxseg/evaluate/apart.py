"""Seen cases are scored apart: the figures of a report are those of cases that no model has learnt from.

A case that one of the compared methods has seen is apart for all of them, so that methods meet on the same cases.
If every case was seen, there is nothing else to show, and the report says so before its first figure.
"""

from collections.abc import Mapping
from dataclasses import replace

from veloxseg.dataset.seen import SEEN, STATUSES, UNKNOWN, UNSEEN, Seen
from veloxseg.errors import some
from veloxseg.evaluate.evaluation import Evaluation

__all__ = ["learning_warnings", "told_apart"]

Records = Mapping[str, Mapping[str, Seen | None]]  # method -> case -> what its record says


def told_apart(evaluation: Evaluation, records: Records) -> Evaluation:
    """The evaluation of the unseen cases, which holds that of the seen ones; all of them if all were seen."""
    learning = {
        method: {case: _status(records[method].get(case)) for case in evaluation.cases} for method in evaluation.methods
    }
    whole = replace(evaluation, learning=learning)
    seen = tuple(case for case in whole.cases if whole.status(case) in SEEN)
    warnings = (*learning_warnings(whole, records, seen), *whole.warnings)
    if not seen or len(seen) == len(whole.cases):
        return replace(whole, warnings=warnings)
    return replace(_part(whole, [c for c in whole.cases if c not in seen]), warnings=warnings, apart=_part(whole, seen))


def _status(seen: Seen | None) -> str:
    return seen.status if seen is not None and seen.status in STATUSES else UNKNOWN


def _part(whole: Evaluation, cases: tuple[str, ...] | list[str]) -> Evaluation:
    kept = set(cases)
    return replace(
        whole,
        cases=tuple(cases),
        rows=tuple(row for row in whole.rows if row.case in kept),
        missing={method: tuple(c for c in names if c in kept) for method, names in whole.missing.items()},
    )


def learning_warnings(whole: Evaluation, records: Records, seen: tuple[str, ...]) -> list[str]:
    """What must be said about seen, doubtful and unknown cases, the worst first."""
    lines = []
    if seen:
        parts = []
        for status in SEEN:
            if names := tuple(case for case in seen if whole.status(case) == status):
                parts.append(f"{len(names)} {status}: {some(names)}")
        where = f"{len(seen)} of {len(whole.cases)} cases were seen in training ({'; '.join(parts)})"
        if len(seen) == len(whole.cases):
            lines.append(f"EVERY CASE WAS SEEN IN TRAINING ({'; '.join(parts)}): no figure here holds for new patients")
        else:
            lines.append(f"{where}; they are scored apart, and the figures are of the other {_rest(whole, seen)}")
    known = {case: found for by_case in records.values() for case, found in by_case.items() if case in whole.cases}
    by_name = tuple(c for c, found in known.items() if found and found.by == "name" and found.status != UNKNOWN)
    if by_name:
        lines.append(f"told apart by name alone, so a renamed training case is not noticed: {some(by_name)}")
    if names := tuple(case for case, found in known.items() if found and found.status == UNSEEN and found.namesake):
        lines.append(
            f"unseen, but with the name of a training case and other voxels: {some(names)}; "
            "if these are the same scans, resampled or cropped, they were seen"
        )
    if names := tuple(case for case, found in known.items() if _status(found) == UNKNOWN):
        lines.append(
            f"whether {len(names)} of {len(whole.cases)} cases were seen in training is unknown: their model or record "
            f"does not say it ({some(names)})"
        )
    return lines


def _rest(whole: Evaluation, seen: tuple[str, ...]) -> str:
    count = len(whole.cases) - len(seen)
    return f"{count} case" if count == 1 else f"{count} cases"
