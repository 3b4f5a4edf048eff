"""The content of a scan is known again, however its file changes, and differs for every other scan."""

import itertools
from dataclasses import replace
from pathlib import Path

import nibabel
import numpy as np
import pytest

from support.scan_samples import write_series
from veloxseg.image import Geometry, Volume, read, write
from veloxseg.image.content import content_hash

SHAPE = (7, 6, 5)


@pytest.fixture
def scan() -> Volume:
    array = np.random.default_rng(0).integers(-1000, 1000, SHAPE).astype(np.float32)
    affine = np.diag([1.5, 2.0, 3.0, 1.0])
    affine[:3, 3] = -11.3, 4.7, 100.1
    return Volume(array=np.asfortranarray(array), geometry=Geometry(shape=SHAPE, affine=affine))


@pytest.mark.parametrize("name", ["a.nii", "b.nii.gz", "c.nrrd", "d.mha"])
def test_every_file_type_has_the_same_content(scan: Volume, tmp_path: Path, name: str) -> None:
    write(scan, tmp_path / name)
    assert content_hash(read(tmp_path / name)) == content_hash(scan)


def test_a_dicom_series_and_the_nifti_made_of_it_are_the_same_scan(tmp_path: Path) -> None:
    series = read(write_series(tmp_path / "ct"))
    write(series, tmp_path / "ct.nii.gz")
    assert content_hash(read(tmp_path / "ct.nii.gz")) == content_hash(series)


@pytest.mark.shared
def test_a_real_patient_as_dicom_and_as_nifti_is_the_same(shared: Path) -> None:
    for kind in ("CT", "PET"):
        series = read(shared / "data" / "sts_dicom" / "STS_002" / kind / "image")
        file = read(shared / "data" / "sts_petct" / "STS_002" / f"{kind}_image.nii.gz")
        assert content_hash(series) == content_hash(file)


def test_byte_order_and_stored_type_do_not_matter(scan: Volume, tmp_path: Path) -> None:
    for kind in (">f4", "<i2", ">f8"):
        nibabel.save(nibabel.Nifti1Image(scan.array.astype(kind), scan.geometry.affine), tmp_path / "x.nii")
        assert content_hash(read(tmp_path / "x.nii")) == content_hash(scan)


def test_the_order_of_axes_does_not_matter(scan: Volume) -> None:
    expected = content_hash(scan)
    for axes in itertools.permutations(range(3)):
        for flips in itertools.product((False, True), repeat=3):
            array, affine = scan.array.transpose(axes), scan.geometry.affine[:, [*axes, 3]].copy()
            for axis in np.flatnonzero(flips):
                affine[:, 3] += affine[:, axis] * (array.shape[axis] - 1)
                affine[:, axis] *= -1
                array = np.flip(array, axis)
            turned = Volume(array=array, geometry=Geometry(shape=array.shape, affine=affine))  # type: ignore[arg-type]
            assert content_hash(turned) == expected


def test_another_scan_has_another_content(scan: Volume) -> None:
    one_voxel = scan.array.copy()
    one_voxel[3, 3, 3] += 1
    mirrored = replace(scan, array=scan.array[::-1])
    longer = Geometry(shape=(7, 5, 6), affine=scan.geometry.affine)
    reshaped = Volume(array=scan.array.reshape(7, 5, 6, order="F"), geometry=longer)
    others = [content_hash(other) for other in (replace(scan, array=one_voxel), mirrored, reshaped)]
    assert len({content_hash(scan), *others}) == 4
