"""nnU-Net v2 raw: `dataset.json`, `imagesTr/<case>_<channel>.<ending>`, `labelsTr/<case>.<ending>`.

Channels get their names from `channel_names`; labels may be regions (lists of values, with `regions_class_order`) and
one may be called `ignore`. `splits_final.json`, if it lies in the folder, gives the folds.
"""

from pathlib import Path
from typing import Any

from veloxseg.dataset.dataset import Case, Dataset, safe_name
from veloxseg.dataset.naming import (
    channel_names,
    find_description,
    label_values,
    peek,
    read_description,
    read_folds,
    split_channel,
)
from veloxseg.errors import DatasetError, shown
from veloxseg.image.formats import images_by_case, is_image_name

__all__ = ["read", "recognises"]

FOLDERS = (("imagesTr", "labelsTr", None), ("imagesTs", "labelsTs", "test"))


def recognises(path: Path) -> bool:
    source = find_description(path)
    # a dataset.json may also lie in a folder of scans, whose channels it names
    return "channel_names" in peek(source) and any((source.parent / images).is_dir() for images, _, _ in FOLDERS)


def read(path: Path) -> Dataset:
    source = find_description(path)
    root = source.parent
    description = read_description(source)
    for key in ("channel_names", "labels", "file_ending"):
        if key not in description:
            raise DatasetError(f"{source} lacks {key!r}; add it as nnU-Net v2 describes")
    channels = channel_names(description, source)
    labels, regions, ignore = read_labels(description, source)
    ending = str(description["file_ending"])
    if not is_image_name(f"case{ending}"):
        raise DatasetError(f"{source} has file_ending {shown(ending, 20)!r}, expected .nii.gz or its like; correct it")
    cases = [
        case
        for images, label_folder, split in FOLDERS
        for case in _cases(root / images, root / label_folder, ending, channels, split)
    ]
    return Dataset(
        name=str(description.get("name", root.name)),
        layout="nnunet",
        root=root,
        modalities=tuple(channels.values()),
        labels=labels,
        regions=regions,
        ignore_label=ignore,
        cases=tuple(cases),
        folds=read_folds(splits) if (splits := root / "splits_final.json").is_file() else (),
    )


def read_labels(
    description: dict[str, Any], source: Path
) -> tuple[dict[str, int], dict[str, tuple[int, ...]] | None, int | None]:
    """Labels, regions and the ignore value of an nnU-Net `labels` entry."""
    values = label_values(description, source)
    ignore = values["ignore"][0] if "ignore" in values else None
    plain = {name: value[0] for name, value in values.items() if len(value) == 1}
    if plain.get("background") != 0:
        raise DatasetError(f"{source} does not list background as 0; nnU-Net needs it so")
    if all(len(value) == 1 for value in values.values()):
        return plain, None, ignore
    regions = {n: v for n, v in values.items() if n not in ("background", "ignore")}
    order = description.get("regions_class_order")
    if not isinstance(order, list) or len(order) != len(regions) or not all(type(value) is int for value in order):
        raise DatasetError(
            f"{source} has {len(regions)} regions but regions_class_order {shown(order)}; list one value per region"
        )
    # the class that a region's own voxels get names the value, as nnU-Net converts regions back to labels
    labels = {"background": 0, **dict(zip(regions, order, strict=True))}
    used = {v for value in regions.values() for v in value}
    labels |= {f"label_{v}": v for v in sorted(used - set(labels.values()))}
    if ignore is not None:
        labels["ignore"] = ignore
    return labels, regions, ignore


def _cases(images: Path, labels: Path, ending: str, channels: dict[int, str], split: str | None) -> list[Case]:
    """Every case that has at least one channel; a missing channel is for `check` to tell."""
    found: dict[str, dict[str, Path]] = {}
    listed, labelled = (images_by_case(folder) if folder.is_dir() else {} for folder in (images, labels))
    for stem, file in listed.items():
        if (named := split_channel(stem)) and named[1] in channels and file.name.endswith(ending):
            found.setdefault(named[0], {})[channels[named[1]]] = file
    cases = []
    for name, files in found.items():
        label = labelled.get(name, labels / f"{name}{ending}")
        exists = label.is_file() or split is None
        cases.append(
            Case(name=safe_name(name, images), patient=name, images=files, label=label if exists else None, split=split)
        )
    return cases
