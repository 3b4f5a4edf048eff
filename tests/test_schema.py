"""The gate: nothing behind it meets a wrong type, and each refusal says what was found and what was expected."""

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest

from veloxseg.errors import ConfigError, DatasetError, ModelError
from veloxseg.files import read_json
from veloxseg.schema import OneOf, Range, Share, argument, build, parse, read, settle


@dataclass(frozen=True, kw_only=True)
class Inner:
    size: tuple[Annotated[int, Range(1, 64)], Annotated[int, Range(1, 64)]] = (1, 2)


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    rate: Share = 0.5
    deep: bool = False
    word: Annotated[str, OneOf("mean", "sum")] = "mean"
    inner: Inner = field(default_factory=Inner)
    values: dict[str, Annotated[int, Range(0, 9)]] = field(default_factory=dict)
    maybe: float | None = None

    def __post_init__(self) -> None:
        settle(self)
        if self.name == "at odds":
            raise ConfigError("name and rate are at odds; change one")


def test_what_fits_is_built_with_tuples_for_lists() -> None:
    value = {"name": "a", "rate": 0, "inner": {"size": [3, 4]}, "values": {"x": 9}, "maybe": 2}
    found = build(Outer, value, "file.json")
    assert found == Outer(name="a", rate=0.0, inner=Inner(size=(3, 4)), values={"x": 9}, maybe=2.0)
    assert type(found.rate) is float


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([], "the content is"),
        ({}, "name is missing, expected a text"),
        ({"name": 3}, "name is 3, expected a text"),
        ({"name": "a", "rate": 1}, "rate is 1, expected a finite number from 0 to below 1"),
        ({"name": "a", "rate": float("nan")}, "rate is nan"),
        ({"name": "a", "rate": 10**400}, "expected a finite number"),
        ({"name": "a", "rate": True}, "rate is True"),
        ({"name": "a", "deep": 1}, "deep is 1, expected true or false"),
        ({"name": "a", "word": "max"}, "word is 'max', expected one of mean, sum"),
        ({"name": "a", "inner": {"size": [1, 0]}}, r"inner.size\[1\] is 0, expected a whole number from 1 to 64"),
        ({"name": "a", "inner": {"size": [1.0, 2]}}, r"inner.size\[0\] is 1.0"),
        ({"name": "a", "inner": {"size": [1]}}, "expected a list of 2"),
        ({"name": "a", "inner": 5}, "inner is 5, expected an object"),
        ({"name": "a", "values": {"x": 10}}, "values.x is 10"),
        ({"name": "a", "other": 1}, "unknown entry other; known are deep, inner"),
        ({"name": "at odds"}, "name and rate are at odds"),
        ({"name": "x" * 20_000}, "expected a text"),
    ],
)
def test_what_does_not_fit_is_one_line(value: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words) as raised:
        build(Outer, value, "file.json", ModelError, "export it again")
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("file.json: ")
    assert len(str(raised.value)) < 400


def test_a_dataclass_made_in_python_is_checked_too() -> None:
    assert Outer(name="a", inner=build(Inner, {"size": [np.int64(3), 4]}, "inner")).inner.size == (3, 4)
    with pytest.raises(ConfigError, match="rate is 2"):
        Outer(name="a", rate=2)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "12", 12),
        (float, "1e-3", 1e-3),
        (float | None, "none", None),
        (bool, "yes", True),
        (tuple[str, ...], "ct, pet", ("ct", "pet")),
        (tuple[int, ...], "4,8,8,16", (4, 8, 8, 16)),
        (tuple[int, int, int], "3x4x5", (3, 4, 5)),
        (tuple[tuple[int, int, int], ...], "3x3x3,6x6x6", ((3, 3, 3), (6, 6, 6))),
    ],
)
def test_texts_become_values(kind: Any, text: str, value: Any) -> None:
    assert parse(kind, text, "key") == value


@pytest.mark.parametrize("text", ["", "abc", "²", "1e400", "nan", "inf", "1" * 5000, "1.5", "-3", "0x10", "\x00"])
def test_texts_that_are_no_number_are_refused(text: str) -> None:
    kind = Annotated[int, Range(1, 1000)]
    with pytest.raises(ConfigError, match="expected a whole number from 1 to 1000") as raised:
        parse(kind, text, "threads")
    assert len(str(raised.value)) < 200
    with pytest.raises(argparse.ArgumentTypeError):
        argument(kind)(text)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "NaN",
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        '{"a": ' + "9" * 5000 + "}",
        "\xff",
    ],
)
def test_json_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DatasetError, match="not valid JSON") as raised:
        read_json(path, DatasetError)
    assert len(str(raised.value)) < 600


def test_a_file_is_read_and_checked_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"name": "a", "rate": 0.25}))
    assert read(Outer, path, ModelError, "make it anew").rate == 0.25
    with pytest.raises(ModelError, match="does not exist"):
        read(Outer, tmp_path / "none.json", ModelError, "make it anew")
    with pytest.raises(ModelError, match="cannot be read"):
        read(Outer, tmp_path, ModelError, "make it anew")
