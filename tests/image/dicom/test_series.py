"""DICOM series: geometry that is right, or one line; real series against their NIfTI."""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pydicom
import pytest

import veloxseg.image as vio
from support.scan_samples import SHAPE, SPACING, ramp, slice_dataset, write_series
from veloxseg.errors import GeometryError, ImageError


def slices(count: int = SHAPE[2]) -> list:
    return [slice_dataset(z) for z in range(count)]


def test_series_has_the_right_values_and_place(tmp_path: Path) -> None:
    scan = vio.read(write_series(tmp_path / "ct"))
    assert np.array_equal(scan.array, ramp() - 1024.0)
    assert scan.geometry.spacing == pytest.approx(SPACING)
    assert scan.geometry.origin == pytest.approx((10.0, 20.0, 30.0))  # LPS (-10, -20, 30)
    header = vio.read_header(tmp_path / "ct")
    assert header.same_grid(scan.geometry)
    assert header.dtype == np.int16


def test_oblique_series_follows_its_cosines(tmp_path: Path) -> None:
    """Voxel (i, j, k) lies at position + row·i + column·j + normal·k, for slices stored in reverse."""
    row, column = np.array([0.8, 0.6, 0.0]), np.array([0.0, 0.0, -1.0])
    normal = np.cross(row, column)
    made = slices()
    for z, one in enumerate(made):
        one.ImageOrientationPatient = [*row, *column]
        one.ImagePositionPatient = [float(x) for x in np.array([5.0, 6.0, 7.0]) - 4.0 * z * normal]
    scan = vio.read(write_series(tmp_path / "mr", made))
    first = np.array([5.0, 6.0, 7.0]) - 4.0 * (SHAPE[2] - 1) * normal
    place = first + row * SPACING[0] * 3 + column * SPACING[1] * 2 + normal * 4.0
    assert np.allclose(scan.geometry.affine @ [3, 2, 1, 1], [-place[0], -place[1], place[2], 1])
    assert np.array_equal(scan.array, ramp()[:, :, ::-1] - 1024.0)


def gantry_tilt(made: list) -> list:
    for z, one in enumerate(made):
        one.ImagePositionPatient = [-10.0, -20.0 + 0.4 * z, 30.0 + 3.0 * z]
    return made


def irregular(made: list) -> list:
    for one, z in zip(made, [0, 3, 6.4, 9, 12.9, 15], strict=True):
        one.ImagePositionPatient = [-10.0, -20.0, 30.0 + z]
    return made


def turned(made: list) -> list:
    made[2].ImageOrientationPatient = [0, 1, 0, 0, 0, -1]
    return made


def changed(keyword: str, value: object, which: int = 3) -> list:
    made = slices()
    setattr(made[which], keyword, value)
    return made


def all_changed(**changes: object) -> list:
    return [slice_dataset(z, **changes) for z in range(SHAPE[2])]


def without(*keywords: str, only: int | None = None) -> list:
    made = slices()
    for one in made if only is None else [made[only]]:
        for keyword in keywords:
            delattr(one, keyword)
    return made


