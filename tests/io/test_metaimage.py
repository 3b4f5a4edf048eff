"""MetaImage: files of SimpleITK read back, and each way in which a header can be wrong.

SimpleITK itself reads a damaged compressed file without a word, and fills a file that is too short with zeros.
"""

import zlib
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from scan_samples import SHAPE, oblique_affine, ramp

import veloxseg.io as vio
from veloxseg.errors import GeometryError, ImageError
from veloxseg.io.itk import to_simpleitk

GRID = vio.Geometry(shape=SHAPE, affine=oblique_affine())
HEADER = {
    "ObjectType": "Image",
    "NDims": "3",
    "BinaryData": "True",
    "BinaryDataByteOrderMSB": "False",
    "CompressedData": "False",
    "TransformMatrix": "1 0 0 0 1 0 0 0 1",
    "Offset": "1 2 3",
    "ElementSpacing": "1.5 2 3",
    "DimSize": "8 7 6",
    "ElementType": "MET_SHORT",
    "ElementDataFile": "LOCAL",
}


def save(path: Path, data: bytes | None = None, **changes: str | None) -> Path:
    fields = HEADER | changes
    fields["ElementDataFile"] = fields.pop("ElementDataFile")  # the last line, always
    text = "".join(f"{name} = {value}\n" for name, value in fields.items() if value is not None)
    path.write_bytes(text.encode() + (ramp().tobytes(order="F") if data is None else data))
    return path


@pytest.mark.parametrize("name", ["scan.mha", "scan.mhd"])
@pytest.mark.parametrize("packed", [True, False])
def test_files_of_simpleitk(tmp_path: Path, name: str, packed: bool) -> None:
    sitk.WriteImage(to_simpleitk(ramp(), GRID), str(tmp_path / name), packed)
    scan = vio.read(tmp_path / name)
    assert np.array_equal(scan.array, ramp())
    assert scan.geometry.distance(GRID) < 1e-4
    assert vio.output_suffix(scan) == ".mha"


def test_other_spellings(tmp_path: Path) -> None:
    swapped = save(tmp_path / "a.mha", ramp().astype(">i2").tobytes(order="F"), BinaryDataByteOrderMSB="True")
    old = save(tmp_path / "b.mha", TransformMatrix=None, Offset=None, Position="1 2 3")
    packed = save(tmp_path / "c.mha", zlib.compress(ramp().tobytes(order="F")), CompressedData="True")
    for path in (swapped, old, packed):
        scan = vio.read(path)
        assert np.array_equal(scan.array, ramp())
        assert scan.geometry.origin == pytest.approx((-1, -2, 3))


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"DimSize": "4000 3000 200"}, ImageError, "limit"),
        ({"DimSize": "400 300 200"}, ImageError, "ends early: got 672 of 48000000 bytes"),
        (
            {"DimSize": "400 300 200", "CompressedData": "True"},
            ImageError,
            "more than a file of 672 bytes can hold",
        ),
        ({"DimSize": "8 7 0"}, ImageError, "positive"),
        ({"DimSize": "8 7"}, ImageError, "NDims '3' and 2 sizes"),
        ({"DimSize": "56 6", "NDims": "2"}, ImageError, "2-D"),
        ({"DimSize": "8 7 3 2", "NDims": "4"}, ImageError, "TransformMatrix"),
        ({"NDims": None}, ImageError, "lacks 'NDims'"),
        ({"ElementType": "MET_OTHER"}, ImageError, "'MET_OTHER'"),
        ({"ElementNumberOfChannels": "3"}, ImageError, "3 channels"),
        ({"ElementSpacing": "0 2 3"}, GeometryError, "spacing is 0 × 2 × 3"),
        ({"ElementSpacing": "nan 2 3"}, GeometryError, "nan"),
        ({"ElementSpacing": "1 -2 3"}, GeometryError, "-2"),
        ({"ElementSpacing": "1 2 z"}, ImageError, "ElementSpacing"),
        ({"TransformMatrix": "1 0 0 0 1 0 0 0"}, ImageError, "8 numbers"),
        ({"TransformMatrix": "1 0 0 0.2 1 0 0 0 1"}, GeometryError, "sheared"),
        ({"TransformMatrix": "1 0 0 1 0 0 0 0 1"}, GeometryError, "singular"),
        ({"Offset": "1 2"}, ImageError, "2 numbers in the Offset"),
        ({"BinaryData": "False"}, ImageError, "text"),
        ({"HeaderSize": "-1"}, ImageError, "HeaderSize"),
        ({"ElementDataFile": "LIST"}, ImageError, "one file per slice"),
        ({"ElementDataFile": "/etc/hostname"}, ImageError, "outside of its folder"),
        ({"ElementDataFile": "gone.raw"}, ImageError, "'gone.raw' is missing"),
        ({"ElementDataFile": None}, ImageError, "lacks 'ElementDataFile'"),
    ],
)
def test_bad_header_gives_its_one_line(tmp_path: Path, changes: dict, kind: type, words: str) -> None:
    with pytest.raises(ImageError) as caught:
        vio.read(save(tmp_path / "scan.mha", **changes))
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_truncated_and_damaged_compression(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = zlib.compress(ramp().tobytes(order="F"))
    with pytest.raises(ImageError, match="ends early"):
        vio.read(save(tmp_path / "cut.mha", data[:-100], CompressedData="True"))
    flipped = data[:60] + bytes([data[60] ^ 0x55]) + data[61:]
    with pytest.raises(ImageError, match="damaged zlib"):
        vio.read(save(tmp_path / "flipped.mha", flipped, CompressedData="True"))
    assert capfd.readouterr() == ("", "")
