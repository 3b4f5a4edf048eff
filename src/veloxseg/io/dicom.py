"""DICOM image series: a folder (or one enhanced file) becomes a `Volume`.

CT in Hounsfield units, MR as stored, PET in SUV by body weight. A folder may hold several series; then
`series` picks one, by its modality, number or UID. Messages name series by modality, number and size only:
nothing of the patient leaves the file.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.errors import ImageError
from veloxseg.io.checks import check_image_values, pick_volume, shown
from veloxseg.io.dicomfile import is_dicom, open_dicom, parsing
from veloxseg.io.dicomframes import Stack, frames_of, stack_frames
from veloxseg.io.dicompixels import read_pixels
from veloxseg.io.header import Header
from veloxseg.io.suv import PET_TAGS, suv_factor
from veloxseg.io.volume import Volume

__all__ = ["Series", "find_series", "pick_series", "read_dicom", "read_dicom_header", "stack_of"]

MOST_FILES = 20_000  # a folder with more is an archive, or the root of a disk
NOT_IMAGES = {"SEG", "RTSTRUCT", "RTDOSE", "RTPLAN", "RTRECORD", "SR", "PR", "KO", "REG", "FID", "RWV", "DOC"}
TAGS = (
    "SOPClassUID",
    "SOPInstanceUID",
    "Modality",
    "SeriesInstanceUID",
    "SeriesNumber",
    "InstanceNumber",
    "Rows",
    "Columns",
    "BitsAllocated",
    "NumberOfFrames",
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "ImagePositionPatient",
    "ImageOrientationPatient",
    "PixelSpacing",
    "RescaleSlope",
    "RescaleIntercept",
    "SharedFunctionalGroupsSequence",
    "PerFrameFunctionalGroupsSequence",
    *PET_TAGS,
)


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
            if "Rows" in dataset and str(dataset.get("Modality")) not in NOT_IMAGES:
                found[str(dataset.get("SeriesInstanceUID") or "")].append((file, dataset))
    return [
        Series(
            uid=uid,
            number=str(members[0][1].get("SeriesNumber") or ""),
            modality=str(members[0][1].get("Modality") or ""),
            files=tuple(file for file, _ in members),
            datasets=tuple(dataset for _, dataset in members),
        )
        for uid, members in found.items()
    ]


def pick_series(path: Path, wanted: str | None) -> Series:
    every = find_series(path)
    if not every:
        raise ImageError(
            "no DICOM images here; expected a folder with the files of a series, .nii.gz, .nrrd or .mha"
        )
    chosen = [s for s in every if wanted is None or wanted.upper() in s.known_as()]
    if len(chosen) == 1:
        return chosen[0]
    listed = ", ".join(map(str, every[:8])) + (", …" if len(every) > 8 else "")
    found = f"{len(chosen)} series " + ("in one folder" if wanted is None else f"match {shown(wanted)!r}")
    raise ImageError(
        f"{found}: {listed}; pick one with --series NAME=… (series=… in Python), by modality, number or UID"
    )


def stack_of(path: Path, series: Series, max_voxels: int) -> Stack:
    pairs = zip(series.files, series.datasets, strict=True)
    frames = [frame for file, dataset in pairs for frame in frames_of(dataset, file)]
    uids = [str(dataset.get("SOPInstanceUID") or "") for dataset in series.datasets]
    named = [uid for uid in uids if uid]  # some tools empty them all
    if copies := len(named) - len(set(named)):
        raise ImageError(f"{copies} files are copies of others here (same SOP Instance UID); remove them")
    if len(frames) == 1 and path.is_file():
        raise ImageError("one slice of a DICOM series, expected a volume; give the folder of the series")
    return stack_frames(frames, max_voxels)


def read_dicom_header(path: Path, series: str | None, max_voxels: int) -> Header:
    """The grid of a series, after all checks that need no pixels."""
    with parsing():
        picked = pick_series(path, series)
        stack = stack_of(path, picked, max_voxels)
        first = picked.datasets[0]
        return Header(
            shape=stack.geometry.shape,
            affine=stack.geometry.affine,
            dtype=np.dtype(f"i{max(1, int(first.get('BitsAllocated') or 16) // 8)}"),
            file_type="dicom",
            volumes=len(stack.volumes),
            keep={"modality": picked.modality, "series": picked.uid},
        )


def read_dicom(path: Path, series: str | None, volume: int | None, max_voxels: int) -> Volume:
    """Reads a series as float32: Hounsfield units, SUV, or what the MR scanner stored."""
    with parsing():
        picked = pick_series(path, series)
        stack = stack_of(path, picked, max_voxels)
        frames = stack.volumes[pick_volume(len(stack.volumes), volume)]
        array = read_pixels(frames)
        keep: dict[str, Any] = {"modality": picked.modality, "series": picked.uid}
        if picked.modality == "PT":
            factor = suv_factor(picked.datasets)
            array *= np.float32(factor)
            keep["suv_factor"] = factor
    check_image_values(array)
    return Volume(array=array, geometry=stack.geometry, source=path, file_type="dicom", header=keep)
