"""Pixels of DICOM frames as float32, rescaled by each frame's own slope and intercept.

pydicom decodes uncompressed and RLE data; JPEG, JPEG-LS and JPEG 2000 go through GDCM, which SimpleITK (an extra)
brings. Both fill the size that the header claims as well as they can: pydicom passes over bytes that are left, GDCM
crops a JPEG-LS stream. So the length of uncompressed data, the size that a compressed stream states itself, the type of
what comes out and the range of its values are compared with the header here.
"""

import tempfile
import warnings as python_warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ImageError, shown
from veloxseg.extras import require
from veloxseg.image.dicom.file import open_dicom, parsing
from veloxseg.image.dicom.frames import Frame
from veloxseg.image.itk import captured_stderr, quiet_simpleitk

__all__ = ["read_pixels"]

# implicit and explicit little endian, explicit big endian
UNCOMPRESSED = ("1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2")
RLE = "1.2.840.10008.1.2.5"
# JPEG baseline, extended, lossless (twice), JPEG-LS (twice), JPEG 2000 (twice)
BY_GDCM = tuple(f"1.2.840.10008.1.2.4.{number}" for number in (50, 51, 57, 70, 80, 81, 90, 91))

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


def read_pixels(frames: Sequence[Frame]) -> npt.NDArray[np.float32]:
    """(X, Y, Z) of frames in the order given; each file is opened once for a run of its frames."""
    array = np.empty(0, np.float32)
    opened: PixelFile | None = None
    for z, frame in enumerate(frames):
        with parsing(frame.path.name):
            if opened is None or frame.path != opened.path:
                opened = PixelFile(frame.path)
            pixels = opened.frame(frame).T
        if z == 0:  # not before: now the size in the header is known to be true
            array = np.empty((*pixels.shape, len(frames)), np.float32, order="F")
        array[:, :, z] = pixels
        slope, intercept = frame.rescale or (1.0, 0.0)
        if (slope, intercept) != (1.0, 0.0):
            array[:, :, z] *= np.float32(slope)
            array[:, :, z] += np.float32(intercept)
    return array


