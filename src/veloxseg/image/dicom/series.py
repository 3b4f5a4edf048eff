"""DICOM image series: a folder (or one enhanced file) becomes a `Volume`.

CT in Hounsfield units, MR as stored, PET in SUV by body weight. A folder may hold several series; then
`series` picks one, by its modality, number or UID. Messages name series by modality, number and size only:
nothing of the patient leaves the file.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.errors import ImageError, shown
from veloxseg.image.dicom.file import is_dicom, open_dicom, parsing
from veloxseg.image.dicom.frames import UNEVEN, Frame, Stack, frames_of, stack_frames
from veloxseg.image.dicom.hounsfield import check_hounsfield
from veloxseg.image.dicom.pixels import read_pixels
from veloxseg.image.dicom.suv import PET_TAGS, check_suv, suv_scale
from veloxseg.image.dicom.tags import number_or_none, one_value
from veloxseg.image.stream import Header
from veloxseg.image.validate import MAX_VOXELS, about, check_image_values, pick_volume
from veloxseg.image.volume import Volume
from veloxseg.types import Floats

__all__ = [
    "Series",
    "files_in",
    "find_series",
    "pick_series",
    "read_dicom",
    "read_dicom_header",
    "read_series",
    "stack_of",
    "volumes_in",
]

MOST_FILES = 20_000  # a folder with more is an archive, or the root of a disk
NOT_IMAGES = {"SEG", "RTSTRUCT", "RTDOSE", "RTPLAN", "RTRECORD", "SR", "PR", "KO", "REG", "FID", "RWV", "DOC"}
TAGS: tuple[str | int, ...] = (
    "SOPClassUID",
    "SOPInstanceUID",
    "Modality",
    "SeriesInstanceUID",
    "SeriesNumber",
    "InstanceNumber",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "NumberOfFrames",
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "ImagePositionPatient",
    "ImageOrientationPatient",
    "PixelSpacing",
    "RescaleSlope",
    "RescaleIntercept",
    "RescaleType",
    "ModalityLUTSequence",
    "FrameOfReferenceUID",
    "SpacingBetweenSlices",
    "NumberOfSlices",
    "SharedFunctionalGroupsSequence",
    "PerFrameFunctionalGroupsSequence",
    *PET_TAGS,
)
# what a slice of each kind is filed as (its SOP class); the modality decides about the units of the voxels
FILED_AS = {
    "1.2.840.10008.5.1.4.1.1.2": "CT",
    "1.2.840.10008.5.1.4.1.1.2.1": "CT",
    "1.2.840.10008.5.1.4.1.1.2.2": "CT",
    "1.2.840.10008.5.1.4.1.1.4": "MR",
    "1.2.840.10008.5.1.4.1.1.4.1": "MR",
    "1.2.840.10008.5.1.4.1.1.4.4": "MR",
    "1.2.840.10008.5.1.4.1.1.128": "PT",
    "1.2.840.10008.5.1.4.1.1.128.1": "PT",
    "1.2.840.10008.5.1.4.1.1.130": "PT",
}
ONE_VALUE = ("Modality", "SOPClassUID", "FrameOfReferenceUID", "BitsAllocated", "PixelRepresentation", "RescaleType")


@dataclass(frozen=True, kw_only=True)
class Series:
    """The parsed files of one series, without pixels."""

    uid: str
    number: str
    modality: str
    files: tuple[Path, ...]
    datasets: tuple[Any, ...]

    def known_as(self) -> tuple[str, str, str]:
        """What a user may call it, in upper case."""
        return self.uid.upper(), self.number, self.modality.upper()

    def __str__(self) -> str:
        return f"{shown(self.modality, 16)} number {shown(self.number, 16) or '?'} ({len(self.files)} files)"


def files_in(paths: Iterable[Path]) -> list[Path]:
    """The DICOM files among `paths`, sorted by name."""
    plain = (path for path in paths if path.is_file() and path.name.upper() != "DICOMDIR")
    files = list(itertools.islice(plain, MOST_FILES + 1))
    if len(files) > MOST_FILES:
        raise ImageError(f"more than {MOST_FILES} files; give the folder of one series")
    return [p for p in sorted(files) if is_dicom(p)]


def find_series(path: Path) -> list[Series]:
    """The image series of a folder (of its subfolders, where it has no files itself), or of one file."""
    if path.is_dir():
        files = files_in(path.iterdir()) or files_in(path.rglob("*"))
    else:
        files = [path]
    found: dict[str, list[tuple[Path, Any]]] = defaultdict(list)
    for file in files:
        with parsing(file.name):
            dataset = open_dicom(file, TAGS)
            uid = str(dataset.get("SeriesInstanceUID") or "")
            if uid or is_image(dataset):
                found[uid].append((file, dataset))
    return [
        Series(
            uid=uid,
            number=str(members[0][1].get("SeriesNumber") or ""),
            modality=str(members[0][1].get("Modality") or ""),
            files=tuple(file for file, _ in members),
            datasets=tuple(dataset for _, dataset in members),
        )
        for uid, members in found.items()
        if any(is_image(dataset) for _, dataset in members)  # one slice that says otherwise is found out later
    ]


def is_image(dataset: Any) -> bool:
    """Whether a file says that it holds a slice of a scan."""
    return "Rows" in dataset and str(dataset.get("Modality")) not in NOT_IMAGES


def pick_series(path: Path, wanted: str | None) -> Series:
    """The one series that `wanted` names, or the only one that there is."""
    every = find_series(path)
    if not every:
        raise ImageError("no DICOM images here; expected a folder with the files of a series, .nii.gz, .nrrd or .mha")
    chosen = [s for s in every if wanted is None or wanted.upper() in s.known_as()]
    if len(chosen) == 1:
        return chosen[0]
    listed = ", ".join(map(str, every[:8])) + (", …" if len(every) > 8 else "")
    found = f"{len(chosen)} series " + ("in one folder" if wanted is None else f"match {shown(wanted)!r}")
    raise ImageError(
        f"{found}: {listed}; pick one with --series NAME=… (series=… in Python), by modality, number or UID"
    )


def stack_of(path: Path, series: Series, max_voxels: int) -> Stack:
    """The frames of a series in order, after all checks that need no pixels."""
    frames = []
    for file, dataset in zip(series.files, series.datasets, strict=True):
        with about(Path(file.name)):
            frames += frames_of(dataset, file)
    check_one_kind(series)
    uids = [str(dataset.get("SOPInstanceUID") or "") for dataset in series.datasets]
    named = [uid for uid in uids if uid]  # some tools empty them all
    if copies := len(named) - len(set(named)):
        raise ImageError(f"{copies} files are copies of others here (same SOP Instance UID); remove them")
    if len(frames) == 1 and path.is_file():
        raise ImageError("one slice of a DICOM series, expected a volume; give the folder of the series")
    stack = stack_frames(frames, max_voxels)
    return replace(stack, warnings=(*stack.warnings, *missing_slices(series, stack)))


def check_one_kind(series: Series) -> None:
    """All slices state the same kind of image, and it is what they are filed as."""
    for keyword in ONE_VALUE:
        one_value(series.datasets, keyword)
    filed = str(series.datasets[0].get("SOPClassUID") or "")
    if FILED_AS.get(filed, series.modality) != series.modality:
        raise ImageError(
            f"modality {shown(series.modality, 16)}, but the images are filed as {FILED_AS[filed]} (SOP Class UID); "
            "export the series again"
        )


def missing_slices(series: Series, stack: Stack) -> list[str]:
    """Warnings where the tags tell of slices that a regular stack does not show as missing."""
    first, warnings = series.datasets[0], []
    gap, stated = stack.geometry.spacing[2], number_or_none(first, "SpacingBetweenSlices")
    if stated and abs(abs(stated) - gap) > UNEVEN * gap:
        warnings.append(f"the slices lie {gap:.4g} mm apart, their tags say {abs(stated):.4g} mm; are slices missing?")
    expected = number_or_none(first, "NumberOfSlices") if series.modality == "PT" else None
    if expected and expected != stack.geometry.shape[2]:
        warnings.append(f"{stack.geometry.shape[2]} slices, their tags say {expected:.0f}; are slices missing?")
    return warnings


def read_dicom_header(path: Path, series: str | None, max_voxels: int) -> Header:
    """The grid of a series, after all checks that need no pixels."""
    with parsing():
        picked = pick_series(path, series)
        stack = stack_of(path, picked, max_voxels)
        first = picked.datasets[0]
        sign = "i" if first.PixelRepresentation else "u"
        return Header(
            shape=stack.geometry.shape,
            affine=stack.geometry.affine,
            dtype=np.dtype(f"{sign}{first.BitsAllocated // 8}"),
            file_type="dicom",
            volumes=len(stack.volumes),
            keep=kept(picked),
            warnings=stack.warnings,
        )


def kept(series: Series) -> dict[str, Any]:
    """What a volume remembers of its series."""
    return {"modality": series.modality, "series": series.uid}


def read_dicom(path: Path, series: str | None, volume: int | None, max_voxels: int) -> Volume:
    """Reads a series as float32: Hounsfield units, SUV, or what the MR scanner stored."""
    with parsing():
        picked = pick_series(path, series)
    return read_series(path, picked, volume, max_voxels)


def read_series(path: Path, picked: Series, volume: int | None, max_voxels: int = MAX_VOXELS) -> Volume:
    """A series that was found in `path`; `volume` is one of several that it holds."""
    with parsing():
        stack = stack_of(path, picked, max_voxels)
        frames = stack.volumes[pick_volume(len(stack.volumes), volume)]
        array, keep = read_pixels(frames), kept(picked)
        warnings = list(stack.warnings)
        if picked.modality == "CT":
            warnings += check_hounsfield(picked.datasets, frames, array)
        if picked.modality == "PT":
            warnings += convert_to_suv(array, picked, frames, stack.geometry.voxel_ml, keep)
    check_image_values(array)
    return Volume(
        array=array, geometry=stack.geometry, source=path, file_type="dicom", header=keep, warnings=tuple(warnings)
    )


def volumes_in(path: Path, series: Series) -> list[int]:
    """The numbers of the volumes that a series holds: most hold one, a dynamic scan several."""
    with parsing():
        return list(range(len(stack_of(path, series, MAX_VOXELS).volumes)))


def convert_to_suv(
    array: Floats, series: Series, frames: Sequence[Frame], voxel_ml: float, keep: dict[str, Any]
) -> list[str]:
    """Converts in place, keeps the factor, and returns warnings."""
    if any(frame.rescale is None or frame.rescale[1] != 0 for frame in frames):
        raise ImageError("PET without RescaleSlope, or with a RescaleIntercept that is not 0; export the series again")
    scale = suv_scale(series.datasets)
    array *= np.float32(scale.factor)
    keep["suv_factor"] = scale.factor
    return [*scale.warnings, *check_suv(array, voxel_ml, scale.weight)]
