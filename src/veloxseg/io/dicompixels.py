"""Pixels of DICOM frames as float32, rescaled by each frame's own slope and intercept.

pydicom decodes uncompressed and RLE data; JPEG, JPEG-LS and JPEG 2000 go through SimpleITK's GDCM.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ImageError
from veloxseg.io.checks import shown
from veloxseg.io.dicomfile import open_dicom, parsing
from veloxseg.io.dicomframes import Frame
from veloxseg.io.itk import captured_stderr, quiet_simpleitk

__all__ = ["read_pixels"]

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
        if (frame.slope, frame.intercept) != (1.0, 0.0):
            array[:, :, z] *= np.float32(frame.slope)
            array[:, :, z] += np.float32(frame.intercept)
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
            self.dataset.file_meta.TransferSyntaxUID = BY_PYDICOM[0 if implicit else 1 if little else 2]
        self.decoded: npt.NDArray[Any] | None = None
        if str(self.dataset.file_meta.TransferSyntaxUID) in BY_PYDICOM:
            pixels = self.dataset.pixel_array
            self.decoded = pixels if pixels.ndim == 3 else pixels[None]

    def frame(self, frame: Frame) -> npt.NDArray[Any]:
        """(row, column)"""
        pixels = self.decode(frame.index) if self.decoded is None else self.decoded[frame.index]
        if pixels.shape != (frame.rows, frame.columns):
            raise ImageError(
                f"{shown(self.path.name)}: the pixels do not fit the size in the header; export it again"
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
        count = int(self.dataset.get("NumberOfFrames") or 1)
        single.PixelData = encapsulate([get_frame(self.dataset.PixelData, index, number_of_frames=count)])
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
            kind = shown(self.dataset.file_meta.TransferSyntaxUID.name, 60)
            raise ImageError(
                f"{shown(self.path.name)}: its pixels ({kind}) cannot be decoded; "
                "decompress it (gdcmconv --raw) or export it again"
            ) from error
        if said:
            raise ImageError(
                f"{shown(self.path.name)}: damaged pixels ({shown(said[0], 80)}); export it again"
            )
        pixels = np.asarray(sitk.GetArrayFromImage(image))
        return pixels[0] if pixels.ndim == 3 else pixels
