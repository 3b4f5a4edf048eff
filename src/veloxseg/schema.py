"""The gate: what comes from outside becomes a value of ours, or one line that says what is wrong with it.

A dataclass is its own schema: `build(Plan, value, "plan.json")` walks its annotations and refuses a wrong type, a
number out of its range, NaN and infinity, an unknown or missing key, and what is too long. The same annotations read
the text of `--set key=value` (`parse`) and of options (`argument`). Nothing behind the gate meets a wrong type.

    Annotated[int, Range(1, 64)]     a whole number from 1 to 64; True is no number
    Annotated[float, Range(0, 1)]    a finite number; a whole one is taken too
    Annotated[str, OneOf("a", "b")]  one of these words
    tuple[X, X, X], tuple[X, ...], dict[str, X], X | None, dataclasses: what they say, part by part
"""

import dataclasses
import functools
import itertools
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from veloxseg.errors import ConfigError, VeloxSegError, did_you_mean, shown
from veloxseg.files import read_json

__all__ = [
    "Count",
    "OneOf",
    "Range",
    "Share",
    "argument",
    "build",
    "build_some",
    "field_kinds",
    "parse",
    "read",
    "settle",
]

T = TypeVar("T")
MOST_ENTRIES = 100_000  # of a list or an object
MOST_CHARACTERS = 10_000  # of a text


@dataclass(frozen=True)
class Range:
    """The numbers from `least` to `most`; `open_end` leaves `most` itself out."""

    least: float = -math.inf
    most: float = math.inf
    open_end: bool = False

    def holds(self, value: float) -> bool:
        return self.least <= value <= self.most and not (self.open_end and value == self.most)

    def describe(self, kind: str) -> str:
        if self.most == math.inf:
            return f"{kind} of at least {self.least:g}" if self.least > -math.inf else kind
        return f"{kind} from {self.least:g} to {'below ' if self.open_end else ''}{self.most:g}"


class OneOf:
    """Any of these words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def holds(self, value: str) -> bool:
        return value in self.choices

    def describe(self, kind: str) -> str:
        return f"one of {', '.join(self.choices)}"


Count = Annotated[int, Range(1, 1_000_000)]
Share = Annotated[float, Range(0, 1, open_end=True)]


def read(kind: type[T], path: str | Path, error: type[VeloxSegError], remedy: str) -> T:
    """A JSON file as a dataclass."""
    return build(kind, read_json(path, error), Path(path).name, error, remedy)


def build(
    kind: Any, value: Any, where: str, error: type[VeloxSegError] = ConfigError, remedy: str = "correct it"
) -> Any:
    """`value`, as JSON gives it, as an instance of `kind`; `where` and `remedy` are for the message."""
    try:
        return _build(kind, value, "")
    except _Wrong as wrong:
        raise error(f"{where}: {wrong}; {remedy}") from None
    except VeloxSegError as problem:  # a dataclass refused how its fields go together
        raise error(f"{where}: {problem}") from problem


def build_some(kinds: Mapping[str, Any], value: Any, where: str, what: str = "setting") -> dict[str, Any]:
    """Those of the named fields that `value` has, each as its kind says; `where` and `what` are for the message."""
    try:
        entries = _object(value, "")
        if unknown := [name for name in entries if name not in kinds]:
            raise _Wrong(_unknown(what, unknown[0], kinds))
        return {name: _build(kinds[name], item, name) for name, item in entries.items()}
    except _Wrong as wrong:
        raise ConfigError(f"{where}: {wrong}" if where else str(wrong)) from None


def field_kinds(kind: Any) -> dict[str, Any]:
    """The annotations of a dataclass by field, for `build_some` and `parse`."""
    return dict(_hints(kind))


def settle(instance: Any) -> None:
    """For `__post_init__` of a frozen dataclass: every field is what its annotation says, lists become tuples."""
    hints: dict[str, Any] = _hints(type(instance))  # type: ignore[arg-type]
    for name, kind in hints.items():
        try:
            object.__setattr__(instance, name, _build(kind, getattr(instance, name), name))
        except _Wrong as wrong:
            raise ConfigError(f"{wrong}; correct it") from None


def parse(kind: Any, text: str, name: str) -> Any:
    """A value from its text: `0.1`, `true`, `none`, `ct,pet`, `4,8,8,16`, `3x3x3,6x6x6`."""
    try:
        return _build(kind, _from_text(kind, text.strip()), name)
    except _Wrong as wrong:
        raise ConfigError(str(wrong)) from None


def argument(kind: Any) -> Callable[[str], Any]:
    """A converter for `argparse`: `type=argument(Annotated[int, Range(1, 64)])`."""

    def convert(text: str) -> Any:
        import argparse

        try:
            return _build(kind, _from_text(kind, text.strip()), "")
        except _Wrong as wrong:
            raise argparse.ArgumentTypeError(str(wrong)) from None

    return convert


class _Wrong(Exception):
    """What was found and what was expected, with the place inside the file."""


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {what} {shown(name, 60)!r}{did_you_mean(name, known)}; choose from {', '.join(sorted(known))}"


def _wrong(place: str, value: Any, expected: str) -> _Wrong:
    found = shown(repr(value) if isinstance(value, str) else _as_json(value), 80)
    return _Wrong(f"{place} is {found}, expected {expected}" if place else f"{found} is not {expected}")


def _build(kind: Any, value: Any, place: str) -> Any:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        try:
            built = _build_scalar(parts[0], value, place)
        except _Wrong:
            built = None
        if built is None or not all(limit.holds(built) for limit in parts[1:]):
            words = [word for limit in parts[1:] if isinstance(limit, OneOf) for word in limit.choices]
            raise _wrong(place, value, describe(kind) + did_you_mean(value, words))
        return built
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in parts:
            return None
        (kind,) = (part for part in parts if part is not type(None))
        return _build(kind, value, place)
    if origin is tuple:
        return _build_tuple(parts, value, place)
    if origin is list:
        return list(_build_tuple((parts[0], Ellipsis), value, place))
    if origin is dict:
        entries = _object(value, place)
        return {_build(parts[0], key, place): _build(parts[1], item, f"{place}.{key}") for key, item in entries.items()}
    if dataclasses.is_dataclass(kind):
        return _build_dataclass(kind, value, place)
    return _build_scalar(kind, value, place)


def _build_scalar(kind: Any, value: Any, place: str) -> Any:
    if kind is int and _is_whole(value):
        return int(value)
    if kind is float and (_is_whole(value) or isinstance(value, float)):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            return number
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str) and len(value) <= MOST_CHARACTERS and "\0" not in value:
        return value
    raise _wrong(place, value, describe(kind))


def _is_whole(value: Any) -> bool:
    """Whether it is a whole number of Python or numpy; True is none."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and getattr(value, "shape", ()) == ()


