"""MetaImage: files of SimpleITK read back, and each way in which a header can be wrong.

SimpleITK itself reads a damaged compressed file without a word, and fills a file that is too short with zeros.
"""

import zlib
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

import veloxseg.image as vio
from support.scan_samples import SHAPE, oblique_affine, ramp
from veloxseg.errors import GeometryError, ImageError
from veloxseg.image.itk import geometry_of_simpleitk, to_simpleitk

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


@pytest.mark.parametrize(("unit", "factor"), [("mm", 1), ("um", 0.001), ("cm", 10), ("?", 1)])
def test_units_are_honoured(tmp_path: Path, unit: str, factor: float) -> None:
    scan = vio.read(save(tmp_path / "scan.mha", DistanceUnits=unit))
    assert scan.geometry.spacing == pytest.approx((1.5 * factor, 2 * factor, 3 * factor))
    assert scan.geometry.origin == pytest.approx((-factor, -2 * factor, 3 * factor))


def test_spacing_comes_before_size(tmp_path: Path) -> None:
    scan = vio.read(save(tmp_path / "scan.mha", ElementSize="9 9 9"))
    assert scan.geometry.spacing == (1.5, 2, 3)
    scan = vio.read(save(tmp_path / "scan.mha", ElementSpacing=None, ElementSize="9 8 7"))
    assert scan.geometry.spacing == (9, 8, 7)


@pytest.mark.parametrize(
    ("matrix", "letters", "warned"),
    [
        ("1 0 0 0 1 0 0 0 1", "RAI", False),  # ITK: where the axes start
        ("1 0 0 0 1 0 0 0 1", "LPS", False),  # where they end
        ("0 0 -1 1 0 0 0 1 0", "SRA", False),
        ("-1 0 0 0 -1 0 0 0 1", "LPI", False),
        ("-1 0 0 0 -1 0 0 0 1", "RAI", True),
        ("1 0 0 0 1 0 0 0 1", "???", False),
        ("1 0 0 0 1 0 0 0 1", "nonsense", True),
    ],
)
def test_letters_of_the_orientation_are_compared(tmp_path: Path, matrix: str, letters: str, warned: bool) -> None:
    scan = vio.read(save(tmp_path / "scan.mha", TransformMatrix=matrix, AnatomicalOrientation=letters))
    assert any("AnatomicalOrientation" in warning for warning in scan.warnings) == warned
    theirs = sitk.ReadImage(str(tmp_path / "scan.mha"))
    assert scan.geometry.distance(geometry_of_simpleitk(theirs)) < 1e-6


def test_lines_that_are_no_field(tmp_path: Path) -> None:
    path = save(tmp_path / "scan.mha")
    good = path.read_bytes()
    path.write_bytes(good.replace(b"Offset = 1 2 3", b"Offset 1 2 3"))
    with pytest.raises(ImageError, match="a line 'Offset 1 2 3', expected each field once"):
        vio.read(path)
    path.write_bytes(good.replace(b"Offset", b"Offset = 4 5 6\nOffset"))
    with pytest.raises(ImageError, match="a line 'Offset = 1 2 3', expected each field once"):
        vio.read(path)
    path.write_bytes(b"\n" + good.replace(b"Offset", b"\nOffset"))  # empty lines are harmless
    assert np.array_equal(vio.read(path).array, ramp())


def test_header_size_is_that_of_the_data_file(tmp_path: Path) -> None:
    (tmp_path / "scan.raw").write_bytes(bytes(33) + ramp().tobytes(order="F"))
    path = save(tmp_path / "scan.mhd", b"", HeaderSize="33", ElementDataFile="scan.raw")
    assert np.array_equal(vio.read(path).array, ramp())


def test_volumes_of_a_4d_file(tmp_path: Path) -> None:
    given = {"NDims": "4", "DimSize": "8 7 3 2", "Offset": "1 2 3 0", "ElementSpacing": "1.5 2 3 1"}
    path = save(tmp_path / "scan.mha", **given, TransformMatrix="1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1")
    assert np.array_equal(vio.read(path, volume=1).array, ramp()[:, :, 3:])
    path = save(tmp_path / "scan.mha", **given, TransformMatrix="1 0 0 0.5 0 1 0 0 0 0 1 0 0 0 0 1")
    with pytest.raises(ImageError, match="mixes space"):
        vio.read(path, volume=1)


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"DimSize": "4000 3000 200"}, ImageError, "limit"),
        ({"DimSize": "400 300 200"}, ImageError, "ends early: got 672 of 48000000 bytes"),
        ({"DimSize": "400 300 200", "CompressedData": "True"}, ImageError, "more than a file of 672 bytes can hold"),
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
        ({"HeaderSize": "20"}, ImageError, "HeaderSize"),
        ({"HeaderSize": "0 0"}, ImageError, "one whole number"),
        ({"HeaderSize": "\u00b2"}, ImageError, "HeaderSize"),
        ({"DimSize": "8 7 " + "6" * 5000}, ImageError, "whole numbers"),
        ({"DimSize": "8 7 " + "6" * 30}, ImageError, "more than any file holds"),
        ({"NDims": "\u00b3"}, ImageError, "NDims"),
        ({"ElementSpacing": "1 2 \u00b2"}, ImageError, "ElementSpacing"),
        ({"ElementSpacing": "1 2 3 4"}, GeometryError, "expected 3 positive"),
        ({"ElementSpacing": "1 2 1e400"}, GeometryError, "inf"),
        ({"ElementSpacing": "1 2 101"}, GeometryError, "1 × 2 × 101 mm"),
        ({"Offset": "0 inf 0"}, GeometryError, "NaN or Inf"),
        ({"Offset": "0 1e6 0"}, GeometryError, "-1e+06"),
        ({"DistanceUnits": "inch"}, GeometryError, "'inch'"),
        ({"DistanceUnits": "m"}, GeometryError, "1500 × 2000 × 3000 mm"),
        ({"Rotation": "0 1 0 1 0 0 0 0 1"}, ImageError, "different values for TransformMatrix and Rotation"),
        ({"Position": "4 5 6"}, ImageError, "different values for Offset and Position"),
        ({"ElementByteOrderMSB": "True"}, ImageError, "different values for BinaryDataByteOrderMSB"),
        ({"BinaryDataByteOrderMSB": "maybe"}, ImageError, "expected True or False"),
        ({"CompressedData": "zlib"}, ImageError, "expected True or False"),
        ({"BinaryData": ""}, ImageError, "expected True or False"),
        ({"ElementNumberOfChannels": "one"}, ImageError, "ElementNumberOfChannels"),
        ({"ElementToIntensityFunctionSlope": "2"}, ImageError, "slope or an offset"),
        ({"ElementToIntensityFunctionOffset": "-1024"}, ImageError, "slope or an offset"),
        ({"ObjectType": "Mesh"}, ImageError, "'Mesh'"),
        ({"TransformMatrix": None, "AnatomicalOrientation": "LPI"}, ImageError, "no TransformMatrix"),
        ({"CompressedData": "True", "CompressedDataSize": "673"}, ImageError, "got 672 of 673 compressed bytes"),
        ({"CompressedData": "True", "CompressedDataSize": "-3"}, ImageError, "compressed bytes"),
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
