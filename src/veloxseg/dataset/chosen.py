"""Cases chosen from an archive by a text file: one name on each line; empty lines and those with # are passed over."""

from dataclasses import replace
from pathlib import Path

from veloxseg.dataset.dataset import Dataset
from veloxseg.errors import DatasetError, did_you_mean, shown

__all__ = ["read_case_names", "take_cases"]

MOST_BYTES = 1 << 24


def read_case_names(path: str | Path) -> tuple[str, ...]:
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


def take_cases(dataset: Dataset, names: tuple[str, ...]) -> Dataset:
    """The data set with these cases alone; a name that it does not have is an error."""
    known = {case.name for case in dataset.cases}
    if unknown := [name for name in names if name not in known]:
        first = next(iter(sorted(known)))
        raise DatasetError(
            f"{len(unknown)} of {len(names)} names are no case of {shown(dataset.root)}: {shown(unknown[0])!r}"
            f"{did_you_mean(unknown[0], known)}; cases are called as {first!r}"
        )
    wanted = set(names)
    return replace(dataset, cases=tuple(case for case in dataset.cases if case.name in wanted))
