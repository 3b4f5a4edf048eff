"""Which cases an input holds: one case given by modality, a folder in nnU-Net naming, or a data set of any layout."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from veloxseg.errors import ConfigError, DatasetError
from veloxseg.files import read_json
from veloxseg.prepare.dataset import IMAGE_SUFFIXES, without_suffix
from veloxseg.prepare.modality import canonical_name

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
    if len(pairs) == 1 and (not pairs[0][1] or Path(inputs[0]).exists()):
        return _in_folder(Path(inputs[0]), names)
    images: dict[str, Path] = {}
    for name, equals, path in pairs:
        if not equals or not path:
            raise ConfigError(
                f"input {name!r} is not MODALITY=FILE; give one folder, or {' '.join(f'-i {n}=FILE' for n in names)}"
            )
        if canonical_name(name) in images:
            raise ConfigError(f"modality {name} is given twice; give each once")
        if not Path(path).exists():
            raise DatasetError(f"{path} does not exist; check the path of {name}")
        images[canonical_name(name)] = Path(path)
    first = next((images[name] for name in names if name in images), next(iter(images.values())))
    return [InputCase(re.sub(r"_\d{4}$", "", without_suffix(first.name)), images)]


def with_picks(cases: Sequence[InputCase], series: Sequence[str], volumes: Sequence[str]) -> list[InputCase]:
    """The same cases, read as `--series pet=PT` and `--volume t1=0` say."""
    picks: dict[str, dict[str, Any]] = {}
    for option, texts in (("series", series), ("volume", volumes)):
        for text in texts:
            name, equals, value = text.partition("=")
            if not equals or not value or (option == "volume" and not value.isdigit()):
                example = "ct=2" if option == "series" else "ct=0"
                raise ConfigError(
                    f"--{option} {text!r} is not MODALITY=WHICH; write it as --{option} {example}"
                )
            picks.setdefault(canonical_name(name), {})[option] = int(value) if option == "volume" else value
    return [replace(case, picks=picks) for case in cases]


def part_of(cases: Sequence[InputCase], parts: int, part: int) -> list[InputCase]:
    """Every `parts`-th case: job `part` of an array of `parts` jobs."""
    if parts < 1 or not 0 <= part < parts:
        raise ConfigError(f"part {part} of {parts} does not exist; --part-id goes from 0 to --num-parts - 1")
    return list(cases[part::parts])


def _in_folder(folder: Path, names: tuple[str, ...]) -> list[InputCase]:
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder; give a folder, or one case as -i {names[0]}=FILE ...")
    found: dict[str, dict[str, Path]] = {}
    channels = _channel_names(folder, names)
    for file in sorted(folder.iterdir()):
        match = re.fullmatch(r"(.+)_(\d{4})", without_suffix(file.name))
        if match is None or not file.name.lower().endswith(IMAGE_SUFFIXES) or file.name.startswith("."):
            continue
        channel = int(match[2])
        if channel not in channels:
            known = ", ".join(f"{number:04d} ({name})" for number, name in channels.items())
            raise DatasetError(f"{file} has channel {channel}, the model takes {known}; rename or remove it")
        found.setdefault(match[1], {})[channels[channel]] = file
    if found:
        return [InputCase(name, images) for name, images in found.items()]
    from veloxseg.prepare.layouts import open_dataset

    return [InputCase(case.name, case.images) for case in open_dataset(folder).cases]


def _channel_names(folder: Path, names: tuple[str, ...]) -> dict[int, str]:
    """What the numbers in nnU-Net names stand for: as dataset.json says, else the model's own order."""
    for place in (folder, folder.parent):
        if (place / "dataset.json").is_file():
            described = read_json(place / "dataset.json")
            entry = described.get("channel_names") if isinstance(described, dict) else None
            if isinstance(entry, dict) and all(str(number).isdigit() for number in entry):
                return {int(number): canonical_name(str(name)) for number, name in entry.items()}
    return dict(enumerate(names))
