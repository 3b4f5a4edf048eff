"""Which cases an input holds: one case given by modality, a folder in nnU-Net naming, or a data set of any layout."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from veloxseg.dataset.naming import DESCRIPTION, channel_names, description_near, split_channel
from veloxseg.errors import ConfigError, DatasetError, shown
from veloxseg.image.formats import images_by_case, without_suffix
from veloxseg.modality import canonical_name

__all__ = ["InputCase", "find_cases", "part_of", "with_picks"]


@dataclass(frozen=True)
class InputCase:
    name: str
    images: Mapping[str, Path]  # modality -> file or DICOM folder
    # modality -> series or volume to read
    picks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def find_cases(inputs: Sequence[str], names: tuple[str, ...]) -> list[InputCase]:
    """Reads `-i`: either `ct=FILE pet=FILE_OR_FOLDER`, or one folder. `names` are the model's modalities."""
    pairs = [text.partition("=") for text in inputs]
    if len(pairs) == 1 and (not pairs[0][1] or os.path.exists(inputs[0])):
        return _in_folder(Path(inputs[0]), names)
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


def _in_folder(folder: Path, names: tuple[str, ...]) -> list[InputCase]:
    if not os.path.isdir(folder):
        raise DatasetError(f"{shown(folder)} is not a folder; give a folder, or one case as -i {names[0]}=FILE ...")
    found: dict[str, dict[str, Path]] = {}
    channels = channel_names(description_near(folder), folder / DESCRIPTION) or dict(enumerate(names))
    for name, file in images_by_case(folder).items():
        if (named := split_channel(name)) is None:
            continue
        case, channel = named
        if channel not in channels:
            known = ", ".join(f"{number:04d} ({modality})" for number, modality in channels.items())
            raise DatasetError(f"{file} has channel {channel}, the model takes {known}; rename or remove it")
        found.setdefault(case, {})[channels[channel]] = file
    if found:
        return [InputCase(name, images) for name, images in found.items()]
    from veloxseg.dataset.layouts import open_dataset

    return [
        InputCase(case.name, case.images, {name: {"volume": volume} for name, volume in case.volumes.items()})
        for case in open_dataset(folder).cases
    ]
