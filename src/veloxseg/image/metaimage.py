"""MetaImage: .mha, or .mhd with a data file beside it. Its space is LPS+."""

import zlib
from pathlib import Path

import numpy as np

from veloxseg.errors import ImageError, shown
from veloxseg.files import atomic_path
from veloxseg.image.stream import Header, StoredVoxels
from veloxseg.image.text_header import (
    HEADER_LIMIT,
    LPS,
    affine_of_axes,
    beside,
    check_spacing,
    millimetres,
    numbers,
    one_whole_number,
    same_in_all,
    spatial_shape,
    whole_numbers,
)
from veloxseg.image.validate import check_affine
from veloxseg.image.volume import Geometry, Volume
from veloxseg.image.writer import COMPRESSION_LEVEL, slabs

__all__ = ["read_meta_header", "write_meta"]

TYPES = {
    "MET_CHAR": "i1",
    "MET_UCHAR": "u1",
    "MET_SHORT": "i2",
    "MET_USHORT": "u2",
    "MET_INT": "i4",
    "MET_UINT": "u4",
    "MET_LONG_LONG": "i8",
    "MET_ULONG_LONG": "u8",
    "MET_FLOAT": "f4",
    "MET_DOUBLE": "f8",
}
# a field may have any of these names
MATRIX = ("TransformMatrix", "Rotation", "Orientation")
ORIGIN = ("Offset", "Position", "Origin")
BYTE_ORDER = ("BinaryDataByteOrderMSB", "ElementByteOrderMSB")


def read_meta_header(path: Path, max_voxels: int) -> Header:
    """Parses and checks the header; reads no voxel."""
    fields, length = parse(path)
    sizes = whole_numbers(fields["DimSize"], "DimSize")
    count = len(sizes)
    if whole_numbers(fields["NDims"], "NDims") != [count] or count > 8:
        raise ImageError(
            f"the MetaImage header has NDims {shown(fields['NDims'], 20)!r} and {count} sizes; restore the file"
        )
    check_one_number(fields)
    shape, volumes = spatial_shape(sizes, max_voxels)
    unit = millimetres(fields.get("DistanceUnits", "mm"), "DistanceUnits")
    affine = affine_of_axes(axes(fields, count), origin(fields, count), LPS)
    affine[:3] *= unit
    warnings = check_affine(affine, "TransformMatrix")
    return Header(
        shape=shape,
        affine=affine,
        dtype=number_type(fields),
        file_type="meta",
        volumes=volumes,
        warnings=(*warnings, *orientation_warnings(fields, Geometry(shape=shape, affine=affine))),
        stored=stored_voxels(fields, path, length),
    )


def parse(path: Path) -> tuple[dict[str, str], int]:
    """The fields, and the length of the header in bytes; ElementDataFile is its last line."""
    with open(path, "rb") as file:
        block = file.read(HEADER_LIMIT)
    fields: dict[str, str] = {}
    strange: list[str] = []
    at = 0
    while at < len(block) and "ElementDataFile" not in fields:
        end = block.find(b"\n", at)
        end = len(block) if end < 0 else end
        line = block[at:end].decode("utf-8", "replace").strip()
        name, separator, value = (part.strip() for part in line.partition("="))
        if line and (not separator or name in fields):
            strange.append(line)
        elif line:
            fields[name] = value
        at = end + 1
    missing = [name for name in ("NDims", "DimSize", "ElementType", "ElementDataFile") if name not in fields]
    if missing:
        raise ImageError(f"the MetaImage header lacks {missing[0]!r}; restore the file")
    if strange:
        raise ImageError(
            f"the MetaImage header has a line {shown(strange[0], 40)!r}, expected each field once, as name = value; "
            "restore the file"
        )
    return fields, at


def check_one_number(fields: dict[str, str]) -> None:
    """Refuses objects that are no image, and voxels that are not the plain numbers that are stored."""
    if fields.get("ObjectType", "Image").lower() != "image":
        raise ImageError(f"the object is a {shown(fields['ObjectType'], 20)!r}, expected an Image; convert it")
    channels = one_whole_number(fields.get("ElementNumberOfChannels", "1"), "ElementNumberOfChannels")
    if channels != 1:
        raise ImageError(f"{channels} channels per voxel (RGB?), expected one; convert to grey values")
    slope = numbers(fields.get("ElementToIntensityFunctionSlope", "1"), "ElementToIntensityFunctionSlope")
    offset = numbers(fields.get("ElementToIntensityFunctionOffset", "0"), "ElementToIntensityFunctionOffset")
    if (slope, offset) != ([1.0], [0.0]):  # ITK passes over these fields, so nobody has tested what they mean
        raise ImageError("the voxels have a slope or an offset (ElementToIntensityFunction), expected none; apply it")


def axes(fields: dict[str, str], count: int) -> list[list[float]]:
    """Steps along the axes: the matrix has one axis per row.

    ElementSpacing is the distance between voxels, and ElementSize their own size: it counts where no distance is given.
    """
    text = same_in_all(fields, MATRIX)
    matrix = numbers(text, "TransformMatrix") if text is not None else np.eye(count).ravel().tolist()
    if len(matrix) != count * count:
        raise ImageError(f"{len(matrix)} numbers in the TransformMatrix, expected {count * count}; restore the file")
    rows = [matrix[i * count : (i + 1) * count] for i in range(count)]
    if any(rows[i][3:] != [0.0] * (count - 3) for i in range(3)):
        raise ImageError("the TransformMatrix mixes space with the axis of volumes; restore the file")
    spacing = numbers(fields.get("ElementSpacing", fields.get("ElementSize", "1 " * count)), "ElementSpacing")
    check_spacing(spacing, count)
    return [[value * spacing[i] for value in rows[i][:3]] for i in range(3)]


