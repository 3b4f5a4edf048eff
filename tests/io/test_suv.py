"""SUV: the factor by hand, from each kind of tags; the real series to 1e-6."""

from pathlib import Path

import numpy as np
import pydicom
import pytest
from scan_samples import slice_dataset, write_series

import veloxseg.io as vio
from veloxseg.errors import ImageError
from veloxseg.io.dicomfile import quiet
from veloxseg.io.suv import suv_factor

HALF_LIFE = 6586.2  # fluorine-18, seconds


def pet_slice(z: int = 0, **changes: object) -> pydicom.Dataset:
    injection = pydicom.Dataset()
    injection.RadionuclideTotalDose, injection.RadionuclideHalfLife = "370000000", str(HALF_LIFE)
    injection.RadiopharmaceuticalStartTime = "100000.00"
    dataset = slice_dataset(z, Modality="PT", Units="BQML", DecayCorrection="START", PatientWeight="70")
    dataset.CorrectedImage = ["ATTN", "DECY"]
    dataset.SeriesDate = dataset.AcquisitionDate = "20200101"
    dataset.SeriesTime, dataset.AcquisitionTime = "110000", f"11{z:02d}00.5"
    dataset.RadiopharmaceuticalInformationSequence = [injection]
    for keyword, value in changes.items():
        target = injection if keyword.startswith("Radio") else dataset
        setattr(target, keyword, value)
    return dataset


def expected(seconds: float) -> float:
    return 70_000 / (370e6 * 2 ** (-seconds / HALF_LIFE))


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ({}, expected(3600)),
        ({"DecayCorrection": "ADMIN"}, expected(0)),
        ({"Units": "GML"}, 1.0),
        ({"RadiopharmaceuticalStartTime": "233000"}, expected(11.5 * 3600)),  # before midnight
        ({"RadiopharmaceuticalStartDateTime": "20200101103000.25-0500"}, expected(1799.75)),
        ({"SeriesTime": "11"}, expected(3600)),
        # the series was made anew an hour later; the frame's mean lies 90 s after the scan's start at 10:58:30.5
        (
            {"SeriesTime": "120000", "FrameReferenceTime": "90000", "ActualFrameDuration": "1"},
            expected(3510.5),
        ),
    ],
)
def test_factor_by_hand(changes: dict, factor: float) -> None:
    assert suv_factor([pet_slice(**changes)]) == pytest.approx(factor, rel=1e-6)


def test_ge_start_of_a_series_made_anew() -> None:
    dataset = pet_slice(SeriesTime="120000")
    dataset.add_new(0x0009100D, "UN", b"20200101104500.00 ")
    assert suv_factor([dataset]) == pytest.approx(expected(2700))


def test_philips_counts() -> None:
    dataset = pet_slice(Units="CNTS")
    dataset.add_new(0x70531000, "DS", "0.0005")
    assert suv_factor([dataset]) == pytest.approx(0.0005)
    del dataset[0x70531000]
    dataset.add_new(0x70531009, "UN", b"2.5 ")
    assert suv_factor([dataset]) == pytest.approx(2.5 * expected(3600))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"Units": "CNTS"}, "units CNTS"),
        ({"Units": "GML", "SUVType": "LBM"}, "SUV of type LBM"),
        ({"PatientWeight": None}, "PatientWeight"),
        ({"PatientWeight": "0"}, "PatientWeight"),
        ({"RadionuclideTotalDose": None}, "RadionuclideTotalDose"),
        ({"RadionuclideHalfLife": None}, "RadionuclideHalfLife"),
        ({"DecayCorrection": "NONE"}, "DecayCorrection NONE"),
        ({"CorrectedImage": ["ATTN"]}, "decay correction"),
        ({"RadiopharmaceuticalInformationSequence": []}, "injection"),
        ({"RadiopharmaceuticalStartTime": None}, "StartTime"),
        ({"RadiopharmaceuticalStartDateTime": "20190101100000"}, "after the injection"),
        ({"SeriesTime": "noon"}, "cannot be read"),
        ({"AcquisitionDate": None}, "AcquisitionDate"),
    ],
)
def test_missing_tag_gives_its_one_line(changes: dict, words: str) -> None:
    dataset = pet_slice()
    for keyword, value in changes.items():
        inside = keyword.startswith("Radio") and not keyword.endswith("Sequence")
        with quiet():
            setattr(dataset.RadiopharmaceuticalInformationSequence[0] if inside else dataset, keyword, value)
    with pytest.raises(ImageError, match=words) as caught:
        suv_factor([dataset])
    assert "NIfTI in SUV" in str(caught.value)


def test_pet_series_is_read_in_suv(tmp_path: Path) -> None:
    """Each slice with a slope of its own, as scanners write them."""
    folder = write_series(
        tmp_path / "pet", [pet_slice(z, RescaleSlope=z + 1.0, RescaleIntercept=0) for z in range(6)]
    )
    scan = vio.read(folder)
    plain = vio.read(write_series(tmp_path / "ct")).array + 1024
    assert np.allclose(scan.array, plain * np.arange(1, 7) * expected(3600), rtol=1e-6)
    assert scan.header["suv_factor"] == pytest.approx(expected(3600))


@pytest.mark.shared
def test_real_factor_and_values(shared: Path) -> None:
    scan = vio.read(shared / "data/pet_raw_dicom/STS_001/FDG_PET/image")
    assert scan.header["suv_factor"] == pytest.approx(2.42903e-4, rel=1e-6)
    nifti = vio.read(shared / "data/sts_petct/STS_001/PET_image.nii.gz")
    corner = np.linalg.inv(scan.geometry.affine) @ nifti.geometry.affine @ [0, 0, 0, 1]
    x, y, z = np.rint(corner[:3]).astype(int)
    assert np.abs(corner[:3] - (x, y, z)).max() < 1e-3
    a, b, c = nifti.geometry.shape
    step = float(nifti.array.max()) / 32767  # the NIfTI went through 16-bit numbers
    assert np.abs(scan.array[x : x + a, y : y + b, z : z + c] - nifti.array).max() < 1.001 * step
