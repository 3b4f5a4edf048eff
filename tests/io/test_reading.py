"""Paths: what is missing, empty, unreadable or no image; spaces and unicode; nothing of the patient in a message."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scan_samples import SHAPE, ramp, write_samples

import veloxseg.io as vio
from veloxseg.errors import ImageError, VeloxSegError


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_samples(tmp_path_factory.mktemp("ünïcödé with spaces 肺") / "scans")


def test_every_type_reads_from_a_path_with_spaces_and_unicode(samples: dict[str, Path]) -> None:
    reference = vio.read(samples["plain.nii"])
    for name, path in samples.items():
        if name in ("series", "seg", "rtstruct"):
            continue
        scan = vio.read(str(path))
        assert np.array_equal(scan.array, ramp()), name
        assert scan.array.dtype == np.float32
        assert scan.geometry.distance(reference.geometry) < 1e-3, name
        header = vio.read_header(path)
        assert header.shape == SHAPE
        assert header.same_grid(scan.geometry)
        assert header.dtype == np.int16
        assert scan.source == path
    assert vio.read(samples["series"]).geometry.shape == SHAPE


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.nii.gz", None, "does not exist"),
        ("empty.nii.gz", b"", "is empty"),
        ("empty.dcm", b"", "is empty"),
        ("text.nii", b"this is no image, " * 50, "not an image of a known type"),
        ("short.nii", b"\x5c\x01\0\0" + bytes(23), "ends early: got 27 of 348"),
        ("picture.png", b"\x89PNG\r\n\x1a\n" + bytes(500), "not an image of a known type"),
        ("text.dcm", b"this is no image, " * 50, "DICOM"),
        ("text.mha", b"this is no image, " * 50, "lacks 'NDims'"),
        ("text.nrrd", b"this is no image, " * 50, "not an image of a known type"),
        ("only.nrrd", b"NRRD0004\n", "lacks 'type'"),
    ],
)
def test_no_image(tmp_path: Path, name: str, content: bytes | None, words: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    for read in (vio.read, vio.read_label, vio.read_header):
        with pytest.raises(ImageError, match=words) as caught:
            read(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_folder_without_dicom_and_special_files(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no DICOM images here"):
        vio.read(tmp_path)
    (tmp_path / "readme.txt").write_text("hello")
    with pytest.raises(ImageError, match="no DICOM images here"):
        vio.read(tmp_path)
    os.mkfifo(tmp_path / "pipe.nii")  # opening it would wait for ever
    with pytest.raises(ImageError, match="neither a file nor a folder"):
        vio.read(tmp_path / "pipe.nii")


def test_limit_of_voxels(samples: dict[str, Path]) -> None:
    for name, path in samples.items():
        if name not in ("seg", "rtstruct"):
            with pytest.raises(ImageError, match="more than the limit of 300"):
                vio.read(path, max_voxels=300)


def test_messages_hold_nothing_of_the_patient(samples: dict[str, Path]) -> None:
    for arguments in ({"series": "PT"}, {"volume": 3}, {"max_voxels": 10}):
        with pytest.raises(VeloxSegError) as caught:
            vio.read(samples["series"], **arguments)
        assert "SECRET" not in str(caught.value).upper()
        assert "1970" not in str(caught.value)
    assert "SECRET" not in str(vio.read(samples["series"]).header).upper()


def test_import_is_light() -> None:
    """Reading NIfTI needs neither torch nor SimpleITK nor pydicom."""
    code = "import sys, veloxseg.io; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "numpy" in loaded
    assert not {"torch", "SimpleITK", "pydicom", "highdicom", "scipy", "matplotlib", "nibabel"} & set(loaded)