def origin(fields: dict[str, str], count: int) -> list[float]:
    text = same_in_all(fields, ORIGIN)
    found = numbers(text, "Offset") if text is not None else [0.0] * count
    if len(found) != count:
        raise ImageError(f"{len(found)} numbers in the Offset, expected {count}; restore the file")
    return found


def orientation_warnings(fields: dict[str, str], grid: Geometry) -> list[str]:
    """Compares AnatomicalOrientation, which repeats in letters what the matrix says.

    ITK names the side where an axis starts (RAI for LPS+), other programs the side where it ends; both are taken.
    Where matrix and letters differ, the matrix holds, as in ITK. Letters without a matrix would be a guess.
    """
    said = fields.get("AnatomicalOrientation", "???").upper()
    if "?" in said or not said:
        return []
    ends = axis_letters(grid)
    starts = ends.translate(str.maketrans("RLAPSI", "LRPAIS"))
    if said in (starts, ends):
        return []
    if same_in_all(fields, MATRIX) is None:
        raise ImageError(
            f"AnatomicalOrientation is {shown(said, 20)!r} and there is no TransformMatrix to say what it means; "
            "convert to .nii.gz with the program that wrote it"
        )
    return [
        f"AnatomicalOrientation is {shown(said, 20)}, the TransformMatrix says {starts}: the matrix is used here, and "
        "other tools may differ"
    ]


def axis_letters(grid: Geometry) -> str:
    """The sides of the patient that the array's axes run to, such as LPS."""
    turned = grid.orientation
    letters = {
        axis: ("LPI" if flip else "RAS")[world]
        for world, (axis, flip) in enumerate(zip(turned.axes, turned.flips, strict=True))
    }
    return "".join(letters[axis] for axis in range(3))


def number_type(fields: dict[str, str]) -> np.dtype[np.generic]:
    code = TYPES.get(fields["ElementType"])
    if code is None:
        raise ImageError(
            f"unknown or unsupported voxel type {shown(fields['ElementType'], 40)!r}; convert to int16 or float32"
        )
    order = same_in_all(fields, BYTE_ORDER)
    return np.dtype((">" if order is not None and truth(order, BYTE_ORDER[0]) else "<") + code)


def truth(text: str, what: str) -> bool:
    if text.lower() not in ("true", "1", "false", "0"):
        raise ImageError(f"the header's {what} is {shown(text, 20)!r}, expected True or False; restore the file")
    return text.lower() in ("true", "1")


def stored_voxels(fields: dict[str, str], path: Path, length: int) -> StoredVoxels:
    if not truth(fields.get("BinaryData", "True"), "BinaryData"):
        raise ImageError("voxels as text, expected binary data; convert to .mha or .nii.gz")
    local = fields["ElementDataFile"].upper() == "LOCAL"
    data = path if local else beside(path, fields["ElementDataFile"])
    skip = one_whole_number(fields.get("HeaderSize", "0"), "HeaderSize")
    if skip < 0 or (local and skip not in (0, length)):  # it counts from the start of the data's file
        raise ImageError("HeaderSize is not supported unless zero or positive; convert to .mha or .nii.gz")
    start = length if local else skip
    encoding = "raw"
    if truth(fields.get("CompressedData", "False"), "CompressedData"):
        held = data.stat().st_size - start
        claim = one_whole_number(fields.get("CompressedDataSize", "0"), "CompressedDataSize")
        if claim < 0 or claim > held:
            raise ImageError(f"ends early: got {held} of {claim} compressed bytes; copy or download it again")
        with open(data, "rb") as file:
            file.seek(start)
            encoding = "gzip" if file.read(2) == b"\x1f\x8b" else "zlib"
    return StoredVoxels(path=data, encoding=encoding, file_offset=start)


def write_meta(volume: Volume, path: Path) -> None:
    """Writes header and compressed voxels as one file, in LPS+."""
    grid = volume.geometry
    affine = grid.affine[:3] * np.array(LPS)[:, None]
    matrix = (affine[:, :3] / grid.spacing).T.ravel()  # one axis per row
    fields = {
        "ObjectType": "Image",
        "NDims": "3",
        "BinaryData": "True",
        "BinaryDataByteOrderMSB": "False",
        "CompressedData": "True",
        "CompressedDataSize": "{size:020d}",
        "TransformMatrix": " ".join(map(repr, matrix.tolist())),
        "Offset": " ".join(map(repr, affine[:, 3].tolist())),
        "CenterOfRotation": "0 0 0",
        "ElementSpacing": " ".join(map(repr, grid.spacing)),
        "DimSize": " ".join(map(str, grid.shape)),
        "ElementType": next(name for name, code in TYPES.items() if code == volume.array.dtype.str[1:]),
        "ElementDataFile": "LOCAL",
    }
    header = "".join(f"{name} = {value}\n" for name, value in fields.items())
    packer = zlib.compressobj(COMPRESSION_LEVEL)
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        start = file.write(header.format(size=0).encode())
        for slab in slabs(volume.array):
            file.write(packer.compress(slab))
        file.write(packer.flush())
        size = file.tell() - start
        file.seek(0)
        file.write(header.format(size=size).encode())
