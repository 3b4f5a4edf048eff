"""NIfTI: each way in which a header or a stream can be wrong, and round trips that keep the grid."""

import gzip
import itertools
import tracemalloc
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

import veloxseg.image as vio
from support.scan_samples import SHAPE, oblique_affine, ramp
from veloxseg.errors import GeometryError, ImageError


def save(path: Path, array: np.ndarray, affine: np.ndarray | None = None, **fields: object) -> Path:
    """Writes a .nii with header fields set to any value, past nibabel's own checks."""
    image = nib.Nifti1Image(array, oblique_affine() if affine is None else affine)
    image.set_qform(image.affine, 1)
    image.set_sform(image.affine, 1)
    block = bytearray(image.header.binaryblock)
    header = np.frombuffer(block, nib.nifti1.header_dtype)
    header["vox_offset"], header["magic"] = 352, b"n+1"
    for name, value in fields.items():
        index = name.split("__")
        if len(index) == 2:
            header[index[0]][0][int(index[1])] = value
        else:
            header[name] = value
    data = bytes(block) + bytes(4) + array.tobytes(order="F")
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
    return path


BAD_HEADERS = {
    "no sizes": (dict(dim__0=0), ImageError, "0 dimensions"),
    "too many axes": (dict(dim__0=9), ImageError, "9 dimensions"),
    "zero size": (dict(dim__2=0), ImageError, "positive"),
    "negative size": (dict(dim__1=-8), ImageError, "positive"),
    "2-D": (dict(dim__0=2), ImageError, "2-D"),
    "one slice": (dict(dim__3=1), ImageError, "2-D"),
    "4-D": (dict(dim__0=4, dim__3=3, dim__4=2), ImageError, "--volume"),
    "5-D": (dict(dim__0=5, dim__3=3, dim__5=2), ImageError, "--volume"),
    "more voxels than the file": (dict(dim__1=32000, dim__2=3), ImageError, "ends early: got"),
    "more voxels than the limit": (dict(dim__1=32000, dim__2=32000, dim__3=32000), ImageError, "limit"),
    "RGB": (dict(datatype=128, bitpix=24), ImageError, "RGB"),
    "complex": (dict(datatype=32, bitpix=64), ImageError, "complex"),
    "unknown type": (dict(datatype=77), ImageError, "type 77"),
    "bits": (dict(bitpix=8), ImageError, "8 bits"),
    "spacing 0": (dict(pixdim__1=0), GeometryError, "spacing is 0"),
    "spacing negative": (dict(pixdim__3=-3), GeometryError, "-3"),
    "spacing NaN": (dict(pixdim__2=np.nan), GeometryError, "nan"),
    "sform NaN": (dict(srow_x__0=np.nan), GeometryError, "NaN"),
    "singular": (
        dict(qform_code=0, srow_x=(1, 1, 0, 0), srow_y=(1, 1, 0, 0), srow_z=(0, 0, 1, 0)),
        GeometryError,
        "singular",
    ),
    "axis of no length": (dict(qform_code=0, srow_x__0=0, srow_y__0=0, srow_z__0=0), GeometryError, "spacing"),
    "sheared": (
        dict(qform_code=0, srow_x=(1, 0.1, 0, 0), srow_y=(0, 1, 0, 0), srow_z=(0, 0, 1, 0)),
        GeometryError,
        "sheared",
    ),
    "sform and qform": (dict(qoffset_x=-30.0), GeometryError, "disagree by up to 1.5 mm"),
    "quaternion": (dict(quatern_b=2.0), GeometryError, "rotation"),
    "handedness": (dict(pixdim__0=7), GeometryError, "handedness"),
    "offset inside": (dict(vox_offset=100), ImageError, "byte 100"),
    "offset NaN": (dict(vox_offset=np.nan), ImageError, "byte nan"),
    "offset in the extender": (dict(vox_offset=348), ImageError, "byte 348"),
    "offset before the voxels": (dict(vox_offset=351), ImageError, "byte 351"),
    "offset between bytes": (dict(vox_offset=352.5), ImageError, "byte 352.5"),
    "offset before the file": (dict(vox_offset=-352), ImageError, "byte -352"),
    "Analyze": (dict(magic=b"\0\0\0\0"), ImageError, "Analyze"),
    "magic of a pair": (dict(magic=b"ni1"), ImageError, "voxels lie in a file of their own"),
    "magic of NIfTI-2": (dict(magic=b"n+2"), ImageError, "magic b'n+2"),
    "magic and more": (dict(magic=b"n+1x"), ImageError, "magic b'n+1x'"),
    "slope without intercept": (dict(scl_slope=2, scl_inter=np.nan), ImageError, "intercept nan"),
    "slope Inf": (dict(scl_slope=np.inf), ImageError, "slope is inf"),
    "unknown sform code": (dict(sform_code=6), GeometryError, "sform_code is 6"),
    "negative qform code": (dict(qform_code=-1), GeometryError, "qform_code is -1"),
    "unknown unit": (dict(xyzt_units=5), GeometryError, "unknown code 5"),
    "no forms, huge spacing": (dict(sform_code=0, qform_code=0, pixdim__1=1000), GeometryError, "1000 × 2 × 3 mm"),
    "no forms, tiny spacing": (dict(sform_code=0, qform_code=0, pixdim__3=1e-4), GeometryError, "0.0001 mm by the pix"),
    "no forms, metres": (dict(sform_code=0, qform_code=0, xyzt_units=1), GeometryError, "1500 × 2000 × 3000 mm"),
    "qform, huge spacing": (dict(sform_code=0, pixdim__2=101), GeometryError, "101 × 3 mm by the qform"),
    "sform, huge spacing": (
        dict(qform_code=0, srow_x=(0, 0, 101, 0), srow_y=(0, 1, 0, 0), srow_z=(1, 0, 0, 0)),
        GeometryError,
        "1 × 1 × 101 mm by the sform",
    ),
    "micrometres": (dict(xyzt_units=3, qform_code=0, srow_x__0=0.1, srow_y__0=0, srow_z__0=0), GeometryError, "0.0001"),
    "origin far away": (dict(qform_code=0, srow_y__3=1.1e5), GeometryError, "110000"),
    "origin Inf": (dict(sform_code=0, qoffset_z=np.inf), GeometryError, "NaN or Inf"),
}