BROKEN = {
    "missing slice": (lambda: slices()[:3] + slices()[4:], GeometryError, "1 slice is missing: the gap after slice 3"),
    "missing slices": (lambda: slices()[:2] + slices()[4:], GeometryError, "2 slices are missing"),
    "irregular gaps": (lambda: irregular(slices()), GeometryError, "irregular gaps between slices, from 2.1 to 3.9 mm"),
    "gantry tilt": (lambda: gantry_tilt(slices()), GeometryError, "shifted against each other by 7.59 degrees"),
    "mixed orientation": (lambda: turned(slices()), GeometryError, "mixed orientations"),
    "two series": (lambda: changed("SeriesInstanceUID", "1.2.3"), ImageError, "2 series in one folder"),
    "other spacing": (lambda: changed("PixelSpacing", [2.5, 2.5]), GeometryError, "different pixel spacing"),
    "other size": (lambda: changed("Rows", 6), GeometryError, "different size"),
    "copies": (lambda: slices() + slices(), ImageError, "6 files are copies"),
    "no position": (lambda: without("ImagePositionPatient"), GeometryError, "without position"),
    "no spacing": (lambda: without("PixelSpacing"), GeometryError, "without position, orientation or pixel spacing"),
    "no pixels": (lambda: without("PixelData"), ImageError, "holds no pixels"),
    "spacing 0": (lambda: [slice_dataset(z, PixelSpacing=[0, 1]) for z in range(4)], GeometryError, "positive, finite"),
    "colour": (
        lambda: [slice_dataset(z, SamplesPerPixel=3, PhotometricInterpretation="RGB") for z in range(4)],
        ImageError,
        "RGB or palette",
    ),
    "too few pixels": (lambda: changed("PixelData", b"\0\0" * 5), ImageError, "damaged DICOM"),
    "cosines": (
        lambda: [slice_dataset(z, ImageOrientationPatient=[1, 0, 0, 0.3, 1, 0]) for z in range(4)],
        GeometryError,
        "right angles",
    ),
    # headers that lie: pydicom would fill the size that they claim, and leave the other bytes
    "fewer columns": (lambda: all_changed(Columns=4), ImageError, "112 bytes of pixels, expected 56"),
    "fewer rows": (lambda: all_changed(Rows=6), ImageError, "112 bytes of pixels, expected 96"),
    "more rows": (lambda: all_changed(Rows=9), ImageError, "112 bytes of pixels, expected 144"),
    "bytes for words": (lambda: all_changed(BitsAllocated=8, BitsStored=8, HighBit=7), ImageError, "expected 56 for"),
    "one frame too few": (lambda: changed("NumberOfFrames", 2), ImageError, "2 frames without a position for each"),
    "too few bits": (lambda: all_changed(BitsStored=8, HighBit=7), ImageError, "do not fit the 8 bits"),
    "high bit": (lambda: all_changed(HighBit=11), ImageError, "16 bits allocated, 16 stored, the highest is number 11"),
    "bits": (lambda: all_changed(BitsStored=17, HighBit=16), ImageError, "16 bits allocated, 17 stored"),
    "sign of one": (lambda: changed("PixelRepresentation", 0), ImageError, "PixelRepresentation of 1 of 6 slices"),
    "sign": (lambda: all_changed(PixelRepresentation=7), ImageError, "neither 0 nor 1"),
    "inverted": (lambda: all_changed(PhotometricInterpretation="MONOCHROME1"), ImageError, "expected MONOCHROME2"),
    "inverted one": (lambda: changed("PhotometricInterpretation", "MONOCHROME1"), ImageError, "expected MONOCHROME2"),
    "table of values": (lambda: changed("ModalityLUTSequence", [pydicom.Dataset()]), ImageError, "ModalityLUTSequence"),
    "no slope in one": (lambda: without("RescaleSlope", "RescaleIntercept", only=2), ImageError, "1 of 6 slices lack"),
    "slope alone": (lambda: without("RescaleIntercept"), ImageError, "only one of RescaleSlope"),
    "intercept of one": (lambda: changed("RescaleIntercept", 0), ImageError, "2 different RescaleSlope or"),
    "slope 0": (lambda: all_changed(RescaleSlope=0), ImageError, "RescaleSlope is not a positive"),
    "atomic numbers": (lambda: all_changed(RescaleType="Z_EFF"), ImageError, "units Z_EFF"),
    "two units": (
        lambda: changed("RescaleType", "HU"),
        ImageError,
        "RescaleType of 5 of 6 slices|RescaleType of 1 of 6",
    ),
    "modality of one": (lambda: changed("Modality", "MR"), ImageError, "Modality of"),
    "another modality": (
        lambda: all_changed(Modality="MR", SOPClassUID=pydicom.uid.CTImageStorage),
        ImageError,
        "modality MR, but the images are filed as CT",
    ),
    "slice that calls itself contours": (lambda: changed("Modality", "RTSTRUCT", 5), ImageError, "Modality of"),
    "other space": (lambda: changed("FrameOfReferenceUID", "1.2.3"), ImageError, "FrameOfReferenceUID of"),
    "one position twice": (
        lambda: [*slices(), slice_dataset(2, SOPInstanceUID="1.2.3")],
        GeometryError,
        "slice positions repeat unevenly (between 1 and 2 images per position)",
    ),
    "not an image": (lambda: [slice_dataset(0, Modality="RTSTRUCT")], ImageError, "no DICOM images"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_series_gives_its_one_line(tmp_path: Path, name: str) -> None:
    make, kind, words = BROKEN[name]
    folder = write_series(tmp_path / "series", make())
    with pytest.raises(ImageError) as caught:
        vio.read(folder)
    assert type(caught.value) is kind
    assert any(part in str(caught.value) for part in words.split("|"))
    assert "\n" not in str(caught.value)
    assert "SECRET" not in str(caught.value).upper()


@pytest.mark.parametrize("uid", ["1.2.3.4", "1.2.840.10008.1.2.4.201", "1.2.840.10008.1.2.4.100"])
def test_unknown_coding_of_pixels(tmp_path: Path, uid: str) -> None:
    made = slices()
    for one in made:
        one.file_meta.TransferSyntaxUID = uid
        one["PixelData"].VR, one["PixelData"].is_undefined_length = "OB", True
        one.PixelData = pydicom.encaps.encapsulate([one.PixelData])
    with pytest.raises(ImageError, match=r"coded as .* not supported; decompress"):
        vio.read(write_series(tmp_path / "series", made))


def test_odd_number_of_bytes_has_one_more(tmp_path: Path) -> None:
    """Pixel data has an even length in the file, so 7 × 7 bytes come as 50."""
    made = all_changed(Columns=7, BitsAllocated=8, BitsStored=8, HighBit=7, PixelRepresentation=0)
    pixels = np.arange(49, dtype=np.uint8).reshape(7, 7)
    for one in made:
        one.PixelData = pixels.tobytes() + b"\0"
    scan = vio.read(write_series(tmp_path / "padded", made))
    assert np.array_equal(scan.array[:, :, 2], pixels.T - 1024.0)
    made[3].PixelData += b"\0\0"
    with pytest.raises(ImageError, match="52 bytes of pixels, expected 49"):
        vio.read(write_series(tmp_path / "more", made))


def test_series_without_slopes_is_as_stored(tmp_path: Path) -> None:
    scan = vio.read(write_series(tmp_path / "ct", without("RescaleSlope", "RescaleIntercept")))
    assert np.array_equal(scan.array, ramp())
    assert "stored numbers are taken for Hounsfield units" in " ".join(scan.warnings)
    made = [slice_dataset(z, Modality="MR", RescaleSlope=z + 1, RescaleIntercept=z) for z in range(SHAPE[2])]
    scan = vio.read(write_series(tmp_path / "mr", made))  # a slope for each slice is MR's habit
    assert np.array_equal(scan.array, ramp() * np.arange(1, 7) + np.arange(6))
    assert scan.warnings == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"RescaleType": "US"}, "unspecified units"),
        ({"RescaleIntercept": 0}, "from 0 to 335; are these Hounsfield units"),
        ({"RescaleSlope": 400}, "are these Hounsfield units"),
        ({"SpacingBetweenSlices": 1.5}, "3 mm apart, their tags say 1.5 mm; are slices missing"),
        ({"PixelSpacing": [60, 60]}, "unusual; are the units right"),
    ],
)
def test_doubtful_series_is_read_with_a_warning(tmp_path: Path, changes: dict, words: str) -> None:
    scan = vio.read(write_series(tmp_path / "ct", all_changed(**changes)))
    assert [text for text in scan.warnings if words in text]


