"""A folder made by `veloxseg prepare`: its cases with their splits, on the scans and labels that they were made from.

`sources.json` says where these lie. It is a list of cases like any other (table.py), with `root` relative to PREPARED
where both lie below one folder, so that they may be moved together. Content and splits stand in `cases.json`, which
knows no path: data that were moved are the same data.
"""

import os
from pathlib import Path
from typing import Any

from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.layouts import table
from veloxseg.errors import DatasetError, shown
from veloxseg.files import write_json

__all__ = ["read", "recognises", "write_sources"]

SOURCES = "sources.json"


def recognises(path: Path) -> bool:
    return all((path / name).is_file() for name in ("plan.json", "cases.json"))


def read(path: Path) -> Dataset:
    if not (path / SOURCES).is_file():
        raise DatasetError(
            f"{shown(path)} is of an older version and does not say where its scans lie; give the data set itself, or "
            "run `veloxseg prepare` again"
        )
    dataset = table.read_list(path / SOURCES, layout="prepared")
    first = next(iter(dataset.cases[0].images.values()))
    if not first.exists():
        raise DatasetError(
            f"{shown(first)}, of which {shown(path)} was made, is not there; if the scans were moved, write their new "
            f'place as "root" in {shown(path / SOURCES)}, or run `veloxseg prepare` again'
        )
    return dataset


def write_sources(folder: Path, dataset: Dataset, cases: list[Case], splits: dict[str, str]) -> None:
    """Writes where the scans and labels of `cases` lie."""
    root = dataset.root.resolve()
    entries = [_entry(case, root) | {"split": splits[case.name]} for case in cases]
    description: dict[str, Any] = {"name": dataset.name, "root": _seen_from(folder, root), "labels": dataset.labels}
    if dataset.regions is not None:
        description["regions"] = {name: list(values) for name, values in dataset.regions.items()}
    if dataset.ignore_label is not None:
        description["ignore"] = dataset.ignore_label
    write_json(folder / SOURCES, {**description, "cases": entries})


def _entry(case: Case, root: Path) -> dict[str, Any]:
    entry: dict[str, Any] = {"case": case.name, "patient": case.patient}
    entry |= {name: _below(root, path) for name, path in case.images.items()}
    entry |= {f"{name}.volume": volume for name, volume in case.volumes.items()}
    entry |= {f"{name}.series": series for name, series in case.series.items()}
    entry |= {f"label.{name}": "|".join(patterns) for name, patterns in case.rois.items()}
    if case.label is not None:
        entry["label"] = _below(root, case.label)
    return entry


def _below(root: Path, path: Path) -> str:
    """Relative to `root` if the path is below it, else in full."""
    place = Path(os.path.abspath(path))
    below = place.is_relative_to(root) and place.resolve().is_relative_to(root)
    return str(place.relative_to(root)) if below else str(place)


def _seen_from(folder: Path, root: Path) -> str:
    """The way from PREPARED to the scans, if both lie below one folder that is not the whole disk; else in full."""
    here = folder.resolve()
    shared = os.path.commonpath([here, root])
    return os.path.relpath(root, here) if len(Path(shared).parts) > 1 else str(root)
