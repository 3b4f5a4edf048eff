"""The table of formats: what it says of names and first bytes, and one case in two files."""

import doctest
from pathlib import Path

import numpy as np
import pytest

from veloxseg.errors import DatasetError
from veloxseg.image import Geometry, Volume, formats
from veloxseg.image.formats import (
    FORMATS,
    function,
    images_by_case,
    is_image_name,
    is_output_name,
    output_choices,
    output_suffix,
    recognised,
    without_suffix,
)


def test_examples() -> None:
    assert doctest.testmod(formats) == (0, 1)


def test_every_function_of_the_table_exists() -> None:
    for form in FORMATS.values():
        for name in (form.header, form.writer, form.image, form.label):
            assert not name or callable(function(name))
        assert set(form.writes) <= set(form.suffixes)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("a.nii.gz", "a"),
        ("a.b.NII.GZ", "a.b"),
        ("a.seg.nrrd", "a"),
        ("a.nrrd", "a"),
        ("a.nhdr", "a"),
        ("a.hdr.gz", "a"),
        ("a.mhd", "a"),
        ("a.dcm", "a"),
        ("a.txt", "a.txt"),
        ("a", "a"),
        (".nii.gz", ".nii.gz"),
    ],
)
def test_name_of_a_case(name: str, case: str) -> None:
    assert without_suffix(name) == case


def test_names_of_images() -> None:
    assert [name for name in ("a.nii", "a.NRRD", "a.hdr", "a.mha") if not is_image_name(name)] == []
    assert [name for name in ("a.img", "a.raw", "a.dcm", "._a.nii", ".nii", "a.txt") if is_image_name(name)] == []
    assert is_output_name("mask.DCM")
    assert is_output_name("mask.nii")
    assert not is_output_name("mask.hdr")
    assert not is_output_name("masks")


def test_choices_of_the_command_line() -> None:
    assert output_choices() == {"nifti": ".nii.gz", "nrrd": ".nrrd", "mha": ".mha", "dicom-seg": ".dcm"}


def test_first_bytes_come_before_the_name() -> None:
    assert recognised("scan.nii", b"NRRD0004\n") == "nrrd"
    assert recognised("scan", bytes(128) + b"DICM") == "dicom"
    assert recognised("scan.nrrd", b"ObjectType = Image") == "meta"
    assert recognised("scan.mha", b"?") == "meta"
    assert recognised("scan", b"\x1f\x8b") == "nifti"


def test_suffix_of_a_source() -> None:
    grid = Geometry(shape=(2, 2, 2), affine=np.eye(4))
    for file_type, header, suffix in (
        ("nifti", {}, ".nii.gz"),
        ("nifti", {"suffix": ".nii"}, ".nii"),
        ("nifti", {"suffix": ".exe"}, ".nii.gz"),
        ("meta", {}, ".mha"),
        ("dicom", {}, ".dcm"),
    ):
        volume = Volume(array=None, geometry=grid, file_type=file_type, header=header)  # type: ignore[arg-type]
        assert output_suffix(volume) == suffix


def test_one_case_in_two_files_is_refused_with_both_names(tmp_path: Path) -> None:
    for name in ("b.nii.gz", "a.mha", "notes.txt", "._b.nii.gz", "pair.hdr", "pair.img"):
        (tmp_path / name).touch()
    assert {case: path.name for case, path in images_by_case(tmp_path).items()} == {
        "a": "a.mha",
        "b": "b.nii.gz",
        "pair": "pair.hdr",
    }
    (tmp_path / "b.nii").touch()
    with pytest.raises(DatasetError, match=r"case 'b' is in .* twice \(b\.nii, b\.nii\.gz\); remove one"):
        images_by_case(tmp_path)
