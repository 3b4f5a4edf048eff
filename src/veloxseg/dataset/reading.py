"""A case's scans and label as volumes."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from veloxseg.dataset.dataset import Case
from veloxseg.dataset.targets import Merged, merge_values, source_labels
from veloxseg.errors import DatasetError, GeometryError, ImageError
from veloxseg.image import Volume, grid_difference, read, read_label
from veloxseg.image.formats import is_image_name
from veloxseg.image.reader import label_drawn_on
from veloxseg.modality import kind_of

__all__ = ["label_grid_problem", "open_label", "read_case_images", "read_case_label", "unknown_values"]

SAME_GRID_MM = 0.1  # headers round: a tenth of a millimetre at the far corner is the same grid


def read_case_images(case: Case, modalities: tuple[str, ...]) -> dict[str, Volume]:
    """Every modality of a case; a missing one is named."""
    missing = [name for name in modalities if name not in case.images]
    if missing:
        raise DatasetError(
            f"case {case.name} lacks modality {', '.join(missing)}, found {', '.join(case.images) or 'none'}; "
            "add the file or leave the case out"
        )
    return {name: read(case.images[name], volume=case.volumes.get(name)) for name in modalities}


def read_case_label(
    case: Case, labels: dict[str, int], volumes: Mapping[str, Volume], merged: Merged = MappingProxyType({})
) -> Volume | None:
    """The label map; its values must be listed by the data set, its grid that of one of the scans."""
    if case.label is None:
        return None
    listed = source_labels(labels, merged)
    volume = open_label(case.label, listed, volumes)
    unknown = unknown_values(volume, listed)
    if unknown:
        raise DatasetError(
            f"{case.label} holds label value {', '.join(map(str, unknown[:5]))}, the data set lists "
            f"{', '.join(map(str, sorted(listed.values())))}; correct the label map or the list"
        )
    if problem := label_grid_problem(volume, volumes):
        raise GeometryError(f"{case.label}: {problem}; resample the label to its image with nearest neighbour")
    return merge_values(volume, labels, merged)


def open_label(path: Path, labels: Mapping[str, int], volumes: Mapping[str, Volume]) -> Volume:
    """A label map; DICOM contours and segmentations need the scan they were drawn on, CT where they name none."""
    if not path.is_dir() and is_image_name(path.name):
        return read_label(path)
    drawn = label_drawn_on(path)

    def unlikely(name: str) -> tuple[bool, bool, bool]:
        volume = volumes[name]
        return volume.header.get("series") not in drawn, volume.file_type != "dicom", kind_of(name) != "ct"

    scans = sorted(volumes, key=unlikely)
    reference = volumes[scans[0]] if scans else None
    names = tuple(sorted((name for name, value in labels.items() if value), key=labels.__getitem__))
    if len(names) == 1:
        try:
            return read_label(path, reference=reference)  # a sole region may be called anything
        except ImageError:
            pass
    return read_label(path, reference=reference, rois=names)


def unknown_values(label: Volume, labels: Mapping[str, int]) -> list[int]:
    """Values of the label map that the data set does not list."""
    listed = np.zeros(np.iinfo(label.array.dtype).max + 1, bool)
    listed[[value for value in labels.values() if value < len(listed)]] = True
    if label.array.max(initial=0) < listed.argmin() or listed[label.array].all():  # far faster than sorting
        return []
    return sorted(set(np.unique(label.array).tolist()) - set(labels.values()))


def label_grid_problem(label: Volume, volumes: Mapping[str, Volume]) -> str | None:
    """How the label's grid differs from the closest scan's; None if it is the grid of one of them."""
    if any(volume.geometry.same_grid(label.geometry, SAME_GRID_MM) for volume in volumes.values()):
        return None
    closest = min(volumes, key=lambda name: volumes[name].geometry.distance(label.geometry))
    return f"label and {closest} lie on different grids: {grid_difference(volumes[closest].geometry, label.geometry)}"
