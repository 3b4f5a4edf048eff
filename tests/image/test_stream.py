"""The stream of voxels: its checksum is always read, and reading takes the memory of its result."""

import gzip
import struct
import tracemalloc
import zlib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

import veloxseg.image as vio
from support.scan_samples import oblique_affine, ramp
from veloxseg.errors import ImageError

MIB = 1 << 20


def saved(path: Path, array: np.ndarray, order: str = "<", slope: float = 1.0) -> Path:
    header = nib.Nifti1Header(endianness=order)
    image = nib.Nifti1Image(array, oblique_affine(), header, dtype=array.dtype)
    image.header.set_slope_inter(slope, 0)
    nib.save(image, path)
    return path


def plain(folder: Path) -> bytes:
    return saved(folder / "plain.nii", ramp()).read_bytes()


@pytest.mark.parametrize("cut", range(1, 12))
def test_gzip_cut_inside_its_checksum(tmp_path: Path, cut: int) -> None:
    (tmp_path / "scan.nii.gz").write_bytes(gzip.compress(plain(tmp_path))[:-cut])
    for read in (vio.read, vio.read_label):
        with pytest.raises(ImageError, match="ends early"):
            read(tmp_path / "scan.nii.gz")


@pytest.mark.parametrize("cut", range(1, 6))
def test_zlib_cut_inside_its_checksum(tmp_path: Path, cut: int) -> None:
    header = "NDims = 3\nDimSize = 8 7 6\nElementType = MET_SHORT\nCompressedData = True\nElementDataFile = LOCAL\n"
    data = zlib.compress(ramp().tobytes(order="F"))
    (tmp_path / "scan.mha").write_bytes(header.encode() + data)
    assert np.array_equal(vio.read(tmp_path / "scan.mha").array, ramp())
    (tmp_path / "scan.mha").write_bytes(header.encode() + data[:-cut])
    with pytest.raises(ImageError, match="ends early"):
        vio.read(tmp_path / "scan.mha")


def damaged(member: bytes, at: int) -> bytes:
    return member[:at] + bytes([member[at] ^ 1]) + member[at + 1 :] if at + 1 else member[:at] + bytes([member[at] ^ 1])


def test_every_member_has_its_right_checksum(tmp_path: Path) -> None:
    """Members end in the middle of voxels, exactly with the last voxel, and after it."""
    data = plain(tmp_path)
    members = [gzip.compress(part) for part in (data[:500], data[500:], b"")]
    path = tmp_path / "scan.nii.gz"
    path.write_bytes(b"".join(members))
    assert np.array_equal(vio.read(path).array, ramp())
    for number in range(3):
        for at in range(-8, 0):  # four bytes of checksum, four of length
            wrong = [damaged(member, at) if n == number else member for n, member in enumerate(members)]
            path.write_bytes(b"".join(wrong))
            with pytest.raises(ImageError, match="damaged gzip data"):
                vio.read(path)
    for cut in range(1, len(members[2]) - 1):
        path.write_bytes(b"".join(members)[:-cut])
        with pytest.raises(ImageError, match="ends early"):
            vio.read(path)


def test_bytes_after_the_compressed_stream(tmp_path: Path) -> None:
    packed = gzip.compress(plain(tmp_path))
    path = tmp_path / "scan.nii.gz"
    path.write_bytes(packed + bytes(1000))  # padding
    assert vio.read(path).warnings == ()
    path.write_bytes(packed + b"more")
    assert vio.read(path).warnings == ("4 bytes after the last voxel were ignored",)


def peak_of(read: object, *given: object, **named: object) -> tuple[vio.Volume, int]:
    """What reading takes beyond its result, in bytes."""
    tracemalloc.start()
    try:
        volume = read(*given, **named)  # type: ignore[operator]
        return volume, tracemalloc.get_traced_memory()[1] - volume.array.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize(("kind", "order"), [(np.float64, "<"), (np.int16, ">")])
