"""Paths: what is missing, empty, unreadable or no image; spaces and unicode; nothing of the patient in a message.

Image objects of nibabel and SimpleITK become the same volume as their files.
"""

import os
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk

import veloxseg.image as vio
from support.scan_samples import SHAPE, oblique_affine, ramp, write_samples
from veloxseg.errors import GeometryError, ImageError, OutputError, VeloxSegError
from veloxseg.image.itk import to_simpleitk

GRID = vio.Geometry(shape=SHAPE, affine=oblique_affine())


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


def test_paths_that_no_system_takes(tmp_path: Path) -> None:
    undecodable = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 \xff.nii")
    long = tmp_path / ("x" * 5000) / "scan.nii.gz"
    deep = tmp_path.joinpath(*["y" * 200] * 25, "scan.nii")
    volume = vio.Volume(array=ramp(), geometry=GRID)
    for path in (long, deep, undecodable, str(tmp_path) + "/a\0b.nii"):
        for read in (vio.read, vio.read_label, vio.read_header):
            with pytest.raises(ImageError) as caught:
                read(path)
            said = str(caught.value)
            assert "\n" not in said
            assert len(said) < 600
            said.encode()  # it can be printed
    for path in (long, deep, tmp_path / ("x" * 300 + ".nii"), tmp_path / "a\0b.nrrd", tmp_path / "a\0b.nii"):
        with pytest.raises(OutputError) as refused:
            vio.write(volume, path)
        assert "\n" not in str(refused.value)
        assert len(str(refused.value)) < 600
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
def test_names_that_are_no_unicode_are_written_and_read(tmp_path: Path, suffix: str) -> None:
    """A folder of a latin-1 system: the bytes of its name are no UTF-8."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    path = folder / os.fsdecode(b"m\xfcller" + suffix.encode())
    volume = vio.Volume(array=ramp(), geometry=GRID)
    vio.write(volume, path)
    assert np.array_equal(vio.read(path).array, ramp())
    with pytest.raises(ImageError, match="does not exist") as caught:
        vio.read(folder / os.fsdecode(b"m\xe4ller.nii"))
    str(caught.value).encode()


def test_too_little_memory_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nib.save(nib.Nifti1Image(ramp(), oblique_affine()), tmp_path / "scan.nii")

    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("veloxseg.image.reader.read_voxels", no_memory)
    with pytest.raises(ImageError, match="not enough memory"):
        vio.read(tmp_path / "scan.nii")


def test_import_is_light() -> None:
    """Reading NIfTI needs neither torch nor SimpleITK nor pydicom."""
    code = "import sys; from veloxseg.image import read, write; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "numpy" in loaded
    assert not {"torch", "SimpleITK", "pydicom", "highdicom", "scipy", "matplotlib", "nibabel"} & set(loaded)


def test_both_libraries_give_one_volume() -> None:
    for image in (nib.Nifti1Image(ramp(), oblique_affine()), to_simpleitk(ramp(), GRID)):
        scan = vio.from_image(image)
        assert np.array_equal(scan.array, ramp())
        assert scan.array.dtype == np.float32
        assert scan.geometry.distance(GRID) < 1e-4
    assert vio.from_image(scan) is scan


def test_it_does_not_share_memory_with_the_image() -> None:
    array = ramp().astype(np.float32)
    scan = vio.from_image(nib.Nifti1Image(array, oblique_affine()))
    scan.array[:] = 0
    assert array.max() == ramp().max()


def test_4d_needs_a_choice() -> None:
    four = np.stack([ramp(), -ramp()], axis=3)
    joined = sitk.JoinSeries([to_simpleitk(array, GRID) for array in (ramp(), -ramp())])
    for image in (nib.Nifti1Image(four, oblique_affine()), joined):
        with pytest.raises(ImageError, match="--volume"):
            vio.from_image(image)
        assert np.array_equal(vio.from_image(image, volume=1).array, -ramp())


def test_objects_that_are_no_volume() -> None:
    sheared = oblique_affine()
    sheared[0, 1] += 1
    nan = ramp().astype(np.float32)
    nan[0, 0, 0] = np.nan
    torn = nib.Nifti1Image(ramp(), oblique_affine())
    torn.header.set_qform(np.diag([1.5, 2, 3, 1]), code=1)
    cases = [
        (torn, GeometryError, "sform and qform disagree"),
        (ramp(), ImageError, "ndarray is not an image"),
        (nib.Nifti1Image(ramp()[:, :, 0], oblique_affine()), ImageError, "2-D"),
        (nib.Nifti1Image(ramp().astype(np.complex64), oblique_affine()), ImageError, "complex"),
        (nib.Nifti1Image(ramp(), sheared), GeometryError, "sheared"),
        (nib.Nifti1Image(nan, oblique_affine()), ImageError, "1 NaN"),
        (nib.Nifti1Image(ramp(), None), ImageError, "without an affine"),
        (sitk.Image([8, 7], sitk.sitkInt16), ImageError, "2-D"),
        (sitk.Image([8, 7, 6], sitk.sitkVectorUInt8, 3), ImageError, "colours"),
        (sitk.Image([8, 7, 6], sitk.sitkInt16), ImageError, "every voxel is 0"),
    ]
    for image, kind, words in cases:
        with pytest.raises(kind, match=words):
            vio.from_image(image)
