"""Descriptions from outside, mutated: a data set or one clear line, never a traceback."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

from veloxseg.dataset.layouts import open_dataset
from veloxseg.errors import VeloxSegError

SOUND: dict[str, tuple[str, str, Any]] = {
    "nnunet": (
        "nnunet",
        "dataset.json",
        {
            "name": "T",
            "channel_names": {"0": "CT", "1": "PET"},
            "labels": {"background": 0, "a": [1, 2], "b": 2, "ignore": 3},
            "regions_class_order": [1, 2],
            "file_ending": ".nii.gz",
        },
    ),
    "folds": ("nnunet", "splits_final.json", [{"train": ["a"], "val": ["b"]}]),
    "msd": ("msd", "dataset.json", {"name": "M", "modality": {"0": "MRI"}, "labels": {"0": "background", "1": "x"}}),
    "cases": (
        "table",
        "cases.json",
        {
            "labels": {"a": 1, "skip": 2},
            "regions": {"r": [1]},
            "ignore": 2,
            "root": ".",
            "cases": [{"case": "a", "patient": "p", "ct": "a.nii.gz", "label": "l.nii.gz", "split": "train"}],
        },
    ),
    "pattern": (
        "table",
        "cases.json",
        {"images": {"ct": "{case}/x.nii.gz"}, "label": "{case}/l.nii.gz", "exclude": ["z"], "labels": {"a": 1}},
    ),
}
WRONG = [None, 0, -1, 1.5, True, "", [], {}, "x" * 300, "../..", ["a"], {"a": 1}, [[1]], "\0", "a/b", 10**30, "a\nb"]


def mutated(value: Any, chance: random.Random) -> Any:
    value = copy.deepcopy(value)
    place, key = value, chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    while isinstance(place[key], dict | list) and place[key] and chance.random() < 0.7:
        place = place[key]
        key = chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
    if chance.random() < 0.2:
        del place[key]
    elif isinstance(place, dict) and chance.random() < 0.2:
        place[chance.choice(["", "x", "\n", "9" * 30, "0"])] = place.pop(key)
    else:
        place[key] = chance.choice(WRONG)
    return value


def folder(root: Path) -> Path:
    for case in ("a", "b"):
        for file in (f"imagesTr/{case}_0000", f"imagesTr/{case}_0001", f"labelsTr/{case}", f"{case}/x", f"{case}/l"):
            (root / f"{file}.nii.gz").parent.mkdir(parents=True, exist_ok=True)
            (root / f"{file}.nii.gz").touch()
    return root


@pytest.mark.parametrize("kind", SOUND)
def test_mutated_descriptions(kind: str, tmp_path: Path) -> None:
    layout, name, value = SOUND[kind]
    folder(tmp_path)
    if kind == "folds":
        (tmp_path / "dataset.json").write_text(json.dumps(SOUND["nnunet"][2]))
    (tmp_path / name).write_text(json.dumps(value))
    assert open_dataset(tmp_path).layout == layout
    refused = []
    for seed in range(80):
        chance = random.Random(seed)
        text = bytearray(json.dumps(mutated(value, chance)).encode())
        if chance.random() < 0.2:
            text[chance.randrange(len(text))] = chance.randrange(256)
        (tmp_path / name).write_bytes(bytes(text))
        for how in (layout, "auto"):
            try:
                open_dataset(tmp_path, how)
            except VeloxSegError as error:
                refused.append(str(error))
    assert len(refused) > 20
    assert not [message for message in refused if "\n" in message]