def test_reading_takes_the_memory_of_its_result(tmp_path: Path, suffix: str, kind: type, order: str) -> None:
    array = (np.arange(200**3) % 2003).astype(kind).reshape((200, 200, 200), order="F")
    path = saved(tmp_path / f"scan{suffix}", array, order, slope=2.0)
    vio.read(saved(tmp_path / "small.nii", ramp()))  # so that modules are loaded
    scan, more = peak_of(vio.read, path)
    assert more < 5 * MIB
    assert np.array_equal(scan.array, array.astype(np.float32) * 2)


def test_reading_labels_takes_the_memory_of_their_result(tmp_path: Path) -> None:
    array = np.zeros((200, 200, 200), np.float64)
    array[50:60, :, 100:] = 3
    path = saved(tmp_path / "label.nii.gz", array)
    vio.read(saved(tmp_path / "small.nii", ramp()))
    label, more = peak_of(vio.read_label, path)
    assert more < 10 * MIB
    assert np.array_equal(label.array, array)
    array[0, 0, -1] = 300  # the last run needs more than a byte
    label, more = peak_of(vio.read_label, saved(path, array))
    assert label.array.dtype == np.uint16
    assert more < array.size + 10 * MIB
    assert np.array_equal(label.array, array)


def interleaved(path: Path, shape: tuple[int, int, int], volumes: int, encoding: str) -> Path:
    header = (
        f"NRRD0004\ntype: short\ndimension: 4\nspace: LPS\nsizes: {volumes} {' '.join(map(str, shape))}\n"
        f"space directions: none (1,0,0) (0,1,0) (0,0,1)\nendian: little\nencoding: {encoding}\n\n"
    )
    with open(path, "wb") as file:
        file.write(header.encode())
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        for voxel in range(int(np.prod(shape))):  # in volume k, voxel v has the value v + k
            numbers = np.arange(voxel, voxel + volumes).astype("<i2").tobytes()
            file.write(packer.compress(numbers) if encoding == "gzip" else numbers)
        file.write(packer.flush() if encoding == "gzip" else b"")
    return path


@pytest.mark.parametrize("encoding", ["raw", "gzip"])
@pytest.mark.parametrize("volumes", [2, 3, 50_000, 900_001])  # the last are more than a run holds
def test_volumes_that_alternate_voxel_by_voxel(tmp_path: Path, volumes: int, encoding: str) -> None:
    shape = (2, 3, 4) if volumes > 9 else (40, 30, 20)
    path = interleaved(tmp_path / "list.nrrd", shape, volumes, encoding)
    expected = np.arange(np.prod(shape)).reshape(shape, order="F")
    for pick in (0, 1, volumes - 1):
        scan, more = peak_of(vio.read, path, volume=pick)
        assert np.array_equal(scan.array, (expected + pick).astype(np.int16))
        assert more < 5 * MIB


def test_runs_equal_one_conversion(tmp_path: Path) -> None:
    """Longer than a run, of a size that no run divides."""
    array = np.random.default_rng(3).normal(size=(131, 97, 61))
    path = tmp_path / "scan.nii"
    saved(path, array, slope=np.float32(0.1))
    data = bytearray(path.read_bytes())
    data[116:120] = struct.pack("<f", -7.3)  # scl_inter
    path.write_bytes(data)
    stored = np.frombuffer(data[352:], "<f8").astype(np.float32)
    expected = (stored * np.float32(0.1) + np.float32(-7.3)).reshape(array.shape, order="F")
    assert vio.read(path).array.tobytes() == expected.tobytes()


def test_counts_of_bad_voxels_go_over_all_runs(tmp_path: Path) -> None:
    array = np.zeros((110, 110, 110), np.float32)
    array[0, 0, 0], array[-1, -1, -1], array[5, 5, 55] = np.nan, np.nan, np.inf
    path = saved(tmp_path / "scan.nii.gz", array)
    with pytest.raises(ImageError, match="2 NaN and 1 Inf among 1331000 voxels"):
        vio.read(path)
    with pytest.raises(ImageError, match="3 of 1331000 voxels are not whole"):
        vio.read_label(path)
    array = np.zeros((110, 110, 110), np.int32)
    array[0, 0, 0], array[-1, -1, -1] = -3, 70000
    with pytest.raises(ImageError, match="-3 is negative"):
        vio.read_label(saved(path, array))
