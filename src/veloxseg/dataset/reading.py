"""A case's scans and label as volumes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from veloxseg.dataset.dataset import Case
from veloxseg.dataset.targets import Merged, merge_values, source_labels
from veloxseg.errors import DatasetError, GeometryError, ImageError
from veloxseg.image import Geometry, Volume, grid_difference, read, read_header, read_label
from veloxseg.image.formats import is_image_name
from veloxseg.image.reader import label_drawn_on
from veloxseg.image.validate import label_array
from veloxseg.image.values import matching, renumbered
from veloxseg.modality import kind_of

__all__ = [
    "label_grid",
    "label_grid_problem",
    "open_label",
    "read_case_images",
    "read_case_label",
    "read_label_of",
    "read_scan",
    "unknown_values",
]

SAME_GRID_MM = 0.1  # headers round: a tenth of a millimetre at the far corner is the same grid


def read_case_images(case: Case, modalities: tuple[str, ...]) -> dict[str, Volume]:
    """Every modality of a case; a missing one is named."""
    missing = [name for name in modalities if name not in case.images]
    if missing:
        raise DatasetError(
            f"case {case.name} lacks modality {', '.join(missing)}, found {', '.join(case.images) or 'none'}; "
            "add the file or leave the case out"
        )
    return {name: read_scan(case, name) for name in modalities}


def read_scan(case: Case, modality: str) -> Volume:
    """One scan of a case: of a folder the series, of a 4-D file the volume that is meant."""
    return read(case.images[modality], series=case.series.get(modality), volume=case.volumes.get(modality))


def read_case_label(
    case: Case, labels: dict[str, int], volumes: Mapping[str, Volume], merged: Merged = MappingProxyType({})
) -> Volume | None:
    """The label map; its values must be listed by the data set, its grid that of one of the scans."""
    if case.label is None:
        return None
    listed = source_labels(labels, merged)
    volume = open_label(case.label, listed, volumes, case.rois)
    unknown = unknown_values(volume, listed)
    if unknown:
        raise DatasetError(
            f"{case.label} holds label value {', '.join(map(str, unknown[:5]))}, the data set lists "
            f"{', '.join(map(str, sorted(listed.values())))}; correct the label map or the list"
        )
    if problem := label_grid_problem(volume, volumes):
        raise GeometryError(f"{case.label}: {problem}; resample the label to its image with nearest neighbour")
    return merge_values(volume, labels, merged)


def open_label(
    path: Path,
    labels: Mapping[str, int],
    volumes: Mapping[str, Volume],
    rois: Mapping[str, tuple[str, ...]] | None = None,
) -> Volume:
    """A label map; DICOM contours and segmentations need the scan they were drawn on, CT where they name none.

    A region of DICOM is the label of the same name, or of the name that `rois` has for it.
    """
    if not path.is_dir() and is_image_name(path.name):
        return read_label(path)
    reference = _drawn_on(path, volumes)
    names = sorted((name for name, value in labels.items() if value), key=labels.__getitem__)
    wanted = {name: "|".join((rois or {}).get(name, (name,))) for name in names}
    if len(names) == 1 and not rois:
        try:
            return _with_values(read_label(path, reference=reference), labels, wanted)  # a sole region has any name
        except ImageError:
            pass
    return _with_values(read_label(path, reference=reference, rois=tuple(wanted.values())), labels, wanted)


def _drawn_on(path: Path, volumes: Mapping[str, Volume]) -> Volume | None:
    """The scan that DICOM contours or segments lie on."""
    drawn = label_drawn_on(path)

    def unlikely(name: str) -> tuple[bool, bool, bool]:
        volume = volumes[name]
        return volume.header.get("series") not in drawn, volume.file_type != "dicom", kind_of(name) != "ct"

    scans = sorted(volumes, key=unlikely)
    return volumes[scans[0]] if scans else None


def _with_values(volume: Volume, labels: Mapping[str, int], wanted: Mapping[str, str]) -> Volume:
    """Gives regions the values of their labels. Segments that no label names are background, if one is named."""
    if "rois" in volume.header:  # contours, numbered in the order of `wanted`
        values = {number: labels[name] for number, name in enumerate(wanted, start=1)}
    else:
        segments = {name: int(value) for value, name in volume.header.get("names", {}).items()}
        named = {segments[found]: labels[name] for name in wanted for found in matching(wanted[name], segments)}
        values = {value: named.get(value, 0) for value in segments.values()} if named else {}
    return replace(volume, array=label_array(renumbered(volume.array, values))[0]) if values else volume


def read_label_of(case: Case, labels: Mapping[str, int]) -> Volume:
    """The label of a case without the voxels of its scans."""
    assert case.label is not None
    return open_label(case.label, labels, _headers(case), case.rois)


def label_grid(case: Case) -> Geometry:
    """The grid on which a DICOM label will lie: that of its scan."""
    assert case.label is not None
    reference = _drawn_on(case.label, _headers(case))
    if reference is None:
        raise DatasetError(f"case {case.name} has a DICOM label and no scan; list the scan that it was drawn on")
    return reference.geometry


def _headers(case: Case) -> dict[str, Volume]:
    """The scans of a case as volumes without voxels."""
    nothing = np.empty((0, 0, 0), np.float32)
    found = {}
    for name, path in case.images.items():
        header = read_header(path, series=case.series.get(name))
        found[name] = Volume(array=nothing, geometry=header.grid(), file_type=header.file_type, header=header.keep)
    return found


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
