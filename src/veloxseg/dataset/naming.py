"""How nnU-Net and the Medical Segmentation Decathlon name things: `<case>_0000`, `dataset.json`. Only this file knows.

channel_names / modality   {"0": "CT", "1": "PET"}: what the four digits of a file name stand for
labels                     {"background": 0, "tumour": 1} (nnU-Net, also with lists: regions), or {"1": "tumour"}
ignore                     nnU-Net's name of the label whose voxels nobody drew
"""

import os
import re
from pathlib import Path
from typing import Any

from veloxseg.errors import DatasetError, shown
from veloxseg.files import read_json
from veloxseg.modality import canonical_name

__all__ = [
    "DESCRIPTION",
    "channel_names",
    "description_near",
    "find_description",
    "label_values",
    "peek",
    "raw_dataset",
    "read_description",
    "read_folds",
    "split_channel",
]

DESCRIPTION = "dataset.json"
MOST_CHANNELS = 10_000  # four digits


def split_channel(name: str) -> tuple[str, int] | None:
    """`case_0001` → ("case", 1); None for a name without a channel. Only the digits 0 to 9 count."""
    match = re.fullmatch(r"(.+)_([0-9]{4})", name)
    return (match[1], int(match[2])) if match else None


def find_description(path: Path) -> Path:
    """`path/dataset.json`, or `path` itself if it is that file."""
    return path if path.name == DESCRIPTION else path / DESCRIPTION


def read_description(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; anything else is an error."""
    value = read_json(path, DatasetError)
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise DatasetError(f"{shown(path)} holds a {kind}, expected an object; see the layout's documentation")
    return value


def raw_dataset(name: str) -> Path | None:
    """The folder in nnUNet_raw of `902` or `Dataset902_STS`; None where the variable is not set or nothing is found."""
    root, match = os.environ.get("nnUNet_raw"), re.fullmatch(r"(?:Dataset)?([0-9]{1,3})(_[\w-]+)?", name)  # noqa: SIM112
    if not root or not match:
        return None
    found = sorted(Path(root).glob(f"Dataset{int(match[1]):03d}{match[2] or '_*'}"))
    if len(found) > 1:
        names = ", ".join(folder.name for folder in found)
        raise DatasetError(f"nnUNet_raw has several data sets {shown(name)} ({shown(names)}); give the whole name")
    return found[0] if found else None


def read_folds(path: Path) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """The folds of nnU-Net's splits_final.json: names of training and validation cases."""
    value = read_json(path, DatasetError)
    try:
        return tuple((tuple(map(str, fold["train"])), tuple(map(str, fold["val"]))) for fold in value)
    except (KeyError, TypeError) as error:
        raise DatasetError(
            f'{shown(path)} is no list of {{"train": [...], "val": [...]}} ({shown(error)}); correct or remove it'
        ) from error


def peek(path: Path) -> dict[str, Any]:
    """As `read_description`, but empty instead of an error: for recognising a layout."""
    try:
        return read_description(path) if path.is_file() else {}
    except DatasetError:
        return {}


def description_near(folder: Path) -> dict[str, Any]:
    """The dataset.json in a folder or in the one above; empty where there is none."""
    for path in (folder / DESCRIPTION, folder.parent / DESCRIPTION):
        if path.is_file():
            return read_description(path)
    return {}


def channel_names(description: dict[str, Any], where: Path) -> dict[int, str]:
    """Channel → modality, in order; empty if the description names none."""
    value = description.get("channel_names", description.get("modality", {}))
    digits = isinstance(value, dict) and all(re.fullmatch("[0-9]{1,4}", str(key)) for key in value)
    if not digits or not all(isinstance(name, str) for name in value.values()):
        raise DatasetError(f'{shown(where)} has channel_names {shown(value)}, expected {{"0": "CT", ...}}; correct it')
    names = {int(number): canonical_name(name) for number, name in value.items()}
    if len(set(names.values())) < len(names):
        found = shown(", ".join(names.values()))
        raise DatasetError(f"{shown(where)} gives two channels the same name ({found}); name them apart")
    return dict(sorted(names.items()))


def label_values(description: dict[str, Any], where: Path) -> dict[str, tuple[int, ...]]:
    """Label name → its values, background and ignore included, in nnU-Net's or the Decathlon's way of writing."""
    entry = description.get("labels", {})
    if not isinstance(entry, dict):
        raise DatasetError(f'{shown(where)} has labels {shown(entry)}, expected {{"background": 0, ...}}; correct it')
    if entry and all(re.fullmatch("[0-9]{1,5}", key) and isinstance(name, str) for key, name in entry.items()):
        return {name: (int(key),) for key, name in entry.items()}  # the Decathlon's
    found: dict[str, tuple[int, ...]] = {}
    for name, value in entry.items():
        values = value if isinstance(value, list) else [value]
        if not values or not all(type(v) is int and 0 <= v < 1 << 16 for v in values):
            raise DatasetError(
                f"{shown(where)} gives the label {shown(name, 60)} the value {shown(value, 60)}, expected numbers "
                "from 0 to 65535; correct it"
            )
        found[name] = tuple(values)
    return found
