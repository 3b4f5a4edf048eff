"""Who is trained on, validated on and tested on: 6:2:2 or k folds, by patient, from a seed.

What a data set itself says (a test folder, `splits_final.json`, a `split` column) is honoured first. Folds
divide what is not for testing, so that the test cases stay unseen in cross-validation too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veloxseg.dataset.dataset import SPLITS, Case
from veloxseg.errors import DatasetError

__all__ = ["Split", "assign_splits", "make_folds"]

SHARES = {"train": 6, "validation": 2, "test": 2}  # the paper's 6:2:2
BESIDE_A_TEST = {"train": 7, "validation": 1}  # with test cases of its own; validation only watches, patients teach


@dataclass(frozen=True)
class Split:
    """Case names."""

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]


def assign_splits(cases: Sequence[Case], seed: int) -> dict[str, str]:
    """Case name → train, validation or test."""
    given: dict[str, str] = {}
    for case in cases:
        if case.split is not None and given.setdefault(case.patient, case.split) != case.split:
            raise DatasetError(
                f"patient {case.patient} is in {given[case.patient]} and {case.split}; keep a patient's cases together"
            )
    taken = set(given.values())
    # a data set that only sets its test cases apart leaves the other two parts to us
    shares = BESIDE_A_TEST if taken == {"test"} else SHARES
    wanted = {name: share for name, share in shares.items() if name not in taken}
    if not wanted or "train" in taken:
        wanted = {"train": 1}
    free = _shuffled({case.patient for case in cases} - given.keys(), seed)
    for name, count in _counts(wanted, len(free)).items():
        given |= dict.fromkeys(free[:count], name)
        free = free[count:]
    return {case.name: given[case.patient] for case in cases}


def _counts(shares: dict[str, int], total: int) -> dict[str, int]:
    """Patients of each part: by its share, at least one while there are enough; the first part takes the rest."""
    first, *others = shares
    least = 1 if total >= len(shares) else 0
    counts = {name: max(least, round(shares[name] / sum(shares.values()) * total)) for name in others}
    return {first: total - sum(counts.values()), **counts}


def make_folds(cases: Sequence[Case], splits: dict[str, str], count: int, seed: int) -> list[dict[str, list[str]]]:
    """`count` folds over the cases that are not for testing; every patient is validated on once."""
    kept = [case for case in cases if splits[case.name] != "test"]
    patients = _shuffled({case.patient for case in kept}, seed)
    if len(patients) < count:
        return []
    fold_of = {patient: index % count for index, patient in enumerate(patients)}
    return [
        {
            "train": [case.name for case in kept if fold_of[case.patient] != fold],
            "validation": [case.name for case in kept if fold_of[case.patient] == fold],
        }
        for fold in range(count)
    ]


def given_folds(
    cases: Sequence[Case], folds: Sequence[tuple[Sequence[str], Sequence[str]]]
) -> list[dict[str, list[str]]]:
    """Folds that came with the data set, without cases that were left out; a case on both sides is refused."""
    names = {case.name for case in cases}
    result = []
    for number, (train, validation) in enumerate(folds):
        if both := sorted(set(train) & set(validation)):
            raise DatasetError(f"fold {number} of splits_final.json has {both[0]} in train and val; remove it from one")
        unknown = sorted((set(train) | set(validation)) - names)
        if len(unknown) == len(set(train) | set(validation)):
            raise DatasetError(
                f"fold {number} of splits_final.json names no case of the data set, such as {unknown[:1]}"
            )
        result.append(
            {
                "train": [name for name in train if name in names],
                "validation": [name for name in validation if name in names],
            }
        )
    return result


def _shuffled(patients: set[str], seed: int) -> list[str]:
    ordered = sorted(patients)
    return [ordered[i] for i in np.random.default_rng(seed).permutation(len(ordered))]


assert set(SHARES) == set(SPLITS)
