"""What is to be segmented: labels of a data set merged into one, its overlapping regions taken, left or given anew.

--merge tumour=GTVp,GTVn     two labels become one; files keep their values, and are translated on reading
--regions none               a soft-max over the labels, though the data set has regions
--regions WT=1,2,4 TC=1,4    overlapping targets, one sigmoid each, by values or names of labels
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from veloxseg.dataset.dataset import Dataset
from veloxseg.errors import ConfigError, did_you_mean, shown
from veloxseg.image.volume import Volume

__all__ = ["Merged", "as_in_files", "choose_regions", "merge_labels", "merge_values", "named_lists", "source_labels"]

Merged = Mapping[str, Mapping[str, int]]  # the new label → the labels that it holds, with their values in files


def named_lists(texts: Sequence[str], option: str) -> dict[str, tuple[str, ...]]:
    """`["tumour=GTVp,GTVn"]` as {"tumour": ("GTVp", "GTVn")}."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        parts = tuple(part.strip() for part in rest.split(",") if part.strip())
        if not equals or not name.strip() or not parts or name.strip() in found:
            raise ConfigError(
                f"{option} {shown(text)!r} is not NAME=A,B with a name of its own; write tumour=GTVp,GTVn"
            )
        found[name.strip()] = parts
    return found


def merge_labels(dataset: Dataset, merges: Mapping[str, Sequence[str]]) -> Dataset:
    """The data set with some labels as one, which has the lowest of their values."""
    if merges and dataset.regions is not None:
        raise ConfigError(
            f"{dataset.name} has the regions {', '.join(dataset.regions)}, whose labels cannot be merged; "
            "add --regions none, or name regions instead of merging"
        )
    labels, merged = dict(dataset.labels), {}
    for name, parts in merges.items():
        for part in parts:
            if part not in labels or labels[part] in (0, dataset.ignore_label):
                known = [label for label, value in labels.items() if value not in (0, dataset.ignore_label)]
                raise ConfigError(
                    f"--merge {shown(name)}: no label {shown(part)!r} is left to merge{did_you_mean(part, known)}; "
                    f"the data set has {', '.join(known)}, each for one use"
                )
        merged[name] = {part: labels.pop(part) for part in dict.fromkeys(parts)}
        if name in labels:
            raise ConfigError(f"--merge {shown(name)}: another label has this name; choose a new one")
        labels[name] = min(merged[name].values())
    ordered = dict(sorted(labels.items(), key=lambda entry: entry[1]))
    return replace(dataset, labels=ordered, merged=merged)


def choose_regions(dataset: Dataset, wanted: Sequence[str]) -> Dataset:
    """The data set with its own regions (`given`), with `none`, or with those that are listed."""
    if list(wanted) == ["given"]:
        return dataset
    if list(wanted) == ["none"]:
        return replace(dataset, regions=None)
    regions = {}
    for name, parts in named_lists(wanted, "--regions").items():
        values = [int(part) if part.isdecimal() and len(part) < 6 else dataset.labels.get(part) for part in parts]
        for part, value in zip(parts, values, strict=True):
            if value not in dataset.labels.values() or value in (0, dataset.ignore_label):
                listed = ", ".join(f"{label} {number}" for label, number in dataset.labels.items() if number)
                raise ConfigError(f"--regions {shown(name)}: no label {shown(part)!r}; the data set has {listed}")
        regions[name] = tuple(value for value in values if value is not None)
    return replace(dataset, regions=regions)


def source_labels(labels: Mapping[str, int], merged: Merged) -> dict[str, int]:
    """The labels as files have them: merged ones are their parts again."""
    whole = {name: value for name, value in labels.items() if name not in merged}
    return whole | {part: value for parts in merged.values() for part, value in parts.items()}


def as_in_files(dataset: Dataset) -> Dataset:
    """The data set by the labels of its files; what was merged is a region of them, and is scored as one."""
    if not dataset.merged:
        return dataset
    found = {name: value for name, value in dataset.labels.items() if value not in (0, dataset.ignore_label)}
    regions = {name: tuple(dataset.merged.get(name, {name: value}).values()) for name, value in found.items()}
    return replace(dataset, labels=source_labels(dataset.labels, dataset.merged), regions=regions, merged={})


def merge_values(label: Volume, labels: Mapping[str, int], merged: Merged) -> Volume:
    """A label map whose merged labels have the one value that stands for them."""
    array = label.array
    for name, parts in merged.items():
        for value in parts.values():
            if value != labels[name] and (found := label.array == value).any():
                array = array.copy() if array is label.array else array
                array[found] = labels[name]
    return label if array is label.array else replace(label, array=array)
