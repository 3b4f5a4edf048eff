"""Writing: whole or not at all, of the type of the source, on its grid."""

import os
import resource
import time
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk

import veloxseg.image as vio
from support.scan_samples import SHAPE, oblique_affine, ramp, write_samples
from veloxseg.errors import OutputError


def volume(array: np.ndarray | None = None) -> vio.Volume:
    affine = oblique_affine()
    return vio.Volume(array=ramp() if array is None else array, geometry=vio.Geometry(shape=SHAPE, affine=affine))


def test_labels_come_back_as_the_type_of_their_source(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "scans")
    suffixes = {"plain.nii": ".nii", "packed.nii.gz": ".nii.gz", "b.nrrd": ".nrrd", "d.mha": ".mha", "series": ".dcm"}
    for name, suffix in suffixes.items():
        scan = vio.read(samples[name])
        assert vio.output_suffix(scan) == suffix
        labels = replace(scan, array=(ramp() % 3).astype(np.uint8))
        path = tmp_path / f"labels{suffix}"
        if suffix == ".dcm":
            vio.write_dicom_seg(labels, samples[name], path, {1: "a", 2: "b"})
        else:
            vio.write(labels, path)
        back = vio.read_label(path, reference=scan)
        assert np.array_equal(back.array, labels.array)


def test_other_libraries_read_what_we_write(tmp_path: Path) -> None:
    scan = volume()
    vio.write(scan, tmp_path / "a.nii.gz")
    loaded = nib.load(tmp_path / "a.nii.gz")
    assert np.array_equal(loaded.get_fdata(), scan.array)
    assert np.allclose(loaded.get_qform(), loaded.get_sform(), atol=1e-4)
    for name in ("a.nii.gz", "b.nrrd", "c.mha"):
        vio.write(scan, tmp_path / name)
        image = sitk.ReadImage(str(tmp_path / name))
        assert np.array_equal(sitk.GetArrayFromImage(image).T, scan.array)
        assert image.GetSpacing() == pytest.approx(scan.geometry.spacing, rel=1e-5)
        x, y, z, _ = scan.geometry.affine @ [3, 2, 1, 1]
        assert image.TransformIndexToPhysicalPoint((3, 2, 1)) == pytest.approx((-x, -y, z), abs=1e-3)


@pytest.mark.parametrize("kind", [bool, np.uint8, np.uint16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".nrrd", ".mha"])
def test_number_types(tmp_path: Path, kind: type, suffix: str) -> None:
    scan = volume((ramp() % 2).astype(kind))
    vio.write(scan, tmp_path / f"scan{suffix}")
    assert np.array_equal(vio.read(tmp_path / f"scan{suffix}").array, scan.array)


def test_same_volume_same_bytes(tmp_path: Path) -> None:
    vio.write(volume(), tmp_path / "a.nii.gz")
    time.sleep(1.1)  # gzip keeps a time of whole seconds
    vio.write(volume(), tmp_path / "b.nii.gz")
    assert (tmp_path / "a.nii.gz").read_bytes() == (tmp_path / "b.nii.gz").read_bytes()


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
def test_nothing_is_left_where_it_cannot_be_written(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(OutputError):
        vio.write(volume(), tmp_path / "no such folder" / f"scan{suffix}")
    with pytest.raises(OutputError, match="unknown type"):
        vio.write(volume(), tmp_path / "scan.xyz")
    old = tmp_path / f"old{suffix}"
    old.write_bytes(b"before")
    broken = replace(volume(), array=ramp().astype(complex) if suffix != ".nii.gz" else np.empty(SHAPE, object))
    with pytest.raises(OutputError, match="voxels of type"):
        vio.write(broken, old)
    assert old.read_bytes() == b"before"
    assert os.listdir(tmp_path) == [old.name]


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz", ".nrrd", ".mha"])
def test_full_disk_leaves_the_old_file(tmp_path: Path, suffix: str, capfd: pytest.CaptureFixture[str]) -> None:
    """No file may grow beyond two kilobytes here, as on a full disk."""
    noise = np.random.default_rng(0).random((20, 20, 20)).astype(np.float32)
    scan = vio.Volume(array=noise, geometry=vio.Geometry(shape=noise.shape, affine=oblique_affine()))
    path = tmp_path / f"scan{suffix}"
    path.write_bytes(b"before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OutputError, match="cannot write"):
            vio.write(scan, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"before"
    assert os.listdir(tmp_path) == [path.name]
    assert capfd.readouterr() == ("", "")


def test_shape_must_fit_the_grid(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="8 × 7 × 5 voxels for a grid of 8 × 7 × 6"):
        vio.write(replace(volume(), array=ramp()[:, :, :5]), tmp_path / "scan.nii.gz")
