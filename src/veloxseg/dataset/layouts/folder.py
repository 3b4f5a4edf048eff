"""Scans without a data set around them: one file, one DICOM folder, or a folder of files.

<case>_0000.nii.gz, <case>_0001.nii.gz    nnU-Net's naming: one file for each channel
<case>.nii.gz                             one modality, or 4-D with all modalities (Medical Segmentation Decathlon)

The `dataset.json` in the folder or above it names the channels. Without one they are called 0000, 0001, …, and who
knows what they are, such as a model, names them (`cases.py`).
"""

from pathlib import Path

from veloxseg.dataset.dataset import Case, Dataset, safe_name
from veloxseg.dataset.naming import DESCRIPTION, channel_names, description_near, split_channel
from veloxseg.errors import DatasetError, shown
from veloxseg.image.formats import images_by_case, is_image_name, without_suffix

__all__ = ["channel_number", "channel_word", "read", "recognises"]


def channel_word(number: int) -> str:
    """What a channel is called as long as nobody names it."""
    return f"{number:04d}"


def channel_number(modality: str) -> int | None:
    """The number of a channel without a name; None for a modality."""
    return int(modality) if modality.isdecimal() and len(modality) == 4 else None


def recognises(path: Path) -> bool:
    if path.is_file():
        return is_image_name(path.name)
    return path.is_dir() and (any(is_image_name(file.name) for file in path.iterdir()) or _is_series(path))


def read(path: Path) -> Dataset:
    folder = path if path.is_dir() else path.parent
    files = {without_suffix(path.name): path} if path.is_file() or _is_series(path) else images_by_case(path)
    channels = channel_names(description_near(folder), folder / DESCRIPTION)
    cases = _by_channel(files, channels) or _whole(files, channels)
    found = {name for case in cases for name in case.images}
    return Dataset(
        name=folder.name,
        layout="folder",
        root=folder,
        modalities=tuple(name for name in channels.values() if name in found) or tuple(sorted(found)),
        labels={"background": 0},
        cases=tuple(cases),
    )


def _is_series(path: Path) -> bool:
    """Whether a folder holds the slices of a DICOM series and no image of another type."""
    if not path.is_dir() or any(is_image_name(file.name) for file in path.iterdir()):
        return False
    from veloxseg.image.dicom.file import is_dicom

    first = next((file for file in sorted(path.iterdir()) if file.is_file()), None)
    return first is not None and is_dicom(first)


def _by_channel(files: dict[str, Path], channels: dict[int, str]) -> list[Case]:
    """nnU-Net's naming, if any file is a channel 0000: `case_0001` alone may be the name of a case."""
    named = {stem: parts for stem in files if (parts := split_channel(stem))}
    if not any(number == 0 for _, number in named.values()):
        return []
    found: dict[str, dict[str, Path]] = {}
    for stem, (case, number) in named.items():
        if channels and number not in channels:
            known = ", ".join(f"{channel_word(n)} ({modality})" for n, modality in channels.items())
            raise DatasetError(f"{shown(files[stem])} has channel {number}, expected {known}; rename or remove it")
        found.setdefault(case, {})[channels.get(number, channel_word(number))] = files[stem]
    return [Case(name=case, patient=case, images=images) for case, images in found.items()]


def _whole(files: dict[str, Path], channels: dict[int, str]) -> list[Case]:
    names = tuple(channels.values()) or (channel_word(0),)
    volumes = {name: number for number, name in enumerate(names)} if len(names) > 1 else {}
    return [
        Case(name=safe_name(stem, file.parent), patient=stem, images=dict.fromkeys(names, file), volumes=volumes)
        for stem, file in files.items()
    ]
