"""Which files belong together, and what their values mean.

A case is known by its file's name without the ending. A structure is a name and the label values that are scored
together under it; the names come from the user, the data set, its `dataset.json`, or the JSON beside a prediction.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from veloxseg.console import say
from veloxseg.dataset.cases import Selection, part_words, taken
from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.layouts import layout_of, open_dataset
from veloxseg.dataset.naming import DESCRIPTION, channel_names, description_near, label_values, split_channel
from veloxseg.errors import ConfigError, DatasetError, shown, some
from veloxseg.image.formats import images_by_case, without_suffix

__all__ = [
    "NAMED_REGIONS",
    "UNSCORED",
    "Files",
    "Labels",
    "Regions",
    "find_images",
    "list_cases",
    "named",
    "open_labels",
    "parse_regions",
    "with_merged",
]

Files = Mapping[str, Path]  # by case
Regions = Mapping[str, tuple[int, ...]]

UNSCORED = "unscored"  # --regions … unscored=3: value 3 belongs to no region, and that is meant so
NAMED_REGIONS: dict[str, Regions] = {
    "brats": {"WT": (1, 2, 4), "TC": (1, 4), "ET": (4,)},  # up to 2021: 1 necrosis, 2 oedema, 4 enhancing
    "brats2016": {"WT": (1, 2, 3, 4), "TC": (1, 3, 4), "ET": (4,)},  # and before: 3 the core that does not enhance
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
    overlapping: bool = False  # whether the structures are regions, which must hold every value
    labels: dict[str, int] = field(default_factory=dict)  # what the data set calls its values
    cases: dict[str, Case] = field(default_factory=dict)  # of a data set: what a DICOM label is read by
    left_out: frozenset[str] = frozenset()  # cases of the data set that were not asked for
    images: dict[str, dict[str, Path]] = field(default_factory=dict)  # case -> modality -> file


def list_cases(folder: Path) -> dict[str, Path]:
    """The label maps of a folder by case, in the order of their names; a DICOM SEG is one too."""
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "does not exist"
        raise DatasetError(f"{shown(folder)} {found}; give a folder with one image per case")
    segmentations = {without_suffix(path.name): path for path in sorted(folder.glob("*.dcm"))}
    return segmentations | images_by_case(folder)


def open_labels(path: Path, selection: Selection = Selection()) -> Labels:  # noqa: B008 - frozen
    """A folder of label maps, or whatever else names cases (dataset/cases.py).

    Unless the selection says otherwise, of a data set with test cases that have labels, those; else all with labels.
    """
    if selection.layout == "auto" and layout_of(path) in ("folder", None):
        return _label_maps(path, selection)
    dataset = open_dataset(path, selection.layout)
    labelled = _labelled(dataset, path, selection)
    structures = dict(dataset.regions or {})
    for name, value in dataset.labels.items() if not structures else ():
        if value not in (0, dataset.ignore_label):
            structures[name] = (value,)
    return Labels(
        files={case.name: case.label for case in labelled if case.label is not None},
        structures=structures,
        overlapping=dataset.regions is not None,
        ignore=dataset.ignore_label,
        images={case.name: case.images for case in labelled},
        cases={case.name: case for case in labelled},
        labels=dataset.labels,
        left_out=frozenset(case.name for case in dataset.cases) - {case.name for case in labelled},
    )


def _labelled(dataset: Dataset, path: Path, selection: Selection) -> tuple[Case, ...]:
    """The labelled cases that are meant; what is taken is said."""
    labelled = tuple(case for case in dataset.cases if case.label is not None)
    if not labelled:
        raise DatasetError(f"{shown(path)} has {len(dataset.cases)} cases and no label; give a data set with labels")
    test_is_labelled = any(case.split == "test" for case in labelled)
    if test_is_labelled and selection.split is None and not selection.names:
        selection = replace(selection, split="test")
    if selection.split == "test" and not test_is_labelled and any(case.split == "test" for case in dataset.cases):
        raise DatasetError(
            f"the test cases of {shown(path)} have no labels, only {part_words(labelled)} have; choose another --split"
        )
    chosen = taken(replace(dataset, cases=labelled), selection).cases
    which = f" ({selection.split})" if selection.split else ""
    has = part_words(dataset.cases)
    say(f"{len(chosen)} of {len(dataset.cases)} cases are scored{which}: {shown(path)} has {has}")
    return chosen


def _label_maps(folder: Path, selection: Selection) -> Labels:
    if selection.split is not None:
        raise ConfigError(f"{shown(folder)} is a folder of label maps, which has no splits; leave --split out")
    files = list_cases(folder)
    if not files:
        raise DatasetError(
            f"{shown(folder)} holds no image and is no data set of a known layout; "
            "give a folder with one label map per case"
        )
    if unknown := [name for name in selection.names if name not in files]:
        raise DatasetError(f"{shown(folder)} has no case {shown(unknown[0])!r}; it has {some(tuple(files))}")
    chosen = {name: files[name] for name in selection.names or files}
    return replace(_with_names(chosen, folder), left_out=frozenset(files) - chosen.keys())


def _with_names(files: dict[str, Path], folder: Path) -> Labels:
    """Names and values from the `dataset.json` in or above the folder (nnU-Net or Decathlon), if there is one."""
    names = label_values(description_near(folder), folder / DESCRIPTION)
    ignore = names.pop("ignore", (None,))[0]  # nnU-Net's word for voxels that nobody labelled
    structures = {name: values for name, values in names.items() if 0 not in values}
    labels = {name: values[0] for name, values in structures.items() if len(values) == 1}
    overlapping = len(labels) < len(structures)
    return Labels(files=files, structures=structures, ignore=ignore, labels=labels, overlapping=overlapping)


def with_merged(truth: Labels, merges: Mapping[str, tuple[str, ...]]) -> Labels:
    """The truth whose labels are scored together where a model was taught them as one."""
    structures = dict(truth.structures)
    for name, parts in merges.items():
        if parts and name not in structures and all(truth.structures.get(p) == (truth.labels.get(p),) for p in parts):
            structures = {other: values for other, values in structures.items() if other not in parts}
            structures[name] = tuple(truth.labels[part] for part in parts)
    if structures == truth.structures:
        return truth
    words = ", ".join(f"{name} = {','.join(map(str, values))}" for name, values in structures.items())
    say(f"scored as the model was trained: {shown(words)}")
    return replace(truth, structures=structures, overlapping=True)


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