@pytest.mark.parametrize("name", BAD_HEADERS)
@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_bad_header_gives_its_one_line(tmp_path: Path, name: str, suffix: str) -> None:
    fields, kind, words = BAD_HEADERS[name]
    path = save(tmp_path / f"scan{suffix}", ramp(), **fields)
    with pytest.raises(ImageError) as caught:
        vio.read(path)
    assert type(caught.value) is kind
    if not (suffix == ".nii.gz" and "ends early" in words):  # in gzip the size on disk only bounds the claim
        assert words in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("volume", [0, 1])
def test_volume_picks_from_4d(tmp_path: Path, volume: int) -> None:
    array = np.stack([ramp(), -ramp()], axis=3)
    nib.save(nib.Nifti1Image(array, oblique_affine()), tmp_path / "four.nii.gz")
    assert np.array_equal(vio.read(tmp_path / "four.nii.gz", volume=volume).array, array[..., volume])
    with pytest.raises(ImageError, match="no volume 2"):
        vio.read(tmp_path / "four.nii.gz", volume=2)


def test_truncated_gzip_says_how_much_there_was(tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(0, 1000, (30, 30, 30)).astype(np.int16)
    path = save(tmp_path / "scan.nii.gz", array)
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(ImageError, match=r"ends early: got \d+ of 54352 bytes"):
        vio.read(path)


def test_bad_gzip_checksum(tmp_path: Path) -> None:
    path = save(tmp_path / "scan.nii.gz", ramp())
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(ImageError, match=r"damaged gzip data.*Incorrect checksum"):
        vio.read(path)


def test_plain_nifti_named_gz(tmp_path: Path) -> None:
    save(tmp_path / "scan.nii", ramp()).rename(tmp_path / "scan.nii.gz")
    with pytest.raises(ImageError, match=r"named \.gz and not compressed"):
        vio.read(tmp_path / "scan.nii.gz")


def test_gzip_that_is_named_nii_is_read(tmp_path: Path) -> None:
    save(tmp_path / "scan.nii.gz", ramp()).rename(tmp_path / "scan.nii")
    assert np.array_equal(vio.read(tmp_path / "scan.nii").array, ramp())


def test_gzip_of_several_members(tmp_path: Path) -> None:
    data = save(tmp_path / "scan.nii", ramp()).read_bytes()
    parts = [data[:100], data[100:700], data[700:]]
    (tmp_path / "scan.nii.gz").write_bytes(b"".join(gzip.compress(part) for part in parts))
    assert np.array_equal(vio.read(tmp_path / "scan.nii.gz").array, ramp())


def test_small_file_takes_no_gigabytes(tmp_path: Path) -> None:
    """A header alone, compressed to some dozen bytes, that claims 2 GiB of voxels; and one of 27 bytes."""
    block = save(tmp_path / "scan.nii", ramp(), dim__1=1024, dim__2=1024, dim__3=1000).read_bytes()[:352]
    (tmp_path / "bomb.nii.gz").write_bytes(gzip.compress(block))
    (tmp_path / "tiny.nii.gz").write_bytes(gzip.compress(bytes(3))[:27].ljust(27, b"\0"))
    tracemalloc.start()
    for name, words in {
        "bomb.nii.gz": "more than a file of",
        "scan.nii": "ends early",
        "tiny.nii.gz": "ends early",
    }.items():
        with pytest.raises(ImageError, match=words):
            vio.read(tmp_path / name)
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_gzip_bomb_stops_soon_after_the_claim(tmp_path: Path) -> None:
    """The header claims 672 bytes, the stream holds 300 MB of zeros."""
    data = save(tmp_path / "scan.nii", ramp()).read_bytes()
    with gzip.open(tmp_path / "bomb.nii.gz", "wb", 1) as file:
        file.write(data)
        for _ in range(300):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    with pytest.raises(ImageError, match="goes on after the 1024 bytes"):
        vio.read(tmp_path / "bomb.nii.gz")
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_values_that_are_no_image(tmp_path: Path) -> None:
    array = ramp().astype(np.float32)
    array[1, 2, 3], array[2, 2, 3], array[0, 0, 0] = np.nan, np.nan, np.inf
    with pytest.raises(ImageError, match="2 NaN and 1 Inf among 336 voxels"):
        vio.read(save(tmp_path / "nan.nii", array))
    with pytest.raises(ImageError, match="every voxel is 7"):
        vio.read(save(tmp_path / "constant.nii", np.full(SHAPE, 7, np.int16)))
    huge = ramp().astype(np.float64)
    huge[0, 0, 0] = 1e300
    with pytest.raises(ImageError, match="0 NaN and 1 Inf"):
        vio.read(save(tmp_path / "huge.nii", huge))


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("kind", ["u1", "i2", "i4", "f4", "f8", "i1", "u2", "u4", "i8", "u8"])
def test_every_number_type_equals_nibabel(tmp_path: Path, kind: str, order: str) -> None:
    array = (ramp() % 100).astype(kind)
    image = nib.Nifti1Image(array, oblique_affine(), nib.Nifti1Header(endianness=order), dtype=kind)
    nib.save(image, tmp_path / "scan.nii.gz")
    ours = vio.read(tmp_path / "scan.nii.gz")
    assert ours.array.dtype == np.float32
    assert np.array_equal(ours.array, nib.load(tmp_path / "scan.nii.gz").get_fdata())


def test_slope_and_intercept_equal_nibabel(tmp_path: Path) -> None:
    path = save(tmp_path / "scan.nii", ramp(), scl_slope=0.25, scl_inter=-1024.0)
    assert np.allclose(vio.read(path).array, nib.load(path).get_fdata(), atol=1e-4)


def orientations() -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(p, s) for p in itertools.permutations(range(3)) for s in itertools.product((1, -1), repeat=3)]


