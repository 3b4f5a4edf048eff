"""Which cases an input holds: one case given by modality, or whatever else names cases (dataset/cases.py)."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from veloxseg.console import say
from veloxseg.dataset.cases import Selection, for_modalities, part_words, taken
from veloxseg.dataset.dataset import Case
from veloxseg.dataset.layouts import layout_of, open_dataset
from veloxseg.dataset.layouts.folder import channel_number
from veloxseg.dataset.naming import split_channel
from veloxseg.errors import ConfigError, DatasetError, shown
from veloxseg.image.formats import without_suffix
from veloxseg.modality import canonical_name

__all__ = ["InputCase", "find_cases", "part_of", "with_picks"]


@dataclass(frozen=True)
class InputCase:
    name: str
    images: Mapping[str, Path]  # modality -> file or DICOM folder
    # modality -> series or volume to read
    picks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def find_cases(
    inputs: Sequence[str],
    names: tuple[str, ...],
    selection: Selection = Selection(),  # noqa: B008 - frozen
) -> list[InputCase]:
    """Reads `-i`: either `ct=FILE pet=FILE_OR_FOLDER`, or one path with cases. `names` are the model's modalities."""
    pairs = [text.partition("=") for text in inputs]
    if len(pairs) == 1 and (not pairs[0][1] or os.path.exists(inputs[0])):
        return _in_data_set(Path(inputs[0]), names, selection)
    if selection != Selection():
        raise ConfigError(
            "--split, --cases and --layout are for a folder or list; one case is given by its files alone"
        )
    images: dict[str, Path] = {}
    for name, equals, path in pairs:
        if not equals or not path:
            raise ConfigError(
                f"input {name!r} is not MODALITY=FILE; give one folder, or {' '.join(f'-i {n}=FILE' for n in names)}"
            )
        if canonical_name(name) in images:
            raise ConfigError(f"modality {name} is given twice; give each once")
        if not os.path.exists(path):  # and not Path.exists, which fails for names that are too long
            raise DatasetError(f"{shown(path)} does not exist; check the path of {name}")
        images[canonical_name(name)] = Path(path)
    first = next((images[name] for name in names if name in images), next(iter(images.values())))
    name = without_suffix(first.name)
    return [InputCase((split_channel(name) or (name,))[0], images)]


def with_picks(
    cases: Sequence[InputCase], series: Sequence[str], volumes: Sequence[str], names: tuple[str, ...]
) -> list[InputCase]:
    """The same cases, read as `--series pet=PT` and `--volume t1=0` say; `names` are the model's modalities."""
    picks: dict[str, dict[str, Any]] = {}
    for option, texts in (("series", series), ("volume", volumes)):
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals or not value or (option == "volume" and not re.fullmatch("[0-9]{1,6}", value)):
                example = "ct=2" if option == "series" else "ct=0"
                raise ConfigError(f"--{option} {shown(text)!r} is not MODALITY=WHICH; write it as --{option} {example}")
            if canonical_name(name) not in names:
                raise ConfigError(f"--{option} names {shown(name)!r}, the model takes {', '.join(names)}; name one")
            picks.setdefault(canonical_name(name), {})[option] = int(value) if option == "volume" else value
    return [replace(case, picks={**case.picks, **picks}) for case in cases] if picks else list(cases)


def part_of(cases: Sequence[InputCase], parts: int, part: int) -> list[InputCase]:
    """Every `parts`-th case: job `part` of an array of `parts` jobs."""
    if parts < 1 or not 0 <= part < parts:
        raise ConfigError(f"part {part} of {parts} does not exist; --part-id goes from 0 to --num-parts - 1")
    return list(cases[part::parts])


def _in_data_set(path: Path, names: tuple[str, ...], selection: Selection) -> list[InputCase]:
    """The cases that lie at a path, with the scans that the model takes; what is taken and what is left is said."""
    if selection.layout == "auto" and layout_of(path) is None:
        raise DatasetError(
            f"{shown(path)} holds no scan and has no known layout; give a data set, a list of cases, a folder of "
            f"scans, or one case as -i {names[0]}=FILE ..."
        )
    dataset = open_dataset(path, selection.layout)
    if dataset.layout == "prepared" and selection.split is None and not selection.names:
        selection = replace(selection, split="test" if any(case.split == "test" for case in dataset.cases) else "all")
    whole, dataset = dataset, taken(dataset, selection)
    if whole.layout != "folder":
        which = f" ({selection.split})" if selection.split else ""
        say(
            f"{len(dataset.cases)} of {len(whole.cases)} cases are taken{which}: {shown(path)} has "
            f"{part_words(whole.cases)}"
        )
    dataset = for_modalities(dataset, names)
    if unused := [name for name in whole.modalities if name not in names and channel_number(name) is None]:
        say(f"the model takes {', '.join(names)}; {', '.join(unused)} of the data set are not used")
    return [InputCase(case.name, case.images, _picks(case)) for case in dataset.cases]


def _picks(case: Case) -> dict[str, dict[str, Any]]:
    picks: dict[str, dict[str, Any]] = {}
    for option, chosen in (("volume", case.volumes), ("series", case.series)):
        for name, which in chosen.items():
            picks.setdefault(name, {})[option] = which
    return picks
