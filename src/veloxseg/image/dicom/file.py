"""Opening one DICOM file with pydicom: bounded in memory, quiet, and with one kind of error."""

import contextlib
import logging
import mmap
import warnings as python_warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from veloxseg.errors import ImageError, VeloxSegError, shown
from veloxseg.image.itk import ONE_THREAD

__all__ = ["is_dicom", "open_dicom", "parsing", "quiet"]

DEFLATED = b"1.2.840.10008.1.2.1.99"  # pydicom would inflate such a file without a limit


def is_dicom(path: Path) -> bool:
    """Whether a file starts as DICOM does: with the preamble, or straight with a group 2 or 8 element."""
    with open(path, "rb") as file:
        start = file.read(132)
    return start[128:] == b"DICM" or (start[:2] in (b"\x02\0", b"\x08\0") and start[3:4] == b"\0")


def open_dicom(path: Path, tags: Sequence[str | int] | None = None) -> Any:
    """Parses a file; with `tags`, only these.

    Through a memory map, because a read beyond the end of a map gives what there is, while a read from a file
    first takes as much memory as a damaged length field asks for.
    """
    import pydicom

    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        if DEFLATED in mapped[:1024]:
            raise ImageError(f"{shown(path.name)}: deflated DICOM is not supported; convert it with dcmconv")
        only = None if tags is None else list(tags)
        stop = only is not None and "PixelData" not in only
        return pydicom.dcmread(mapped, force=True, stop_before_pixels=stop, specific_tags=only)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences pydicom's warnings, which quote values of tags.

    The filters of warnings belong to the whole process, so one thread at a time may change them.
    """
    logger = logging.getLogger("pydicom")
    with ONE_THREAD, python_warnings.catch_warnings():
        python_warnings.simplefilter("ignore")
        before, logger.disabled = logger.disabled, True
        try:
            yield
        finally:
            logger.disabled = before


@contextlib.contextmanager
def parsing(name: str = "") -> Iterator[None]:
    """Makes one error of the many kinds that pydicom raises on damaged files, and keeps it quiet."""
    where = f"{shown(name)} is " if name else ""
    try:
        with quiet():
            yield
    except (VeloxSegError, OSError, MemoryError):
        raise
    except Exception as error:  # its text may quote the file, so only its kind is shown
        raise ImageError(f"{where}damaged DICOM ({type(error).__name__}); export it again") from error