@pytest.mark.parametrize("suffix", [".nii.gz", ".nrrd", ".mha"])
def test_48_orientations_come_back_on_the_same_grid(tmp_path: Path, suffix: str) -> None:
    """Image → labels on its grid → file → the same labels and the same affine, in oblique, anisotropic grids."""
    assert len(orientations()) == 48
    for number, (axes, signs) in enumerate(orientations()):
        shape = tuple(SHAPE[a] for a in axes)
        affine = oblique_affine()
        affine[:3, :3] = affine[:3, list(axes)] * signs
        source = tmp_path / f"image{number}.nii"
        image = nib.Nifti1Image(ramp(shape), affine)
        image.set_qform(affine, 1)
        nib.save(image, source)
        scan = vio.read(source)
        labels = (np.random.default_rng(number).random(shape) > 0.6).astype(np.uint8) * 3
        written = tmp_path / f"labels{number}{suffix}"
        vio.write(replace(scan, array=labels), written)
        back = vio.read_label(written, reference=scan)
        assert np.array_equal(back.array, labels)
        assert np.abs(back.geometry.affine - affine).max() < 1e-4
        if suffix == ".nii.gz":
            assert np.abs(nib.load(written).affine - affine).max() < 1e-4


@pytest.mark.parametrize(
    ("sform", "qform", "units"), [(1, 1, 2), (4, 0, 10), (0, 3, 2), (2, 2, 0), (0, 0, 2), (1, 1, 1), (1, 1, 3)]
)
def test_labels_keep_form_codes_and_units(tmp_path: Path, sform: int, qform: int, units: int) -> None:
    affine = oblique_affine() * ([[0.001]] * 3 + [[1]] if units == 1 else 1)
    path = save(tmp_path / "scan.nii", ramp(), affine, sform_code=sform, qform_code=qform, xyzt_units=units)
    scan = vio.read(path)
    vio.write(replace(scan, array=(ramp() > 5).astype(np.uint8)), tmp_path / "labels.nii.gz")
    header, original = nib.load(tmp_path / "labels.nii.gz").header, nib.load(path).header
    for field in ("sform_code", "qform_code", "xyzt_units"):
        assert header[field] == original[field]
    assert np.allclose(header.get_best_affine(), original.get_best_affine(), atol=1e-4)
    millimetres = {1: 1000, 3: 0.001}.get(units, 1) * np.linalg.norm(original.get_best_affine()[:3, 0])
    assert scan.geometry.spacing[0] == pytest.approx(millimetres, rel=1e-5)


