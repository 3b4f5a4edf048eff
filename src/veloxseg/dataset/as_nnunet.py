"""Cases of any layout as nnU-Net's raw folder: `imagesTr/<case>_0000.nii.gz`, `labelsTr/<case>.nii.gz`, `dataset.json`.

Test cases, and those without a label, go to `imagesTs`. Cases may be added to a folder that has the same channels and
labels; nothing in it is ever replaced.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from veloxseg.console import say, warn
from veloxseg.dataset.as_files import whole_numbers, write_scan
from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.naming import DESCRIPTION, channel_names, label_values, read_description
from veloxseg.dataset.reading import read_case_images, read_case_label
from veloxseg.errors import ConfigError, DatasetError, OutputError, VeloxSegError, shown
from veloxseg.files import writable_folder, write_json
from veloxseg.image import Volume, write
from veloxseg.image.resample import resample_image, resample_label
from veloxseg.modality import KINDS, kind_of

__all__ = ["import_cases"]

ENDING = ".nii.gz"


def import_cases(dataset: Dataset, output: Path, onto: str | None = None) -> dict[str, str]:
    """Writes all cases; with `onto`, every scan on the grid of that modality. Returns case → message of failures."""
    if onto is not None and onto not in dataset.modalities:
        raise ConfigError(f"--onto {shown(onto)} is no modality of these cases; it has {', '.join(dataset.modalities)}")
    _check_description(output / DESCRIPTION, dataset)
    for case in dataset.cases:
        for path in _targets(case, dataset, output):
            if path.exists():
                raise OutputError(f"{shown(path)} exists; name another case or folder, or remove it")
    writable_folder(output)
    failures: dict[str, str] = {}
    apart = 0
    for case in dataset.cases:
        try:
            apart += _import_case(case, dataset, output, onto)
        except OutputError:
            raise
        except VeloxSegError as error:
            if len(dataset.cases) == 1:
                raise
            failures[case.name] = str(error)
            warn(f"{case.name}: {error}")
    if apart:
        say(
            f"in {apart} of {len(dataset.cases)} cases the scans lie on different grids, as they were scanned; "
            f"veloxseg takes them so, nnU-Net itself needs one grid: --onto {dataset.modalities[0]}"
        )
    if len(failures) < len(dataset.cases):
        _describe(dataset, output)
    return failures


def _import_case(case: Case, dataset: Dataset, output: Path, onto: str | None) -> bool:
    """Writes one case; says whether its scans lie on different grids."""
    volumes = read_case_images(case, dataset.modalities)
    label = read_case_label(case, dataset.labels, volumes, dataset.merged)
    grids = [volume.geometry for volume in (*volumes.values(), *([] if label is None else [label]))]
    if onto is not None:
        target = volumes[onto].geometry
        if label is not None and not label.geometry.same_grid(target):
            label = replace(label, array=resample_label(label, target), geometry=target)
        volumes = {name: _on_grid(volume, name, volumes[onto]) for name, volume in volumes.items()}
    *images, last = _targets(case, dataset, output)
    for path, volume in zip(images, volumes.values(), strict=True):
        path.parent.mkdir(exist_ok=True)
        write_scan(volume, path)
    if label is not None:
        last.parent.mkdir(exist_ok=True)
        for warning in label.warnings:
            warn(f"{last.name}: {warning}")
        write(replace(label, array=whole_numbers(label.array), header={}, file_type="nifti"), last)
    say(f"{case.name}: {', '.join(volumes)}{'' if label is None else ' and label'}")
    return onto is None and not all(grid.same_grid(grids[0]) for grid in grids)


def _on_grid(volume: Volume, name: str, target: Volume) -> Volume:
    if volume.geometry.same_grid(target.geometry):
        return volume
    kind = KINDS[kind_of(name)]
    array = resample_image(volume, target.geometry, kind.kernel, kind.air)
    return replace(volume, array=array, geometry=target.geometry)


def _targets(case: Case, dataset: Dataset, output: Path) -> list[Path]:
    """The files of a case: its channels in order, and its label."""
    part = "Ts" if case.split == "test" or case.label is None else "Tr"
    images = [output / f"images{part}" / f"{case.name}_{n:04d}{ENDING}" for n in range(len(dataset.modalities))]
    return [*images, output / f"labels{part}" / f"{case.name}{ENDING}"]


def _check_description(path: Path, dataset: Dataset) -> None:
    """Cases are added only to a folder whose channels and labels are the same."""
    if not path.is_file():
        return
    description = read_description(path)
    channels = tuple(channel_names(description, path).values())
    labels = {name: values[0] for name, values in label_values(description, path).items()}
    for what, found, expected in (("channels", channels, dataset.modalities), ("labels", labels, _labels(dataset))):
        if found != expected:
            raise DatasetError(
                f"{shown(path)} has {what} {shown(found)}, these cases have {shown(expected)}; choose another folder"
            )


def _labels(dataset: Dataset) -> dict[str, int]:
    return {"ignore" if value == dataset.ignore_label else name: value for name, value in dataset.labels.items()}


def _describe(dataset: Dataset, output: Path) -> None:
    """Writes dataset.json; says what nnU-Net itself will not like about it."""
    labels = _labels(dataset)
    if sorted(labels.values()) != list(range(len(labels))):
        say(
            f"the label values are {', '.join(map(str, sorted(labels.values())))}; veloxseg takes them so, nnU-Net "
            "itself needs them without gaps"
        )
    if dataset.regions is not None:
        say(f"labels are written as drawn; give the regions {', '.join(dataset.regions)} at `prepare --regions`")
    names: Mapping[str, str] = {"ct": "CT", "pet": "PET"}  # nnU-Net normalises CT by this very name
    description: dict[str, Any] = {
        "name": dataset.name,
        "channel_names": {str(n): names.get(name, name) for n, name in enumerate(dataset.modalities)},
        "labels": labels,
        "numTraining": len(_cases_in(output / "labelsTr")),
        "file_ending": ENDING,
    }
    write_json(output / DESCRIPTION, description)


def _cases_in(folder: Path) -> list[Path]:
    found: Iterable[Path] = folder.glob(f"*{ENDING}") if folder.is_dir() else ()
    return [path for path in found if not path.name.startswith(".")]