def test_positions_against_the_order_of_numbers(tmp_path: Path) -> None:
    """Positions decide, in whichever direction the numbers run; numbers that go to and fro are told."""
    made = slices()
    for z, one in enumerate(made):
        one.InstanceNumber = 100 - z
    assert vio.read(write_series(tmp_path / "backwards", made)).warnings == ()
    made[2].ImagePositionPatient, made[3].ImagePositionPatient = (
        made[3].ImagePositionPatient,
        made[2].ImagePositionPatient,
    )
    scan = vio.read(write_series(tmp_path / "swapped", made))
    assert "not that of their instance numbers" in scan.warnings[0]


def test_series_is_picked_by_modality_number_or_uid(tmp_path: Path) -> None:
    other = [slice_dataset(z, Modality="MR", SeriesNumber=9, SeriesInstanceUID="1.2.3") for z in range(4)]
    for one in other:
        one.SOPInstanceUID = one.SOPInstanceUID[:-1] + "9"
    folder = write_series(tmp_path / "both", slices() + other)
    for name in ("MR", "mr", "9", "1.2.3"):
        assert vio.read(folder, series=name).geometry.shape == (8, 7, 4)
    assert vio.read(folder, series="CT").geometry.shape == SHAPE
    with pytest.raises(ImageError, match="0 series match 'PT'"):
        vio.read(folder, series="PT")


