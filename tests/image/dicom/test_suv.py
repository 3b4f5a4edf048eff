"""SUV: the factor by hand, from each kind of tags; the real series to 1e-6."""

from pathlib import Path

import numpy as np
import pydicom
import pytest

import veloxseg.image as vio
from support.scan_samples import HALF_LIFE, SPACING, pet_slice, ramp, write_series
from veloxseg.errors import ImageError
from veloxseg.image.dicom.file import quiet
from veloxseg.image.dicom.suv import suv_scale


def suv_factor(slices: list[pydicom.Dataset]) -> float:
    return suv_scale(slices).factor


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
        ({"SeriesTime": "120000", "FrameReferenceTime": "90000", "ActualFrameDuration": "1"}, expected(3510.5)),
    ],
)
def test_factor_by_hand(changes: dict, factor: float) -> None:
    assert suv_factor([pet_slice(**changes)]) == pytest.approx(factor, rel=1e-6)


def test_ge_start_of_a_series_made_anew() -> None:
    dataset = pet_slice(SeriesTime="120000")
    dataset.add_new(0x00090010, "LO", "GEMS_PETD_01")
    dataset.add_new(0x0009100D, "UN", b"20200101104500.00 ")
    assert suv_factor([dataset]) == pytest.approx(expected(2700))


def test_philips_counts() -> None:
    dataset = pet_slice(Units="CNTS")
    dataset.add_new(0x70530010, "LO", "Philips PET Private Group")
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        # five minutes after the start of the scan: not the day before, when it would have been 24 hours
        ({"RadiopharmaceuticalStartTime": "110500"}, "starts 0:05:00 before the injection"),
        ({"RadiopharmaceuticalStartTime": "225900"}, "starts 11:59:00 before the injection"),
        ({"RadiopharmaceuticalStartDateTime": "20191231100000"}, r"starts 1 day, 1:00:00 after the injection"),
        ({"RadiopharmaceuticalStartDateTime": "20200101110500"}, "after the injection, expected between 0"),
        ({"RadionuclideHalfLife": "109.77"}, "in minutes, expected seconds"),
        ({"RadionuclideHalfLife": "1.83"}, "in hours, expected seconds"),
        ({"RadionuclideTotalDose": "370"}, "370 Bq, expected more than"),
        ({"PatientWeight": "70000"}, "70000 kg, expected kilograms"),
        ({"Units": "GML", "SUVType": "LBMJANMA"}, "SUV of type LBMJANMA"),
        ({"Units": "PROPCPS"}, "units PROPCPS"),
        ({"Units": "CM2ML"}, "units CM2ML"),
        ({"Units": "GML", "CorrectedImage": "DECY"}, "attenuation"),
        ({"TimezoneOffsetFromUTC": "CET"}, "cannot be read"),
        ({"TimezoneOffsetFromUTC": "+2500"}, "cannot be"),
        ({"SeriesTime": "120000"}, "ActualFrameDuration"),
        ({"SeriesTime": "120000", "ActualFrameDuration": "1000"}, "without FrameReferenceTime"),
    ],
)
def test_wrong_units_and_times_are_refused(changes: dict, words: str) -> None:
    with quiet():
        dataset = pet_slice(**changes)
    with pytest.raises(ImageError, match=words):
        suv_scale([dataset])


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        # 10:00 in New York and 11:00 in New York; 16:30 in Berlin is 10:30 there
        ({"TimezoneOffsetFromUTC": "-0500", "RadiopharmaceuticalStartDateTime": "20200101100000"}, 3600),
        ({"TimezoneOffsetFromUTC": "-0500", "RadiopharmaceuticalStartDateTime": "20200101163000+0100"}, 1800),
        ({"TimezoneOffsetFromUTC": "+0000", "RadiopharmaceuticalStartDateTime": "20200101010000-0900"}, 3600),
        ({"TimezoneOffsetFromUTC": "+0530"}, 3600),
        ({"DecayCorrectionDateTime": "20200101103000"}, 1800),
    ],
)
def test_offsets_from_utc_are_applied(changes: dict, seconds: float) -> None:
    scale = suv_scale([pet_slice(**changes)])
    assert scale.factor == pytest.approx(expected(seconds), rel=1e-6)
    assert not [text for text in scale.warnings if "zone" in text]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"RadiopharmaceuticalStartDateTime": "20200101100000-0500"}, "only one of the times"),
        ({"RadiopharmaceuticalStartDateTime": "20200101093000"}, "disagree"),
        ({"RadionuclideHalfLife": "5000"}, "5000 s is of no nuclide"),
        ({"RadionuclideTotalDose": "3000000"}, "3 MBq is unusual"),
        ({"PatientWeight": "500"}, "500 kg is unusual"),
        ({"SeriesTime": "103000"}, "starts 0:30:00.500000 before its first acquisition"),
    ],
)
def test_doubtful_tags_give_a_warning_with_the_numbers(changes: dict, words: str) -> None:
    assert suv_scale([pet_slice()]).warnings == ()
    assert words in " ".join(suv_scale([pet_slice(**changes)]).warnings)


@pytest.mark.parametrize("meaning", ["18F", "F-18", "^18^Fluorine", "Fluorine-18", "F^18^[Fluorine]"])
def test_half_life_of_another_nuclide_than_the_named_one(meaning: str) -> None:
    """Minutes of zirconium-89 in place of seconds are the seconds of no other nuclide, if the nuclide is named."""
    code = pydicom.Dataset()
    code.CodeMeaning = meaning
    dataset = pet_slice()
    dataset.RadiopharmaceuticalInformationSequence[0].RadionuclideCodeSequence = [code]
    assert suv_factor([dataset]) == pytest.approx(expected(3600))
    dataset.RadiopharmaceuticalInformationSequence[0].RadionuclideHalfLife = "4062"
    if meaning == "F^18^[Fluorine]":
        return  # this way of writing is not understood, so the half-life alone is asked
    with pytest.raises(ImageError, match="4062 s, expected 6586 s for fluorine-18"):
        suv_scale([dataset])