class PixelFile:
    """The stored numbers of one file, frame by frame."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dataset = open_dicom(path, PIXEL_TAGS)
        if "PixelData" not in self.dataset:
            raise ImageError(f"{shown(path.name)}: holds no pixels; export the series again")
        if "TransferSyntaxUID" not in self.dataset.file_meta:  # without preamble; pydicom saw how it is coded
            implicit, little = self.dataset.original_encoding
            self.dataset.file_meta.TransferSyntaxUID = UNCOMPRESSED[0 if implicit else 1 if little else 2]
        self.count = int(self.dataset.get("NumberOfFrames") or 1)
        sign = "i" if self.dataset.PixelRepresentation else "u"
        self.dtype = np.dtype(f"{sign}{self.dataset.BitsAllocated // 8}")
        # decoders drop the bits above those that the header calls stored; we get all of them, and look
        self.bits, allocated = int(self.dataset.BitsStored), int(self.dataset.BitsAllocated)
        self.dataset.BitsStored, self.dataset.HighBit = allocated, allocated - 1
        self.decoded: npt.NDArray[Any] | None = None
        syntax = str(self.dataset.file_meta.TransferSyntaxUID)
        if syntax in UNCOMPRESSED:
            self.check_length()
            self.decoded = self.decode_by_pydicom()
        elif syntax == RLE:
            self.decoded = self.decode_by_pydicom()
        elif syntax in BY_GDCM:
            require("itk", f"{shown(path.name)}, whose pixels are coded as {self.coding},")
        else:
            raise ImageError(
                f"{shown(path.name)}: its pixels are coded as {self.coding}, which is not supported; "
                "decompress it (gdcmconv --raw)"
            )

    @property
    def coding(self) -> str:
        return shown(self.dataset.file_meta.TransferSyntaxUID.name, 60)

    def check_length(self) -> None:
        """Uncompressed pixels have exactly the bytes that the header asks for; an odd number gets one more."""
        rows, columns = int(self.dataset.Rows), int(self.dataset.Columns)
        expected = rows * columns * self.dtype.itemsize * self.count
        found = len(self.dataset.PixelData)
        if found not in (expected, expected + expected % 2):
            raise ImageError(
                f"{shown(self.path.name)} is damaged DICOM, or its header lies: {found} bytes of pixels, expected "
                f"{expected} for {self.count} × {columns} × {rows} of {8 * self.dtype.itemsize} bits; export it again"
            )

    def decode_by_pydicom(self) -> npt.NDArray[Any]:
        """(frame, row, column); what pydicom only warns of (bytes that are left) is an error."""
        with python_warnings.catch_warnings():
            python_warnings.simplefilter("error")
            pixels = self.dataset.pixel_array
        return pixels if pixels.ndim == 3 else pixels[None]

    def frame(self, frame: Frame) -> npt.NDArray[Any]:
        """(row, column), as the header describes them."""
        pixels = self.decode(frame.index) if self.decoded is None else self.decoded[frame.index]
        if pixels.shape != (frame.rows, frame.columns):
            raise ImageError(f"{shown(self.path.name)}: the pixels do not fit the size in the header; export it again")
        if pixels.dtype.newbyteorder("=") != self.dtype:
            raise ImageError(
                f"{shown(self.path.name)}: the pixels are {pixels.dtype}, the header says {self.dtype}; export it again"
            )
        bits = self.bits
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if self.dtype.kind == "i" else (0, (1 << bits) - 1)
        if pixels.min() < low or pixels.max() > high:
            raise ImageError(
                f"{shown(self.path.name)}: pixels from {pixels.min()} to {pixels.max()} do not fit the {bits} bits "
                "that the header says are stored; export it again"
            )
        return pixels

    def decode(self, index: int) -> npt.NDArray[Any]:
        """One compressed frame, by GDCM.

        It gets a file of its own with nothing but this frame, so that slope and intercept stay ours, and
        because GDCM may search a damaged file for minutes.
        """
        import pydicom
        from pydicom.encaps import encapsulate, get_frame

        single = pydicom.Dataset()
        for keyword in PIXEL_TAGS:
            if keyword in self.dataset and keyword not in ("PixelData", "NumberOfFrames"):
                setattr(single, keyword, self.dataset[keyword].value)
        single.SOPClassUID, single.SOPInstanceUID = pydicom.uid.MRImageStorage, "1.2.3"
        stream = get_frame(self.dataset.PixelData, index, number_of_frames=self.count)
        rows, columns, samples, bits = stated_in_stream(stream)
        if (rows, columns, samples) != (
            self.dataset.Rows,
            self.dataset.Columns,
            1,
        ) or bits > self.dataset.BitsAllocated:
            raise ImageError(
                f"{shown(self.path.name)}: the pixels do not fit the size in the header: the compressed stream states "
                f"{columns} × {rows} with {samples} × {bits} bits; export it again"
            )
        single.BitsStored, single.HighBit = bits, bits - 1
        single.PixelData = encapsulate([stream])
        single["PixelData"].VR = "OB"
        single["PixelData"].is_undefined_length = True
        single.file_meta = pydicom.dataset.FileMetaDataset()
        single.file_meta.TransferSyntaxUID = self.dataset.file_meta.TransferSyntaxUID
        with tempfile.TemporaryDirectory(prefix="veloxseg-") as folder:
            single.save_as(Path(folder) / "frame.dcm", enforce_file_format=True)
            return self.read_by_simpleitk(Path(folder) / "frame.dcm")

    def read_by_simpleitk(self, path: Path) -> npt.NDArray[Any]:
        sitk = quiet_simpleitk()
        reader = sitk.ImageFileReader()
        reader.SetImageIO("GDCMImageIO")
        reader.SetFileName(str(path))
        try:
            with captured_stderr() as said:
                image = reader.Execute()
        except RuntimeError as error:
            raise ImageError(
                f"{shown(self.path.name)}: its pixels ({self.coding}) cannot be decoded; "
                "decompress it (gdcmconv --raw) or export it again"
            ) from error
        if said:
            raise ImageError(f"{shown(self.path.name)}: damaged pixels ({shown(said[0], 80)}); export it again")
        pixels = np.asarray(sitk.GetArrayFromImage(image))
        return pixels[0] if pixels.ndim == 3 else pixels


def stated_in_stream(stream: bytes) -> tuple[int, int, int, int]:
    """Rows, columns, samples and bits by the header of a JPEG, JPEG-LS or JPEG 2000 stream; zeros without one."""
    if stream[:4] == b"\xff\x4f\xff\x51" and len(stream) > 42:  # JPEG 2000: start, then the place of the image
        right, bottom, left, top = (big_endian(stream, at, 4) for at in (8, 12, 16, 20))
        return bottom - top, right - left, big_endian(stream, 40, 2), (stream[42] & 0x7F) + 1
    at = 2
    while at + 10 <= len(stream) and stream[at] == 0xFF:
        marker = stream[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker == 0xF7 or (0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC)):  # start of frame
            return big_endian(stream, at + 5, 2), big_endian(stream, at + 7, 2), stream[at + 9], stream[at + 4]
        else:
            at += 2 + big_endian(stream, at + 2, 2)
    return 0, 0, 0, 0


def big_endian(data: bytes, at: int, count: int) -> int:
    return int.from_bytes(data[at : at + count], "big")
