"""Tags over a whole series: one value in all slices, or a refusal.

A reader that asks the first slice only takes its word for the others, and which slice is the first is a matter of
file names. What decides the meaning of the voxels is therefore asked of every slice. Messages name tags, never their
values, because values may tell about the patient.
"""

from collections.abc import Sequence
from typing import Any

from veloxseg.errors import ImageError, shown

__all__ = ["number", "number_or_none", "one_value", "private_tags", "private_value"]

BLOCKS = range(0x10, 0x20)  # where a writer may put its private elements; further blocks are not met in images


def one_value(slices: Sequence[Any], keyword: str) -> Any:
    """The value that all slices have (None where none has one)."""
    return agreed([s.get(keyword) for s in slices], keyword)


def agreed(values: Sequence[Any], name: str) -> Any:
    """The one value among `values`; 70 and 70.0 are one value, and a missing one differs from all others."""
    other = sum(comparable(value) != comparable(values[0]) for value in values)
    if other:
        raise ImageError(
            f"{name} of {other} of {len(values)} slices is another than that of the first, expected one value in a "
            "series; export the series again"
        )
    return values[0]


def comparable(value: Any) -> Any:
    if value is None or value == "":
        return None
    if not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
        return tuple(comparable(item) for item in value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value).strip().upper()


def number(dataset: Any, keyword: str) -> int:
    """A whole number that an image has to have."""
    value = number_or_none(dataset, keyword)
    if value is None or value != int(value):
        raise ImageError(f"a DICOM image without a whole number as {keyword}; export the series again")
    return int(value)


def number_or_none(dataset: Any, keyword: str) -> float | None:
    """A finite number, or None where the tag is missing or empty."""
    value = dataset.get(keyword)
    if value is None or value == "":
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = float("nan")
    if not abs(found) < float("inf"):
        raise ImageError(f"{shown(keyword)} is not one finite number; export the series again")
    return found


def private_tags(group: int, elements: Sequence[int]) -> list[int]:
    """All tags under which private elements, and the names of their creators, may stand in a file."""
    creators = [group << 16 | block for block in BLOCKS]
    return creators + [group << 16 | block << 8 | element for block in BLOCKS for element in elements]


def private_value(dataset: Any, group: int, creator: str, element: int) -> str:
    """The text of a private element of this creator; empty where there is none.

    A private tag means nothing without the name of its creator: (7053,1000) is Philips' SUV factor only if
    (7053,0010) says so, and it may as well stand in another block.
    """
    for block in BLOCKS:
        named = dataset.get(group << 16 | block)
        found = dataset.get(group << 16 | block << 8 | element)
        if named is not None and found is not None and text_of(named.value) == creator:
            return text_of(found.value)
    return ""


def text_of(value: Any) -> str:
    """A value that may come as bytes, because the file does not say what its private elements are."""
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str("" if value is None else value)
    return text.strip(" \0")