@pytest.mark.parametrize(
    "changes",
    [
        {"Units": "GML"},
        {"PatientWeight": "71"},
        {"PatientWeight": None},
        {"DecayCorrection": "ADMIN"},
        {"CorrectedImage": ["ATTN", "DECY", "SCAT"]},
        {"SeriesTime": "105900"},
        {"TimezoneOffsetFromUTC": "+0100"},
        {"RadionuclideTotalDose": "371000000"},
        {"RadionuclideHalfLife": "6588"},
        {"RadiopharmaceuticalStartTime": "100100"},
        {"RadiopharmaceuticalStartDateTime": "20200101100000"},
    ],
)
@pytest.mark.parametrize("which", [0, 3])
def test_one_slice_does_not_decide_for_all(changes: dict, which: int) -> None:
    slices = [pet_slice(z, **(changes if z == which else {})) for z in range(6)]
    with pytest.raises(ImageError, match=rf"{next(iter(changes))} of [15] of 6 slices"):
        suv_scale(slices)


def test_private_tags_of_another_creator_mean_nothing() -> None:
    dataset = pet_slice(Units="CNTS")
    dataset.add_new(0x70531000, "DS", "0.0005")
    with pytest.raises(ImageError, match="units CNTS"):  # no creator at all
        suv_scale([dataset])
    dataset.add_new(0x70530010, "LO", "ANOTHER COMPANY")
    with pytest.raises(ImageError, match="units CNTS"):
        suv_scale([dataset])
    dataset.add_new(0x70530012, "LO", "Philips PET Private Group")
    dataset.add_new(0x70531200, "DS", "0.0007")
    assert suv_factor([dataset]) == pytest.approx(0.0007)  # from the block that is Philips' here
    dataset = pet_slice(SeriesTime="120000", FrameReferenceTime="90000", ActualFrameDuration="1")
    dataset.add_new(0x00090010, "LO", "ANOTHER COMPANY")
    dataset.add_new(0x0009100D, "UN", b"20200101104500.00 ")
    assert suv_factor([dataset]) == pytest.approx(expected(3510.5))


def test_siemens_start_of_a_series_made_anew() -> None:
    dataset = pet_slice(SeriesTime="120000")
    dataset.add_new(0x00710010, "LO", "SIEMENS MED PT")
    dataset.add_new(0x00711022, "DT", "20200101105000.000000")
    assert suv_factor([dataset]) == pytest.approx(expected(3000))


def test_starts_that_differ_between_slices_of_a_series_made_anew() -> None:
    made = {"SeriesTime": "120000", "ActualFrameDuration": "1"}
    slices = [pet_slice(z, FrameReferenceTime=str(90_000 + 60_000 * z), **made) for z in range(3)]
    assert suv_factor(slices) == pytest.approx(expected(3510.5))
    slices[2].FrameReferenceTime = "900000"
    with pytest.raises(ImageError, match="differs by 0:11:30 between slices"):
        suv_scale(slices)


def hot(share: float) -> dict:
    """Tags of a series whose voxels hold this share of the injected dose."""
    becquerel = float(ramp().sum()) * np.prod(SPACING) / 1000  # with a slope of 1 Bq/mL
    return {"RescaleSlope": f"{share * 370e6 * 2 ** (-3600 / HALF_LIFE) / becquerel:.8g}"}


def test_an_image_cannot_hold_more_than_the_dose(tmp_path: Path) -> None:
    """Whatever was wrong in the tags: the sum of SUV · volume is at most the weight."""
    for share, count in ((0.7, 0), (1.5, 1)):
        scan = vio.read(write_series(tmp_path / f"{share}", [pet_slice(z, **hot(share)) for z in range(6)]))
        assert len(scan.warnings) == count
        assert np.sum(scan.array) * scan.geometry.voxel_ml == pytest.approx(share * 70_000, rel=1e-4)
    assert "1.50 times the injected dose" in scan.warnings[0]
    with pytest.raises(ImageError, match="700 times the injected dose"):
        vio.read(write_series(tmp_path / "hot", [pet_slice(z, **hot(700)) for z in range(6)]))
    with pytest.raises(ImageError, match="times the injected dose"):  # Bq/mL that call themselves SUV
        vio.read(write_series(tmp_path / "units", [pet_slice(z, Units="GML", **hot(0.7)) for z in range(6)]))
    scan = vio.read(write_series(tmp_path / "cold", [pet_slice(z, **hot(1e-7)) for z in range(6)]))
    assert "the highest SUV is" in scan.warnings[0]


def test_pet_without_slope_or_with_an_intercept(tmp_path: Path) -> None:
    made = [pet_slice(z, RescaleIntercept=-10) for z in range(6)]
    with pytest.raises(ImageError, match="RescaleIntercept that is not 0"):
        vio.read(write_series(tmp_path / "intercept", made))
    for one in made:
        del one.RescaleSlope, one.RescaleIntercept
    with pytest.raises(ImageError, match="PET without RescaleSlope"):
        vio.read(write_series(tmp_path / "none", made))


def test_pet_series_is_read_in_suv(tmp_path: Path) -> None:
    """Each slice with a slope of its own, as scanners write them."""
    folder = write_series(tmp_path / "pet", [pet_slice(z, RescaleSlope=z + 1.0, RescaleIntercept=0) for z in range(6)])
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
