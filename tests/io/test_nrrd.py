"""NRRD: headers in all their spellings against SimpleITK, and each way in which they can be wrong."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk
from scan_samples import SHAPE, ramp

import veloxseg.io as vio
from veloxseg.errors import GeometryError, ImageError
from veloxseg.io.itk import geometry_of_simpleitk

HEADER = {
    "type": "short",
    "dimension": "3",
    "space": "left-posterior-superior",
    "sizes": "8 7 6",
    "space directions": "(0,1.5,0) (-2,0,0) (0,0,3)",
    "kinds": "domain domain domain",
    "endian": "little",
    "encoding": "raw",
    "space origin": "(-1.5,22,3e1)",
}


def save(path: Path, data: bytes | None = None, **changes: str | None) -> Path:
    fields = HEADER | {name.replace("_", " "): value for name, value in changes.items()}
    lines = ["NRRD0004", "# a comment", "key:=value: with colon"]
    lines += [f"{name}: {value}" for name, value in fields.items() if value is not None]
    path.write_bytes(
        "\n".join(lines).encode() + b"\n\n" + (ramp().tobytes(order="F") if data is None else data)
    )
    return path


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"space": "RAS"},
        {"space": "left-anterior-superior"},
        {"type": "signed short int"},
        {"type": "int16_t"},
        {"space_directions": "( 0, 1.5, 0 ) ( -2, 0, 0 ) ( 0, 0, 3 )"},
    ],
)
def test_it_reads_as_simpleitk_does(tmp_path: Path, changes: dict[str, str]) -> None:
    path = save(tmp_path / "scan.nrrd", **changes)
    ours, theirs = vio.read(path), sitk.ReadImage(str(path))
    assert np.array_equal(ours.array, sitk.GetArrayFromImage(theirs).T)
    assert ours.geometry.distance(geometry_of_simpleitk(theirs)) < 1e-6


def test_encodings_and_byte_orders(tmp_path: Path) -> None:
    swapped = save(tmp_path / "big.nrrd", ramp().astype(">i2").tobytes(order="F"), endian="big")
    packed = save(tmp_path / "gz.nrrd", gzip.compress(ramp().tobytes(order="F")), encoding="gzip")
    (tmp_path / "data.raw").write_bytes(bytes(10) + ramp().tobytes(order="F"))
    apart = save(tmp_path / "apart.nhdr", b"", data_file="data.raw", byte_skip="10")
    for path in (swapped, packed, apart):
        assert np.array_equal(vio.read(path).array, ramp())


def test_list_axis_first_or_last(tmp_path: Path) -> None:
    both = np.stack([ramp(), -ramp()])
    directions = HEADER["space directions"]
    first = save(
        tmp_path / "first.nrrd",
        both.tobytes(order="F"),
        dimension="4",
        sizes="2 8 7 6",
        space_directions=f"none {directions}",
        kinds="list domain domain domain",
    )
    last = save(
        tmp_path / "last.nrrd",
        both.transpose(1, 2, 3, 0).tobytes(order="F"),
        dimension="4",
        sizes="8 7 6 2",
        space_directions=f"{directions} none",
        kinds="domain domain domain list",
    )
    for path in (first, last):
        with pytest.raises(ImageError, match="4-D, with 2 volumes"):
            vio.read(path)
        assert np.array_equal(vio.read(path, volume=1).array, -ramp())
        assert vio.read(path, volume=0).geometry.shape == SHAPE


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"sizes": "8000 7000 600"}, ImageError, "limit"),
        ({"sizes": "800 700 600"}, ImageError, "ends early: got 672 of 672000000 bytes"),
        ({"sizes": "8 7 0"}, ImageError, "positive"),
        ({"sizes": "8 -7 6"}, ImageError, "positive"),
        ({"sizes": "8 7 x"}, ImageError, "whole numbers"),
        ({"sizes": "8 7"}, ImageError, "dimension '3' and 2 sizes"),
        ({"sizes": None}, ImageError, "lacks 'sizes'"),
        ({"type": "block"}, ImageError, "'block'"),
        ({"endian": "middle"}, ImageError, "little or big"),
        ({"encoding": "ascii"}, ImageError, "'ascii'"),
        ({"kinds": "RGB-color domain domain"}, ImageError, "rgb-color"),
        ({"space_directions": "(0,0,0) (0,2,0) (0,0,3)"}, GeometryError, "spacing is 0"),
        ({"space_directions": "(nan,0,0) (0,2,0) (0,0,3)"}, GeometryError, "NaN"),
        ({"space_directions": "(1,0,0) (0.5,2,0) (0,0,3)"}, GeometryError, "sheared"),
        ({"space_directions": "(1,0,0) (1,0,0) (0,0,3)"}, GeometryError, "singular"),
        ({"space_directions": "(1,0,0) (0,2,0)"}, ImageError, "2 space directions for 3 axes"),
        ({"space_directions": "(1,0) (0,2) (0,0)"}, ImageError, "fewer than 3"),
        ({"space_directions": None, "spacings": "1 -2 3"}, GeometryError, "spacing is 1 × -2 × 3"),
        ({"space_origin": "(a,b,c)"}, ImageError, "space origin"),
        ({"data_file": "missing.raw"}, ImageError, "'missing.raw' is missing"),
        ({"data_file": "../../../etc/hostname"}, ImageError, "outside of its folder"),
        ({"data_file": "slice%03d.raw 1 6 1"}, ImageError, "one file per slice"),
    ],
)
def test_bad_header_gives_its_one_line(tmp_path: Path, changes: dict, kind: type, words: str) -> None:
    with pytest.raises(ImageError) as caught:
        vio.read(save(tmp_path / "scan.nrrd", **changes))
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_truncated_and_damaged_gzip(tmp_path: Path) -> None:
    data = gzip.compress(ramp().tobytes(order="F"))
    with pytest.raises(ImageError, match="ends early"):
        vio.read(save(tmp_path / "cut.nrrd", data[:-100], encoding="gzip"))
    with pytest.raises(ImageError, match="damaged gzip"):
        vio.read(save(tmp_path / "bad.nrrd", data[:-6] + b"\1\1" + data[-4:], encoding="gzip"))


@pytest.mark.shared
def test_real_files_equal_simpleitk(shared: Path) -> None:
    files = sorted((shared / "data/nrrd").glob("*.nrrd"))
    assert len(files) == 8
    for path in files:
        ours, theirs = vio.read(path), sitk.ReadImage(str(path))
        assert np.array_equal(ours.array, sitk.GetArrayFromImage(theirs).T)
        assert ours.geometry.distance(geometry_of_simpleitk(theirs)) < 1e-6