def _build_tuple(parts: tuple[Any, ...], value: Any, place: str) -> tuple[Any, ...]:
    endless = len(parts) == 2 and parts[1] is Ellipsis
    if not isinstance(value, list | tuple) or len(value) > MOST_ENTRIES or not (endless or len(value) == len(parts)):
        raise _wrong(place, value, describe_list(parts))
    kinds = itertools.repeat(parts[0]) if endless else parts
    return tuple(_build(kind, item, f"{place}[{index}]") for index, (kind, item) in enumerate(zip(kinds, value)))  # noqa: B905


def _build_dataclass(kind: Any, value: Any, place: str) -> Any:
    if isinstance(value, kind):
        return value
    entries, hints = _object(value, place), _hints(kind)
    within = f"{place}." if place else ""
    if unknown := sorted(entries.keys() - hints.keys()):
        raise _Wrong(f"unknown entry {within}{shown(unknown[0], 60)}; known are {', '.join(sorted(hints))}")
    needed = {
        item.name
        for item in dataclasses.fields(kind)
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    }
    if missing := sorted(needed - entries.keys()):
        raise _wrong(f"{within}{missing[0]}", None, describe(hints[missing[0]]))
    return kind(**{name: _build(hints[name], item, f"{within}{name}") for name, item in entries.items()})


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MOST_ENTRIES or not all(isinstance(key, str) for key in value):
        raise _wrong(place or "the content", value, 'an object, {"name": ...}')
    return value


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {item.name: hints[item.name] for item in dataclasses.fields(kind)}


def _from_text(kind: Any, text: str) -> Any:
    """The text as JSON would give it; what cannot be read stays text, and is refused as such."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _from_text(parts[0], text)
    if origin in (typing.Union, types.UnionType):
        if text.lower() in ("none", ""):
            return None
        (kind,) = (part for part in parts if part is not type(None))
        return _from_text(kind, text)
    if origin is tuple:
        nested = typing.get_origin(parts[0]) is tuple
        words = [word.strip() for word in (text if nested or "," in text else text.replace("x", ",")).split(",")]
        kinds = itertools.repeat(parts[0])
        return [_from_text(part, word) for part, word in zip(kinds, words) if word]  # noqa: B905
    if kind is bool:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(text.lower(), text)
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def describe(kind: Any) -> str:
    """What an annotation asks for, in words."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return "".join(limit.describe(describe(parts[0])) for limit in parts[1:])
    if origin in (typing.Union, types.UnionType):
        return " or ".join("nothing" if part is type(None) else describe(part) for part in parts)
    if origin is tuple:
        return describe_list(parts)
    names = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text"}
    return names.get(kind, 'an object, {"name": ...}')


def describe_list(parts: tuple[Any, ...]) -> str:
    count = "a list, each entry" if parts[-1] is Ellipsis else f"a list of {len(parts)}, each"
    return f"{count} {describe(parts[0])}"


def _as_json(value: Any) -> str:
    if value is None:
        return "missing"
    return f"a list of {len(value)}" if isinstance(value, list | tuple) and len(value) > 16 else str(value)