def test_no_orientation_warns_and_another_grid_is_still_kept(tmp_path: Path) -> None:
    scan = vio.read(save(tmp_path / "scan.nii", ramp(), sform_code=0, qform_code=0))
    assert "guess" in scan.warnings[0]
    moved = replace(scan, geometry=vio.Geometry(shape=SHAPE, affine=oblique_affine()))
    vio.write(moved, tmp_path / "moved.nii.gz")
    assert np.allclose(vio.read(tmp_path / "moved.nii.gz").geometry.affine, oblique_affine(), atol=1e-4)


def test_pair_without_its_half(tmp_path: Path) -> None:
    nib.save(nib.Nifti1Pair(ramp(), oblique_affine()), tmp_path / "pair.hdr")
    assert np.array_equal(vio.read(tmp_path / "pair.img").array, ramp())
    (tmp_path / "pair.img").rename(tmp_path / "other.img")
    with pytest.raises(ImageError, match="voxels of this pair are missing"):
        vio.read(tmp_path / "pair.hdr")
    with pytest.raises(ImageError, match="header of this pair is missing"):
        vio.read(tmp_path / "other.img")


def test_one_file_that_is_named_as_a_pair(tmp_path: Path) -> None:
    """Voxels of the .img would be read with the header's offset, or those of the .hdr whatever the .img holds."""
    data = save(tmp_path / "scan.nii", ramp()).read_bytes()
    (tmp_path / "pair.hdr").write_bytes(data)
    for image in (None, ramp().tobytes(order="F")):
        if image is not None:
            (tmp_path / "pair.img").write_bytes(image)
        with pytest.raises(ImageError, match="says that both are one file"):
            vio.read(tmp_path / "pair.hdr")


