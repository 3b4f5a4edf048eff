"""Pixels of DICOM frames as float32, rescaled by each frame's own slope and intercept.

pydicom decodes uncompressed and RLE data; JPEG, JPEG-LS and JPEG 2000 go through SimpleITK's GDCM.
"""

import contextlib
import mmap
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ImageError
from veloxseg.io.checks import shown
from veloxseg.io.dicomframes import Frame
from veloxseg.io.itk import quiet_simpleitk

__all__ = ["open_dicom", "read_pixels"]

DEFLATED = b"1.2.840.10008.1.2.1.99"
# implicit, explicit little endian, explicit big endian, RLE
BY_PYDICOM = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.5")

PIXEL_TAGS = (
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "NumberOfFrames",
    "Rows",
    "Columns",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    "PixelData",
)


def open_dicom(path: Path, tags: Sequence[str] | None = None) -> Any:
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


def read_pixels(frames: Sequence[Frame]) -> npt.NDArray[np.float32]:
    """(X, Y, Z) of frames in the order given; each file is opened once for a run of its frames."""
    opened = frames[0].path
    pixels, rescaled = decode(frames[0])  # before memory is taken: the size in the header is true
    array = np.empty((*pixels.shape[:0:-1], len(frames)), np.float32, order="F")
    for z, frame in enumerate(frames):
        if frame.path != opened:
            opened = frame.path
            pixels, rescaled = decode(frame)
        array[:, :, z] = pixels[frame.index].T
        if not rescaled and (frame.slope, frame.intercept) != (1.0, 0.0):
            array[:, :, z] *= np.float32(frame.slope)
            array[:, :, z] += np.float32(frame.intercept)
    return array


def decode(frame: Frame) -> tuple[npt.NDArray[Any], bool]:
    """(frame, row, column) of a whole file, and whether slope and intercept were applied already."""
    dataset = open_dicom(frame.path, PIXEL_TAGS)
    if "PixelData" not in dataset:
        raise ImageError(f"{shown(frame.path.name)}: holds no pixels; export the series again")
    if (
        "TransferSyntaxUID" not in dataset.file_meta
    ):  # an old file without preamble: pydicom saw how it is coded
        implicit, little = dataset.original_encoding
        dataset.file_meta.TransferSyntaxUID = BY_PYDICOM[0 if implicit else 1 if little else 2]
    if str(dataset.file_meta.TransferSyntaxUID) in BY_PYDICOM:
        pixels, rescaled = dataset.pixel_array, False
    else:
        pixels, rescaled = decode_by_simpleitk(frame, dataset), True
    pixels = pixels if pixels.ndim == 3 else pixels[None]
    if pixels.shape[1:] != (frame.rows, frame.columns) or frame.index >= len(pixels):
        raise ImageError(
            f"{shown(frame.path.name)}: the pixels do not fit the size in the header; export it again"
        )
    return pixels, rescaled


def decode_by_simpleitk(frame: Frame, dataset: Any) -> npt.NDArray[Any]:
    sitk = quiet_simpleitk()
    if int(dataset.get("NumberOfFrames") or 1) > 1:
        raise ImageError(
            f"{shown(frame.path.name)}: compressed enhanced multi-frame DICOM "
            f"({shown(dataset.file_meta.TransferSyntaxUID.name)}); decompress it first, for example with gdcmconv --raw"
        )
    reader = sitk.ImageFileReader()
    reader.SetImageIO("GDCMImageIO")
    reader.SetFileName(str(frame.path))
    with captured_stderr() as said:
        image = reader.Execute()
    if said:
        raise ImageError(
            f"{shown(frame.path.name)}: damaged compressed pixels ({shown(said[0], 80)}); export it again"
        )
    return np.asarray(sitk.GetArrayFromImage(image))


@contextlib.contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """What the C libraries inside print, as lines.

    libjpeg prints "Corrupt JPEG data" on the terminal and goes on with invented pixels; this is the only way
    to know.
    """
    said: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield said
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said += file.read(10_000).decode("utf-8", "replace").splitlines()
