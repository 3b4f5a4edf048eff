"""A prepared case whose header lies is refused in one line; a full disk is told as such."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks.machine import full_disk
from veloxseg.errors import DatasetError, OutputError
from veloxseg.prepare.store import Prepared, write_case


@pytest.fixture
def prepared(tmp_path: Path, tools: Any) -> Prepared:
    (tmp_path / "data").mkdir()
    label = np.zeros((9, 8, 7), np.uint8)
    label[2:4, 2:4, 2:4] = 1
    write_case(tmp_path, "a", np.zeros((2, 9, 8, 7), np.float32), label, {}, seed=0)
    return Prepared(tmp_path, tools.plan({"ct": "ct", "pet": "pet"}, (2.0, 2.0, 2.0)), (), ())


@pytest.mark.parametrize(
    ("array", "lie"),
    [
        ("image", {"shape": [7, 8, 9, 2]}),
        ("image", {"shape": []}),
        ("image", {"shape": [2, 2**62, 4, 1]}),
        ("label", {"shape": [7, 8, 9]}),
        ("points", {"shape": [32]}),
        ("points", {"shape": [16, 2]}),
        ("points", {"data_offsets": [-8, 56]}),
        ("points", {"data_offsets": [0]}),
        ("points", {"dtype": "F64"}),
    ],
)
def test_a_header_that_lies_is_refused(prepared: Prepared, array: str, lie: dict[str, Any]) -> None:
    path = prepared.path / "data" / "a.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header[array].update(lie)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(DatasetError, match="veloxseg prepare"):
        {"image": prepared.image, "label": prepared.label, "points": prepared.foreground}[array]("a")


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    label = np.zeros((9, 8, 7), np.uint8)
    with full_disk("size", 1000), pytest.raises(OutputError, match="free space"):
        write_case(tmp_path, "a", np.zeros((2, 9, 8, 7), np.float32), label, {}, seed=0)
    assert not list((tmp_path / "data").iterdir())


@pytest.mark.parametrize("metadata", [3, "x", [], {}, {"record": 3}, {"record": "{"}, {"record": "[]"}])
def test_a_record_that_lies_is_refused(prepared: Prepared, metadata: Any) -> None:
    path = prepared.path / "data" / "a.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length]) | {"__metadata__": metadata}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(DatasetError, match="veloxseg prepare"):
        prepared.content("a")


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        ({"cases": 3}, "cases is 3"),
        ({"folds": [{"train": ["a"]}]}, "validation is missing"),
        ({"cases": [{"name": "../x", "patient": "x", "split": "train"}]}, "no plain file name"),
        ({"cases": [{"name": "a\nb", "patient": "x", "split": "train"}]}, "no plain file name"),
        ({"cases": [{"name": "a", "patient": "x", "split": "tarin"}]}, "did you mean"),
        ({"what": 1}, "unknown entry what"),
    ],
)
def test_cases_that_lie_are_refused(prepared: Prepared, lie: dict[str, Any], message: str) -> None:
    listing = {"seed": 0, "cases": [{"name": "a", "patient": "a", "split": "train"}], "folds": []}
    (prepared.path / "plan.json").write_text(json.dumps(prepared.plan.to_json()))
    (prepared.path / "cases.json").write_text(json.dumps(listing))
    assert Prepared.open(prepared.path).split().train == ("a",)
    (prepared.path / "cases.json").write_text(json.dumps(listing | lie))
    with pytest.raises(DatasetError, match=message):
        Prepared.open(prepared.path)
