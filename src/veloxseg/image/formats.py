"""Every file format in one table: how its files are called and recognised, what reads it, what writes it.

Whatever depends on a format asks this table: reading, writing, `predict --format`, the listing of a folder's cases.
To add one-file formats, write a module with two functions and add one entry here:

    read_header(path: Path, max_voxels: int) -> Header     # where the voxels lie; reading them is the same for all
    write(volume: Volume, path: Path) -> None              # if it can be written

Functions are named "module:function" and imported when they are called, because the command line reads this table
to print its help, which must not wait for numpy.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veloxseg.errors import DatasetError, shown

if TYPE_CHECKING:
    from veloxseg.image.volume import Volume

__all__ = [
    "FORMATS",
    "Format",
    "function",
    "images_by_case",
    "is_image_name",
    "is_output_name",
    "output_choices",
    "output_suffix",
    "recognised",
    "without_suffix",
    "writable_suffixes",
    "writer_of",
]

FIRST_BYTES = 512  # what `recognised` needs of a file


@dataclass(frozen=True, kw_only=True)
class Format:
    """One file format."""

    suffixes: tuple[str, ...]  # of the file that stands for the image; `.img` and `.raw` only go with another
    header: str  # reads and checks the header: (path, max_voxels) -> Header; of series (path, series, max_voxels)
    marks: tuple[tuple[int, bytes], ...] = ()  # (place, bytes): any of them tells the format, whatever the name is
    writes: tuple[str, ...] = ()  # suffixes that can be written, the usual one first
    writer: str = ""  # (volume, path) -> None; empty where writing needs more than a volume
    option: str = ""  # what `predict --format` calls it, if not by the format's own name
    # a format of series keeps an image in many files, and images and labels in kinds of their own
    image: str = ""  # reads the image: (path, series, volume, max_voxels) -> Volume
    label: str = ""  # reads a label map: (path, reference, rois) -> Volume

    @property
    def is_series(self) -> bool:
        """Whether an image is a folder of files, so that one file says nothing of a case."""
        return bool(self.image)


# name, which is `Volume.file_type` -> format
FORMATS = {
    "nifti": Format(
        suffixes=(".nii.gz", ".nii", ".hdr", ".hdr.gz"),
        header="veloxseg.image.nifti:read_nifti_header",
        writes=(".nii.gz", ".nii"),
        writer="veloxseg.image.nifti:write_nifti",
    ),
    "nrrd": Format(
        suffixes=(".nrrd", ".seg.nrrd", ".nhdr"),
        header="veloxseg.image.nrrd:read_nrrd_header",
        marks=((0, b"NRRD000"),),
        writes=(".nrrd",),
        writer="veloxseg.image.nrrd:write_nrrd",
    ),
    "meta": Format(
        suffixes=(".mha", ".mhd"),
        header="veloxseg.image.metaimage:read_meta_header",
        marks=((0, b"ObjectType"), (0, b"NDims")),
        writes=(".mha",),
        writer="veloxseg.image.metaimage:write_meta",
        option="mha",
    ),
    "dicom": Format(
        suffixes=(".dcm",),
        header="veloxseg.image.dicom.series:read_dicom_header",
        marks=((128, b"DICM"),),
        writes=(".dcm",),  # a DICOM SEG, which refers to the slices of its series: see `write_dicom_seg`
        option="dicom-seg",
        image="veloxseg.image.dicom.series:read_dicom",
        label="veloxseg.image.reader:read_dicom_label",
    ),
}
FALLBACK = "nifti"  # what nothing else claims: a compressed NIfTI has no mark, and its name may have no suffix


def function(name: str) -> Callable[..., Any]:
    """The function that an entry of the table names as "module:function"."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def recognised(name: str, start: bytes) -> str:
    """The format of a file by its first bytes, or else by its name."""
    for key, form in FORMATS.items():
        if any(start[at : at + len(mark)] == mark for at, mark in form.marks):
            return key
    return next((key for key, form in FORMATS.items() if name.lower().endswith(form.suffixes)), FALLBACK)


def without_suffix(name: str) -> str:
    """A file's name without the suffix of an image.

    >>> without_suffix("STS_001.nii.gz")
    'STS_001'
    """
    every = sorted((suffix for form in FORMATS.values() for suffix in form.suffixes), key=len, reverse=True)
    ends = [suffix for suffix in every if name.lower().endswith(suffix) and len(name) > len(suffix)]
    return name[: -len(ends[0])] if ends else name


def is_image_name(name: str) -> bool:
    """Whether a file of this name can be an image by itself; a DICOM file may be one slice of many."""
    suffixes = tuple(suffix for form in FORMATS.values() if not form.is_series for suffix in form.suffixes)
    return name.lower().endswith(suffixes) and without_suffix(name) != name and not name.startswith(".")


def images_by_case(folder: Path) -> dict[str, Path]:
    """The image files of a folder by their names without suffix, in the order of these names.

    The same case as `.nii` and as `.nii.gz` is refused, because nobody can tell which of both is meant.
    """
    cases: dict[str, Path] = {}
    for path in sorted(path for path in folder.iterdir() if is_image_name(path.name)):
        name = without_suffix(path.name)
        if name in cases:
            raise DatasetError(
                f"case {shown(name)!r} is in {shown(folder)} twice ({shown(cases[name].name)}, {shown(path.name)}); "
                "remove one of them"
            )
        cases[name] = path
    return cases


def output_choices() -> dict[str, str]:
    """What `predict --format` offers, and the suffix that each writes."""
    return {form.option or name: form.writes[0] for name, form in FORMATS.items() if form.writes}


def is_output_name(name: str) -> bool:
    """Whether a path of this name is a file to write, and not a folder."""
    return name.lower().endswith(tuple(suffix for form in FORMATS.values() for suffix in form.writes))


def output_suffix(volume: "Volume") -> str:
    """The suffix that keeps the format of a volume's source; DICOM gives `.dcm`, a DICOM SEG."""
    writes = FORMATS[volume.file_type].writes
    kept = volume.header.get("suffix")
    return kept if kept in writes else (writes or FORMATS[FALLBACK].writes)[0]


def writable_suffixes() -> list[str]:
    """The suffixes that `write` takes, in the order of the table."""
    return [suffix for form in FORMATS.values() if form.writer for suffix in form.writes]


def writer_of(name: str) -> str | None:
    """The writer for a file of this name; None if no format has one."""
    found = (form.writer for form in FORMATS.values() if form.writer and name.lower().endswith(form.writes))
    return next(found, None)
