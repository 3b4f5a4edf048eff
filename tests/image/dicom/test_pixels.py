"""Compressed pixels that are damaged: libjpeg and OpenJPEG would go on with invented ones and print."""

import os
import random
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom.encaps import encapsulate, generate_frames

import veloxseg.image as vio
from support.scan_fuzz import mutate, outcome
from veloxseg.errors import ImageError
from veloxseg.image.itk import captured_stderr

pytestmark = pytest.mark.shared
CODECS = ["j2k", "jpeg", "jpegls", "rle"]


@pytest.fixture
def series(shared: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    source = shared / f"data/nasty/dicom2nifti_tests/generic/compressed_{request.param}/001"
    folder = tmp_path / request.param
    folder.mkdir()
    for path in source.iterdir():
        shutil.copyfile(path, folder / path.name)
    return folder


@pytest.mark.parametrize("series", CODECS, indirect=True)
def test_stream_that_ends_early(series: Path, capfd: pytest.CaptureFixture[str]) -> None:
    victim = sorted(series.iterdir())[1]
    data = victim.read_bytes()
    victim.write_bytes(data[: len(data) // 2] + bytes(len(data) - len(data) // 2))
    with pytest.raises(ImageError):
        vio.read(series)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("series", CODECS, indirect=True)
def test_mutations_of_the_stream(series: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(3)
    outcomes = []
    for _ in range(12):
        victim = rng.choice(sorted(series.iterdir()))
        data = victim.read_bytes()
        victim.write_bytes(data[:1500] + mutate(data[1500:], rng))
        outcomes.append(outcome(partial(vio.read, series)))
        victim.write_bytes(data)
    assert set(outcomes) <= {"read", "ImageError", "GeometryError"}
    assert outcomes.count("read") <= 8
    assert capfd.readouterr() == ("", "")


def test_what_c_libraries_print_is_caught(capfd: pytest.CaptureFixture[str]) -> None:
    with captured_stderr() as said:
        os.write(2, b"Corrupt JPEG data\n")
    os.write(2, b"after\n")
    assert said == ["Corrupt JPEG data"]
    assert capfd.readouterr().err == "after\n"


@pytest.mark.parametrize("series", ["j2k", "jpegls"], indirect=True)
def test_compressed_multiframe(series: Path, shared: Path) -> None:
    """The frames of a compressed series, put into one enhanced file, are the same volume."""
    files = sorted(series.iterdir())
    slices = [pydicom.dcmread(path) for path in files]
    expected = vio.read(series)
    whole, groups = slices[0], []
    for one in slices:
        group, place, turn, measure = (pydicom.Dataset() for _ in range(4))
        place.ImagePositionPatient, turn.ImageOrientationPatient = (
            one.ImagePositionPatient,
            one.ImageOrientationPatient,
        )
        measure.PixelSpacing = one.PixelSpacing
        group.PlanePositionSequence, group.PlaneOrientationSequence = [place], [turn]
        group.PixelMeasuresSequence = [measure]
        groups.append(group)
    frames = [next(generate_frames(one.PixelData, number_of_frames=1)) for one in slices]
    whole.PerFrameFunctionalGroupsSequence, whole.NumberOfFrames = groups, len(groups)
    whole.PixelData = encapsulate(frames)
    for path in files:
        path.unlink()
    whole.save_as(files[0])
    scan = vio.read(files[0])
    assert np.array_equal(scan.array, expected.array)
    assert scan.geometry.distance(expected.geometry) < 1e-6


@pytest.mark.parametrize("series", CODECS, indirect=True)
@pytest.mark.parametrize("changes", [{"Columns": 255}, {"Columns": 128}, {"Rows": 128}, {"Rows": 257}, {"Rows": 512}])
def test_stream_of_another_size_than_the_header(series: Path, changes: dict[str, int]) -> None:
    """GDCM crops a JPEG-LS stream to the header, and pydicom a RLE one, so that rows would be shifted."""
    for path in series.iterdir():
        dataset = pydicom.dcmread(path)
        for keyword, value in changes.items():
            setattr(dataset, keyword, value)
        dataset.save_as(path)
    with pytest.raises(ImageError, match=r"do not fit the size in the header|damaged DICOM"):
        vio.read(series)


@pytest.mark.parametrize("series", ["j2k", "jpegls", "rle"], indirect=True)
@pytest.mark.parametrize(
    "changes",
    [{"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}, {"BitsAllocated": 32}, {"BitsStored": 6, "HighBit": 5}],
)
def test_stream_of_another_type_than_the_header(series: Path, changes: dict[str, int]) -> None:
    expected = vio.read(series).array
    for path in series.iterdir():
        dataset = pydicom.dcmread(path)
        for keyword, value in changes.items():
            setattr(dataset, keyword, value)
        dataset.save_as(path)
    try:
        scan = vio.read(series)
    except ImageError:
        return
    assert np.array_equal(scan.array, expected)