def test_repeated_positions_are_volumes(tmp_path: Path) -> None:
    later = slices()
    for z, one in enumerate(later):
        one.SOPInstanceUID, one.InstanceNumber = f"1.2.4.{z}", 100 + z
        one.PixelData = (ramp()[:, :, z].T + 1000).astype(np.int16).tobytes()
    folder = write_series(tmp_path / "dynamic", later + slices())
    with pytest.raises(ImageError, match="4-D, with 2 volumes"):
        vio.read(folder)
    assert np.array_equal(vio.read(folder, volume=1).array, ramp() - 24.0)


def test_strangers_in_the_folder_are_passed_over(tmp_path: Path) -> None:
    folder = write_series(tmp_path / "ct with spaces é")
    (folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (folder / "LICENSE").write_text("text")
    assert vio.read(folder).geometry.shape == SHAPE
    with pytest.raises(ImageError, match="one slice of a DICOM series"):
        vio.read(next(folder.glob("*.dcm")))


def test_threads_do_not_disturb_each_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folders = [write_series(tmp_path / f"ct{n}") for n in range(4)]
    filters = list(warnings.filters)
    with ThreadPoolExecutor(4) as pool:
        scans = list(pool.map(vio.read, folders * 3))
    assert all(np.array_equal(scan.array, ramp() - 1024.0) for scan in scans)
    assert warnings.filters == filters
    print("still here", file=sys.stderr)
    assert capfd.readouterr().err == "still here\n"


def test_files_without_preamble(tmp_path: Path) -> None:
    """As some archives store them: no file meta information, implicit value representations."""
    (tmp_path / "old").mkdir()
    for z in range(SHAPE[2]):
        plain = pydicom.Dataset(slice_dataset(z))
        plain.save_as(tmp_path / "old" / str(z), implicit_vr=True, little_endian=True, enforce_file_format=False)
    assert (tmp_path / "old/0").read_bytes()[:2] == b"\x08\0"
    assert np.array_equal(vio.read(tmp_path / "old").array, ramp() - 1024.0)


def test_damaged_file_is_named(tmp_path: Path) -> None:
    folder = write_series(tmp_path / "ct")
    victim = sorted(folder.iterdir())[2]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-40])
    with pytest.raises(ImageError, match=f"{victim.name} is damaged DICOM"):
        vio.read(folder)
    assert vio.read_header(folder).shape == SHAPE  # which reads no pixels
    victim.write_bytes(whole[:1000])
    with pytest.raises(ImageError, match=f"1 slice is missing|{victim.name}"):
        vio.read(folder)


@pytest.mark.shared
def test_real_series_equals_its_nifti(shared: Path) -> None:
    for name in ("CT", "PET"):
        series = vio.read(shared / "data/sts_dicom/STS_002" / name / "image")
        nifti = vio.read(shared / f"data/sts_petct/STS_002/{name}_image.nii.gz")
        assert series.geometry.distance(nifti.geometry) < 1e-3
        assert np.abs(series.array - nifti.array).max() <= 1e-5


@pytest.mark.shared
def test_series_of_a_whole_patient_are_told_apart(shared: Path) -> None:
    with pytest.raises(ImageError, match=r"3 series in one folder: CT number 3 \(48 files\)"):
        vio.read(shared / "data/sts_dicom/STS_002")
    assert vio.read_header(shared / "data/sts_dicom/STS_002", series="MR").shape == (115, 90, 35)
