"""Well-formed lies in DICOM headers: one tag of a valid CT or PET series gets a plausible, wrong value.

Each lie is told by one slice or by all of them. What comes of it is one of

    refused     one line of our own errors
    unchanged   the image is the true one, voxel by voxel and in its place
    warned      the image is another one, and a warning says that something may be wrong
    SILENT      the image is another one, and nobody says so: a failure, unless no reader can know

A statement that all slices make alike, and that would be true of another scan (a pixel twice as large, a patient of 80
kilograms), cannot be known to be a lie; these stand in `NOBODY_CAN_KNOW`.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

import numpy as np
import pydicom
from pydicom.datadict import dictionary_VR
from pydicom.dataset import FileDataset

import veloxseg.image as vio
from support.scan_samples import pet_slice, slice_dataset
from veloxseg.errors import VeloxSegError
from veloxseg.image.dicom.file import quiet

SLICES = 4
MISSING = "(missing)"

IMAGE: dict[str, list[object]] = {
    "Rows": [6, 8, 14, 1, 0, 65535],
    "Columns": [4, 7, 9, 16, 1, 0],
    "BitsAllocated": [8, 32, 12, 1, 64],
    "BitsStored": [8, 12, 15, 17, 0],
    "HighBit": [7, 11, 14, 16, 31],
    "PixelRepresentation": [0, 2],
    "SamplesPerPixel": [3, 2, 0],
    "PhotometricInterpretation": ["MONOCHROME1", "RGB", "PALETTE COLOR", "YBR_FULL", "GREY"],
    "PlanarConfiguration": [0, 1],
    "NumberOfFrames": [1, 2, 4, 0],
    "RescaleSlope": ["2", "0", "-1", "0.001", "1e30"],
    "RescaleIntercept": ["0", "1024", "-2048", "1e30"],
    "RescaleType": ["US", "HU", "Z_EFF", "OD"],
    "PixelSpacing": [[1.5, 2.0], [0.75, 1.0], [0, 0], [-2.0, -1.5], [2.0, 15.0], [1e-9, 1e-9]],
    "ImagePositionPatient": [[-10, -20, 30], [-10, -20, 31], [-10, -19, 33], [10, 20, -30], [0, 0, 1e9]],
    "ImageOrientationPatient": [
        [1, 0, 0, 0, -1, 0],
        [0, 1, 0, 1, 0, 0],
        [1, 0, 0, 1, 0, 0],
        [2, 0, 0, 0, 2, 0],
        [0] * 6,
    ],
    "SliceThickness": ["1", "0", "-3", "30"],
    "SpacingBetweenSlices": ["3", "1.5", "6", "-3", "0"],
    "SliceLocation": ["0", "33", "-1e6"],
    "InstanceNumber": ["1", "0", "-5", "99999"],
    "SeriesInstanceUID": ["1.2.3", ""],
    "SeriesNumber": ["9", "-1"],
    "SOPInstanceUID": ["1.2.3", ""],
    "SOPClassUID": [pydicom.uid.MRImageStorage, pydicom.uid.SecondaryCaptureImageStorage, "1.2.3"],
    "FrameOfReferenceUID": ["1.2.3"],
    "Modality": ["CT", "PT", "MR", "OT", "RTSTRUCT"],
    "PatientPosition": ["FFS", "HFP"],
    "ImageType": [["DERIVED", "SECONDARY"], ["ORIGINAL", "PRIMARY", "LOCALIZER"]],
    "PixelPaddingValue": [0, 335],
    "SmallestImagePixelValue": [300, 0],
    "LargestImagePixelValue": [3, 0],
    "WindowCenter": ["1e6", "-1"],
    "ModalityLUTSequence": [[pydicom.Dataset()], []],
    "PatientWeight": ["80", "0.07", "70000", "0", "-70"],
    "TimezoneOffsetFromUTC": ["+0100", "-0500", "+9900", "UTC"],
}
PET: dict[str, list[object]] = {
    "Units": ["GML", "CNTS", "CM2ML", "PROPCPS", "bqml", "kBq/ml"],
    "SUVType": ["LBM", "BSA", "BW"],
    "DecayCorrection": ["ADMIN", "NONE", "START ", "SCAN"],
    "CorrectedImage": [["ATTN"], ["DECY"], ["SCAT"], ["DECY", "ATTN", "SCAT"]],
    "SeriesDate": ["20200102", "20191231", "01012020", "20201301"],
    "SeriesTime": ["100000", "110500", "230000", "250000", "eleven"],
    "AcquisitionDate": ["20200102", "20191231"],
    "AcquisitionTime": ["100000", "120000", "235900"],
    "FrameReferenceTime": ["0", "900000"],
    "ActualFrameDuration": ["0", "60000"],
    "DecayCorrectionDateTime": ["20200101103000", "20200101", "2020"],
    "NumberOfSlices": [4, 9],
    "RadionuclideTotalDose": ["370", "370000", "3.7e11", "0", "-1", "400000000"],
    "RadionuclideHalfLife": ["109.77", "1.83", "6588", "0", "4062", "60"],
    "RadiopharmaceuticalStartTime": ["110500", "105500", "233000", "130000", "10", "ten"],
    "RadiopharmaceuticalStartDateTime": [
        "20200101100000",
        "20200101110500",
        "20191231100000",
        "20200101100000+0100",
        "20210101100000",
    ],
    "RadiopharmaceuticalInformationSequence": [[], [pydicom.Dataset()], [pydicom.Dataset(), pydicom.Dataset()]],
}
OF_ALL = {  # of all slices: statements that are true of another scan
    "PixelSpacing",
    "ImageOrientationPatient",
    "RescaleSlope",
    "RescaleIntercept",
    "PatientWeight",
    "DecayCorrection",
    "DecayCorrectionDateTime",
    "SeriesTime",
    "SeriesDate",
    "AcquisitionTime",
    "AcquisitionDate",
    "RadionuclideTotalDose",
    "RadionuclideHalfLife",
    "RadiopharmaceuticalStartTime",
    "RadiopharmaceuticalStartDateTime",
}
NOBODY_CAN_KNOW = {(modality, keyword, True) for keyword in OF_ALL for modality in ("CT", "PT")} | {
    ("PT", "RescaleSlope", False)  # each slice of a PET has a slope of its own
}


@dataclass(frozen=True)
class Lie:
    """One tag, one wrong value, told by one slice or by all."""

    modality: str
    keyword: str
    value: object
    all_slices: bool

    def __str__(self) -> str:
        who = "all slices" if self.all_slices else "one slice"
        return f"{self.modality} {self.keyword}={self.value} in {who}"

    @property
    def can_be_known(self) -> bool:
        return (self.modality, self.keyword, self.all_slices) not in NOBODY_CAN_KNOW


def every_lie(seed: int) -> Iterator[Lie]:
    """All lies of the tables, in an order that the seed decides, so that the first ones are a fair sample."""
    lies = [
        Lie(modality, keyword, value, all_slices)
        for modality, table in (("CT", IMAGE), ("PT", IMAGE | PET))
        for keyword, values in table.items()
        for value in [*values, MISSING]
        for all_slices in (False, True)
    ]
    random.Random(seed).shuffle(lies)
    yield from lies


@cache
def true_files(modality: str) -> list[bytes]:
    """The files of a CT, or of a PET that holds half of the injected dose."""
    made = [slice_dataset(z) if modality == "CT" else pet_slice(z, RescaleSlope="240000") for z in range(SLICES)]
    return [encoded(dataset) for dataset in made]


def encoded(dataset: FileDataset) -> bytes:
    file = BytesIO()
    with quiet():
        dataset.save_as(file, enforce_file_format=False)
    return file.getvalue()


def write_lie(folder: Path, lie: Lie | None, modality: str, victim: int) -> Path:
    """The true series with one lie in it (or none)."""
    folder.mkdir(parents=True)
    for z, data in enumerate(true_files(modality)):
        if lie is not None and (lie.all_slices or z == victim):
            dataset = pydicom.dcmread(BytesIO(data))
            tell(dataset, lie)
            data = encoded(dataset)
        (folder / f"{(z * 5) % 7}.dcm").write_bytes(data)
    return folder


def tell(dataset: FileDataset, lie: Lie) -> None:
    inside = lie.keyword.startswith("Radio") and not lie.keyword.endswith("Sequence")
    target = dataset.RadiopharmaceuticalInformationSequence[0] if inside else dataset
    with quiet():
        if lie.value == MISSING:
            if lie.keyword in target:
                delattr(target, lie.keyword)
        else:
            coding = dictionary_VR(lie.keyword)  # "US or SS" for what has the sign of the pixels, which are signed
            target.add_new(lie.keyword, "SS" if " or " in coding else coding, lie.value)


def outcome(folder: Path, truth: vio.Volume) -> str:
    """What comes of reading a series with a lie in it; other exceptions than ours go through."""
    try:
        scan = vio.read(folder)
    except VeloxSegError as error:
        text = str(error)
        return "refused" if "\n" not in text and len(text) < 600 else f"not one line: {text}"
    same = scan.geometry.same_grid(truth.geometry) and np.allclose(scan.array, truth.array, rtol=1e-5, atol=1e-6)
    return "unchanged" if same else "warned" if scan.warnings else "SILENT"
