"""Which files belong together, and what their values mean.

A case is known by its file's name without the ending. A structure is a name and the label values that are scored
together under it; the names come from the user, the data set, its `dataset.json`, or the JSON beside a prediction.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from veloxseg.dataset.naming import DESCRIPTION, channel_names, description_near, label_values, split_channel
from veloxseg.errors import ConfigError, DatasetError, GeometryError, shown
from veloxseg.image import Geometry, grid_difference
from veloxseg.image.formats import images_by_case

__all__ = [
    "NAMED_REGIONS",
    "Files",
    "Labels",
    "Regions",
    "check_same_grid",
    "find_images",
    "list_cases",
    "named",
    "open_labels",
    "parse_regions",
]

Files = Mapping[str, Path]  # by case
Regions = Mapping[str, tuple[int, ...]]

NAMED_REGIONS: dict[str, Regions] = {
    "brats": {"WT": (1, 2, 4), "TC": (1, 4), "ET": (4,)},  # up to 2021: 1 necrosis, 2 oedema, 4 enhancing
    "brats2023": {"WT": (1, 2, 3), "TC": (1, 3), "ET": (3,)},  # from 2023: 3 enhancing
    "msd-brain": {"WT": (1, 2, 3), "TC": (2, 3), "ET": (3,)},  # Decathlon: 1 oedema, 2 not enhancing, 3 enhancing
    "hecktor": {"GTVp": (1,), "GTVn": (2,)},
}


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The truth: where it lies and what its values mean."""

    files: dict[str, Path]  # by case
    structures: dict[str, tuple[int, ...]]  # {} if nothing says what the values mean
    ignore: int | None = None  # voxels of this value are not scored
    images: dict[str, dict[str, Path]] = field(default_factory=dict)  # case -> modality -> file


def list_cases(folder: Path) -> dict[str, Path]:
    """The images of a folder by case, in the order of their names."""
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "does not exist"
        raise DatasetError(f"{shown(folder)} {found}; give a folder with one image per case")
    return images_by_case(folder)


def check_same_grid(prediction: Geometry, label: Geometry, case: str, method: str) -> None:
    """Refuses a prediction that does not lie on its label's voxels."""
    if difference := grid_difference(prediction, label):
        raise GeometryError(
            f"case {shown(case)!r}: the prediction of {shown(method)} and the label lie on different grids: "
            f"{difference}; predict on the label's grid, or resample the prediction there with nearest neighbour"
        )


def open_labels(folder: Path) -> Labels:
    """A folder of label maps, or a data set in any layout that prepare knows.

    Of a data set with unseen (test) cases that have labels, those; else all cases with labels.
    """
    files = list_cases(folder)
    if files:
        return _with_names(files, folder)
    from veloxseg.dataset.layouts import open_dataset

    try:
        dataset = open_dataset(folder)
    except DatasetError as error:
        raise DatasetError(
            f"{shown(folder)} holds no image and is no data set of a known layout; "
            "give a folder with one label map per case"
        ) from error
    labelled = [(case.name, case.label, case.split) for case in dataset.cases if case.label is not None]
    if not labelled:
        raise DatasetError(f"{shown(folder)} has {len(dataset.cases)} cases and no label; give a data set with labels")
    unseen = [entry for entry in labelled if entry[2] == "test"]
    structures = dict(dataset.regions or {})
    for name, value in dataset.labels.items() if not structures else ():
        if value not in (0, dataset.ignore_label):
            structures[name] = (value,)
    return Labels(
        files={name: label for name, label, _ in unseen or labelled},
        structures=structures,
        ignore=dataset.ignore_label,
        images={case.name: case.images for case in dataset.cases},
    )


def _with_names(files: dict[str, Path], folder: Path) -> Labels:
    """Names and values from the `dataset.json` in or above the folder (nnU-Net or Decathlon), if there is one."""
    names = label_values(description_near(folder), folder / DESCRIPTION)
    ignore = names.pop("ignore", (None,))[0]  # nnU-Net's word for voxels that nobody labelled
    return Labels(files=files, structures={n: v for n, v in names.items() if 0 not in v}, ignore=ignore)


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
        if not name or not equals or not all(_is_label_value(number) for number in numbers):
            known = ", ".join(NAMED_REGIONS)
            raise ConfigError(
                f"region {shown(text)!r} is not NAME=VALUE,… with values from 1 to 65535, nor one of {known}; "
                "write WT=1,2,4"
            )
        if name in regions:
            raise ConfigError(f"region {shown(name)!r} is given twice; give each region one name")
        regions[name] = tuple(sorted({int(number) for number in numbers}))
    return regions


def _is_label_value(text: str) -> bool:
    return text.isdecimal() and len(text) <= 5 and 0 < int(text) < 1 << 16


def named(structures: Regions, values: Iterable[int], known: Regions) -> Regions:
    """The structures, and every value that is in none of them under the name that `known` has for it, or a number."""
    covered = {value for members in structures.values() for value in members}
    names = {members[0]: name for name, members in known.items() if len(members) == 1 and name not in structures}
    rest = {names.get(value, f"label {value}"): (value,) for value in sorted(set(values) - covered)}
    return {**structures, **rest}


def find_images(folder: Path) -> dict[str, dict[str, Path]]:
    """Case → modality → file, for the pictures: `case_0000.nii.gz` (nnU-Net), `case_ct.nii.gz`, or `case.nii.gz`.

    The modality is the last part of the name, or what `dataset.json` calls the channel.
    """
    modalities = channel_names(description_near(folder), folder / DESCRIPTION)
    found: dict[str, dict[str, Path]] = {}
    for name, path in list_cases(folder).items():
        found.setdefault(name, {})[modalities.get(0, "image")] = path
        if numbered := split_channel(name):
            case, channel = numbered
            found.setdefault(case, {})[modalities.get(channel, f"channel {channel}")] = path
        elif "_" in name.strip("_"):
            case, _, modality = name.rpartition("_")
            found.setdefault(case, {})[modality.lower()] = path
    return found
