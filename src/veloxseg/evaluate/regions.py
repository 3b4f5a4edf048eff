"""Structures: which label values are scored together, and under which name."""

from collections.abc import Mapping, Sequence

from veloxseg.errors import ConfigError

__all__ = ["NAMED_REGIONS", "Regions", "parse_regions"]

Regions = Mapping[str, tuple[int, ...]]

NAMED_REGIONS: dict[str, Regions] = {
    "brats": {"WT": (1, 2, 4), "TC": (1, 4), "ET": (4,)},  # up to 2021: 1 necrosis, 2 oedema, 4 enhancing
    "brats2023": {"WT": (1, 2, 3), "TC": (1, 3), "ET": (3,)},  # from 2023: 3 enhancing
    "msd-brain": {
        "WT": (1, 2, 3),
        "TC": (2, 3),
        "ET": (3,),
    },  # Decathlon: 1 oedema, 2 not enhancing, 3 enhancing
    "hecktor": {"GTVp": (1,), "GTVn": (2,)},
}


def parse_regions(texts: Sequence[str]) -> Regions:
    """`["WT=1,2,4", "TC=1,4"]` or the name of a known set, `["brats"]`.

    >>> parse_regions(["tumour=1", "all=1,2"])
    {'tumour': (1,), 'all': (1, 2)}
    """
    if len(texts) == 1 and texts[0].lower() in NAMED_REGIONS:
        return NAMED_REGIONS[texts[0].lower()]
    regions: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        numbers = [value.strip() for value in values.split(",")]
        if not name or not equals or not all(number.isdecimal() and int(number) > 0 for number in numbers):
            known = ", ".join(NAMED_REGIONS)
            raise ConfigError(
                f"region {text!r} is not NAME=VALUE,… with values from 1, nor one of {known}; write WT=1,2,4"
            )
        if name in regions:
            raise ConfigError(f"region {name!r} is given twice; give each region one name")
        regions[name] = tuple(sorted({int(number) for number in numbers}))
    return regions