@pytest.mark.parametrize(("slope", "intercept"), [(0, 5), (np.nan, np.nan), (np.nan, 3), (0, np.inf)])
def test_slopes_that_mean_none(tmp_path: Path, slope: float, intercept: float) -> None:
    path = save(tmp_path / "scan.nii", ramp(), scl_slope=slope, scl_inter=intercept)
    assert np.array_equal(vio.read(path).array, ramp())


def with_extension(data: bytes, offset: float) -> bytes:
    header = bytearray(data[:348])
    np.frombuffer(header, nib.nifti1.header_dtype)["vox_offset"] = offset
    return bytes(header) + b"\1\0\0\0" + np.array([32, 6], "<i4").tobytes() + bytes(24) + data[352:]


def test_header_extension(tmp_path: Path) -> None:
    data = save(tmp_path / "scan.nii", ramp()).read_bytes()
    (tmp_path / "scan.nii").write_bytes(with_extension(data, 384))
    assert np.array_equal(vio.read(tmp_path / "scan.nii").array, ramp())
    (tmp_path / "scan.nii").write_bytes(with_extension(data, 0))
    with pytest.raises(ImageError, match="does not say where the voxels start"):
        vio.read(tmp_path / "scan.nii")


def test_offset_of_zero_means_after_the_header(tmp_path: Path) -> None:
    assert np.array_equal(vio.read(save(tmp_path / "scan.nii", ramp(), vox_offset=0)).array, ramp())


@pytest.mark.parametrize("intent", [0, 3, 1002, 1007, 2001])
def test_intent_does_not_change_voxels(tmp_path: Path, intent: int) -> None:
    path = save(tmp_path / "scan.nii", ramp(), intent_code=intent)
    assert np.array_equal(vio.read(path).array, ramp())


def test_swapped_headers_are_checked_too(tmp_path: Path) -> None:
    image = nib.Nifti1Image(ramp().astype(">i2"), oblique_affine(), nib.Nifti1Header(endianness=">"))
    image.set_qform(image.affine, 1)
    image.header["scl_slope"], image.header["scl_inter"] = 2, 1
    nib.save(image, tmp_path / "scan.nii")
    block = bytearray((tmp_path / "scan.nii").read_bytes())
    header = np.frombuffer(block, nib.nifti1.header_dtype.newbyteorder(">"), 1)
    assert header["dim"][0, 0] == 3
    header["scl_slope"], header["scl_inter"] = 2, 1
    (tmp_path / "scan.nii").write_bytes(block)
    assert np.array_equal(vio.read(tmp_path / "scan.nii").array, ramp() * 2.0 + 1)
    header["vox_offset"] = 350
    (tmp_path / "scan.nii").write_bytes(block)
    with pytest.raises(ImageError, match="byte 350"):
        vio.read(tmp_path / "scan.nii")


def test_unusual_spacing_is_a_warning(tmp_path: Path) -> None:
    for spacing in (60.0, 0.005):
        scan = vio.read(save(tmp_path / "scan.nii", ramp(), np.diag([1, 1, spacing, 1])))
        assert any("unusual" in warning for warning in scan.warnings)
    scan = vio.read(save(tmp_path / "scan.nii", ramp(), np.diag([1, 1, 60.0, 1]), sform_code=0, qform_code=0))
    assert any("unusual" in warning for warning in scan.warnings)


def test_a_source_in_metres_without_forms_keeps_a_new_grid(tmp_path: Path) -> None:
    """A millimetre is a thousandth of the unit: the writer compares in millimetres."""
    path = save(
        tmp_path / "scan.nii", ramp(), np.diag([0.001, 0.001, 0.001, 1]), sform_code=0, qform_code=0, xyzt_units=1
    )
    scan = vio.read(path)
    moved = scan.geometry.affine.copy()
    moved[0, 3] += 0.5
    vio.write(replace(scan, geometry=vio.Geometry(shape=SHAPE, affine=moved)), tmp_path / "moved.nii")
    assert np.allclose(vio.read(tmp_path / "moved.nii").geometry.affine, moved, atol=1e-4)
