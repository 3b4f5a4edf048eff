"""NRRD: headers in all their spellings against SimpleITK, and each way in which they can be wrong."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import SimpleITK as sitk

import veloxseg.image as vio
from support.scan_samples import SHAPE, ramp
from veloxseg.errors import GeometryError, ImageError
from veloxseg.image.itk import geometry_of_simpleitk

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
    path.write_bytes("\n".join(lines).encode() + b"\n\n" + (ramp().tobytes(order="F") if data is None else data))
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


def test_a_line_that_is_no_field_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "scan.nrrd")
    path.write_bytes(path.read_bytes().replace(b"space: left", b"space:left"))
    with pytest.raises(ImageError, match="a line 'space:left-posterior-superior', expected each field once"):
        vio.read(path)


SIGNS = {
    "left-posterior-superior": (-1, -1, 1),
    "right-anterior-superior": (1, 1, 1),
    "left-anterior-superior": (-1, 1, 1),
}
SHORT = {"left-posterior-superior": "LPS", "right-anterior-superior": "RAS", "left-anterior-superior": "LAS"}
STEPS = "(0,1.5,0,0) (-2,0,0,0) (0,0,3,0)"


@pytest.mark.parametrize("name", SIGNS)
def test_spaces_of_the_patient(tmp_path: Path, name: str) -> None:
    """With time there is a fourth number: the axis of time has no place in space."""
    x, y, z = SIGNS[name]
    for space in (name, SHORT[name], name.upper()):
        scan = vio.read(save(tmp_path / "scan.nrrd", space=space))
        assert scan.geometry.origin == (-1.5 * x, 22 * y, 30 * z)
        assert np.allclose(scan.geometry.affine[:3, :3], [[0, -2 * x, 0], [1.5 * y, 0, 0], [0, 0, 3 * z]])
        assert scan.warnings == ()
    for space in (f"{name}-time", SHORT[name] + "T"):
        four = save(
            tmp_path / "scan.nrrd",
            np.stack([ramp(), -ramp()], axis=3).tobytes(order="F"),
            dimension="4",
            space=space,
            sizes="8 7 6 2",
            space_directions=f"{STEPS} (0,0,0,2.5)",
            kinds="domain domain domain time",
            space_origin="(-1.5,22,30,7)",
        )
        scan = vio.read(four, volume=1)
        assert np.array_equal(scan.array, -ramp())
        assert scan.geometry.origin == (-1.5 * x, 22 * y, 30 * z)
        assert np.allclose(scan.geometry.affine[:3, :3], [[0, -2 * x, 0], [1.5 * y, 0, 0], [0, 0, 3 * z]])


@pytest.mark.parametrize("space", ["scanner-xyz", "3D-right-handed", None])
def test_spaces_of_no_patient_are_a_warning(tmp_path: Path, space: str | None) -> None:
    scan = vio.read(save(tmp_path / "scan.nrrd", space=space))
    assert scan.warnings == ("no patient orientation in the header: LPS is assumed",)
    assert scan.geometry.origin == (1.5, -22, 30)


def test_4d_file_of_simpleitk(tmp_path: Path) -> None:
    """ITK writes a space of four dimensions without a name."""
    joined = sitk.JoinSeries([sitk.GetImageFromArray(array.T) for array in (ramp(), -ramp())])
    joined.SetSpacing((1.5, 2, 3, 1))
    joined.SetOrigin((1, 2, 3, 0))
    sitk.WriteImage(joined, str(tmp_path / "scan.nrrd"))
    scan = vio.read(tmp_path / "scan.nrrd", volume=1)
    assert np.array_equal(scan.array, -ramp())
    assert scan.geometry.spacing == (1.5, 2, 3)
    assert scan.geometry.origin == (-1, -2, 3)


def test_time_in_a_spatial_axis(tmp_path: Path) -> None:
    with pytest.raises(GeometryError, match="runs through time"):
        vio.read(
            save(
                tmp_path / "scan.nrrd",
                dimension="4",
                space="RAST",
                sizes="8 7 6 1",
                space_directions="(0,1.5,0,1) (-2,0,0,0) (0,0,3,0) (0,0,0,1)",
                kinds=None,
                space_origin="(0,0,0,0)",
            ),
            volume=0,
        )


@pytest.mark.parametrize(("unit", "factor"), [("mm", 1), ("um", 0.001), ("cm", 10), ("\u00b5m", 0.001), ("", 1)])
def test_units_are_honoured(tmp_path: Path, unit: str, factor: float) -> None:
    scan = vio.read(save(tmp_path / "a.nrrd", space_units=f'"{unit}" "{unit}" "{unit}"'))
    assert scan.geometry.spacing == pytest.approx((1.5 * factor, 2 * factor, 3 * factor))
    assert scan.geometry.origin == pytest.approx((1.5 * factor, -22 * factor, 30 * factor))
    scan = vio.read(
        save(
            tmp_path / "b.nrrd",
            space=None,
            space_directions=None,
            space_origin=None,
            spacings="1.5 2 3",
            units=f'"{unit}" "{unit}" "{unit}"',
        )
    )
    assert scan.geometry.spacing == pytest.approx((1.5 * factor, 2 * factor, 3 * factor))


def test_list_axes_that_lie_between(tmp_path: Path) -> None:
    """Once they were read as spatial: 8 × 2 × 7 voxels of 8 × 7 × 6."""
    a, b, c = HEADER["space directions"].split()
    between = {"dimension": "4", "sizes": "8 2 7 6", "kinds": None, "space_directions": f"{a} none {b} {c}"}
    with pytest.raises(ImageError, match="all come before or all come after"):
        vio.read(save(tmp_path / "scan.nrrd", bytes(1344), **between))
    four = {"dimension": "4", "sizes": "8 7 6 2", "kinds": None, "space_directions": f"{a} {b} {c} (1,0,0)"}
    with pytest.raises(ImageError, match="4 spatial axes of 4"):
        vio.read(save(tmp_path / "scan.nrrd", bytes(1344), **four))


def test_two_list_axes(tmp_path: Path) -> None:
    six = np.stack([ramp() + 400 * k for k in range(6)])
    path = save(
        tmp_path / "scan.nrrd",
        six.tobytes(order="F"),
        dimension="5",
        sizes="2 3 8 7 6",
        kinds="list vector domain domain domain",
        space_directions=f"none none {HEADER['space directions']}",
    )
    assert np.array_equal(vio.read(path, volume=4).array, six[4])


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
        ({"space": "middle-earth"}, GeometryError, "'middle-earth'"),
        ({"space": "3D-left-handed"}, GeometryError, "'3D-left-handed'"),
        ({"space": "3D-left-handed-time"}, GeometryError, "'3D-left-handed-time'"),
        ({"space": "left-posterior-superior-time"}, ImageError, "more than the 4 of the space"),
        ({"space": None, "space_dimension": "5"}, GeometryError, "5 dimensions"),
        ({"space_dimension": "4"}, GeometryError, "4 dimensions"),
        ({"space": "RAS-time"}, GeometryError, "'RAS-time'"),
        ({"dimension": "2", "sizes": "56 6", "kinds": None, "space_directions": None}, ImageError, "2-D"),
        ({"space_units": '"mm" "mm" "inch"'}, GeometryError, "'inch'"),
        ({"space_units": '"mm" "mm"'}, ImageError, "2 space units for 3 axes"),
        ({"space_units": '"m" "m" "m"'}, GeometryError, "1500 × 2000 × 3000 mm"),
        ({"space_directions": None, "units": '"mm" "mm" "?!"', "spacings": "1 2 3"}, GeometryError, "'?!'"),
        ({"space_directions": None, "axis_mins": "0 0 0"}, ImageError, "'axis mins'"),
        ({"spacings": "1 2 3"}, ImageError, "both spacings and space directions"),
        ({"space_directions": "(100.1,0,0) (0,2,0) (0,0,3)"}, GeometryError, "100.1 × 2 × 3 mm"),
        ({"space_origin": "(1e400,0,0)"}, GeometryError, "NaN or Inf"),
        ({"space_origin": "(2e5,0,0)"}, GeometryError, "200000"),
        ({"space_origin": "(1,2,3,4)"}, ImageError, "more than the 3"),
        ({"sizes": "8 7 \u00b2"}, ImageError, "whole numbers"),
        ({"sizes": "8 7 \u096c"}, ImageError, "whole numbers"),
        ({"sizes": "8 7 0_6"}, ImageError, "whole numbers"),
        ({"sizes": "8 7 " + "6" * 4301}, ImageError, "whole numbers"),
        ({"sizes": "8 7 " + "6" * 4000}, ImageError, "more than any file holds"),
        ({"sizes": "8 7 6e0"}, ImageError, "whole numbers"),
        ({"dimension": "\u00b3"}, ImageError, "whole numbers"),
        ({"byte_skip": "9" * 5000}, ImageError, "byte skip"),
        ({"byte_skip": "-1"}, ImageError, "skips"),
        ({"line_skip": "\u00b2"}, ImageError, "line skip"),
        ({"space_directions": "(1,0,0) (0,\u00b2,0) (0,0,3)"}, ImageError, "space directions"),
        ({"kinds": "domain domain"}, ImageError, "2 kinds for 3 axes"),
        ({"Space": "RAS"}, ImageError, "a line 'Space: RAS'"),
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


@pytest.mark.parametrize("field", ["space directions", "space origin"])
def test_a_field_of_space_is_known_without_its_space_too(tmp_path: Path, field: str) -> None:
    """teem reads `spaceorigin`; to pass it over would put the scan elsewhere without a word."""
    affine = np.array([[0, -2, 0, 5], [1.5, 0, 0, -7], [0, 0, 3, 11], [0, 0, 0, 1]], float)
    path = tmp_path / "a.nrrd"
    vio.write(
        vio.Volume(
            array=np.arange(120, dtype=np.float32).reshape(4, 5, 6),
            geometry=vio.Geometry(shape=(4, 5, 6), affine=affine),
        ),
        path,
    )
    joined = path.read_bytes().replace(f"{field}:".encode(), f"{field.replace(' ', '')}:".encode())
    assert joined != path.read_bytes()
    path.write_bytes(joined)
    np.testing.assert_allclose(vio.read(path).geometry.affine, affine, atol=1e-6)
