"""CASES, the one way to name cases: every verb takes a path, and if wanted a part of what lies there.

The path is a data set in any layout, a .csv or .json list, a PREPARED folder, a folder of scans or one scan (see
`layouts`). `--split` takes one part of it, `--cases` and `--cases-from` single cases by name.
"""

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from veloxseg.dataset.dataset import SPLITS, Case, Dataset
from veloxseg.dataset.layouts import open_dataset
from veloxseg.dataset.layouts.folder import channel_number, channel_word
from veloxseg.dataset.naming import split_channel
from veloxseg.errors import ConfigError, DatasetError, shown
from veloxseg.image.formats import without_suffix

__all__ = ["PARTS", "Selection", "for_modalities", "open_cases", "part_words", "read_names", "taken"]

PARTS = (*SPLITS, "all")
MOST_BYTES = 1 << 24  # of a file that names cases


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which cases of a path are meant."""

    layout: str = "auto"
    split: str | None = None  # one of PARTS; None leaves it to the verb
    names: tuple[str, ...] = ()  # cases by name; () for all


def open_cases(path: str | Path, selection: Selection = Selection()) -> Dataset:  # noqa: B008 - frozen
    """The cases that are meant, with all that their data set says; no scan is opened."""
    return taken(open_dataset(path, selection.layout), selection)


def taken(dataset: Dataset, selection: Selection) -> Dataset:
    """The part of a data set that is meant."""
    cases = dataset.cases
    if selection.names:
        cases = _by_name(dataset, selection.names)
    if selection.split not in (None, "all"):
        cases = _by_split(dataset, cases, selection.split)
    return replace(dataset, cases=cases)


def read_names(path: str | Path) -> tuple[str, ...]:
    """Case names from a text file, one on each line; empty lines and those with # are passed over."""
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise DatasetError(f"{shown(path)} has more than {MOST_BYTES >> 20} MB; give a list of case names")
        lines = content.decode("utf-8-sig").splitlines()
    except OSError as error:
        raise DatasetError(f"{shown(path)} cannot be read ({shown(error.strerror)}); check the path") from error
    except UnicodeDecodeError as error:
        raise DatasetError(f"{shown(path)} is no text; write one case name on each line, in UTF-8") from error
    names = tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
    if not names:
        raise DatasetError(f"{shown(path)} names no case; write one name on each line")
    return names


def _by_name(dataset: Dataset, names: Sequence[str]) -> tuple[Case, ...]:
    known = {case.name: case for case in dataset.cases}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1) or list(known)[:1]
            raise DatasetError(
                f"{shown(dataset.root)} has no case {shown(name)!r} of {len(known)}; did you mean {shown(near[0])!r}?"
            )
    return tuple(case for case in dataset.cases if case.name in names)


def _by_split(dataset: Dataset, cases: tuple[Case, ...], split: str) -> tuple[Case, ...]:
    if split not in PARTS:
        raise ConfigError(f"split {shown(split)!r} is unknown; choose from {', '.join(PARTS)}")
    found = tuple(case for case in cases if case.split == split)
    if found:
        return found
    if all(case.split is None for case in cases):
        raise DatasetError(
            f"{shown(dataset.root)} does not say which cases are for training and which for testing; "
            "`veloxseg prepare` decides it: give the PREPARED folder, or leave --split out"
        )
    raise DatasetError(
        f"{shown(dataset.root)} has no case for {split}, but {part_words(cases)}; choose another --split"
    )


def part_words(cases: Sequence[Case]) -> str:
    """How many cases there are of each part, such as `6 train, 2 validation, 2 test`."""
    counts = Counter(case.split or "without a split" for case in cases)
    return ", ".join(f"{counts[part]} {part}" for part in (*SPLITS, "without a split") if counts[part])


def for_modalities(dataset: Dataset, names: tuple[str, ...]) -> Dataset:
    """The same cases with the scans that a model of these modalities takes; channels without a name get theirs here."""
    named = _channels(dataset, names) or {name: name for name in dataset.modalities if name in names}
    if not named:
        raise DatasetError(
            f"{shown(dataset.root)} has {', '.join(dataset.modalities)}, the model takes {', '.join(names)}; "
            "give scans of these modalities"
        )
    cases = tuple(
        replace(
            case,
            images={new: case.images[old] for old, new in named.items() if old in case.images},
            volumes={new: case.volumes[old] for old, new in named.items() if old in case.volumes},
            series={new: case.series[old] for old, new in named.items() if old in case.series},
        )
        for case in dataset.cases
    )
    return replace(dataset, modalities=tuple(named.values()), cases=cases)


def _channels(dataset: Dataset, names: tuple[str, ...]) -> dict[str, str]:
    """Channel without a name → modality, by the order of the model's modalities; {} if all channels have names."""
    numbers = {name: number for name in dataset.modalities if (number := channel_number(name)) is not None}
    for name, number in numbers.items():
        file = next(case.images[name] for case in dataset.cases if name in case.images)
        if number >= len(names):
            known = ", ".join(f"{channel_word(index)} ({modality})" for index, modality in enumerate(names))
            raise DatasetError(f"{shown(file)} has channel {number}, the model takes {known}; rename or remove it")
        if len(names) > 1 and split_channel(without_suffix(file.name)) is None:
            raise DatasetError(
                f"{shown(file)} does not say which of {', '.join(names)} it is; give a case as "
                f"{' '.join(f'-i {name}=FILE' for name in names)}, or name files <case>_0000, <case>_0001, …"
            )
    return {name: names[number] for name, number in numbers.items()}
