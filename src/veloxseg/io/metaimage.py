"""MetaImage: .mha, or .mhd with a data file beside it. Its space is LPS+."""

from pathlib import Path

import numpy as np

from veloxseg.errors import ImageError
from veloxseg.io.checks import check_affine, shown
from veloxseg.io.header import Header, StoredVoxels
from veloxseg.io.textheader import (
    HEADER_LIMIT,
    LPS_TO_RAS,
    affine_of_axes,
    beside,
    check_spacing,
    numbers,
    spatial_shape,
    whole_numbers,
)

__all__ = ["read_meta_header"]

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


def read_meta_header(path: Path, max_voxels: int) -> Header:
    """Parses and checks the header; reads no voxel."""
    fields, length = parse(path)
    missing = [name for name in ("NDims", "DimSize", "ElementType", "ElementDataFile") if name not in fields]
    if missing:
        raise ImageError(f"the MetaImage header lacks {missing[0]!r}; restore the file")
    sizes = whole_numbers(fields["DimSize"], "DimSize")
    if whole_numbers(fields["NDims"], "NDims") != [len(sizes)] or len(sizes) > 8:
        raise ImageError(
            f"the MetaImage header has NDims {fields['NDims'][:20]!r} and {len(sizes)} sizes; restore the file"
        )
    channels = fields.get("ElementNumberOfChannels", "1")
    if channels != "1":
        raise ImageError(
            f"{shown(channels, 20)} channels per voxel (RGB?), expected one; convert to grey values"
        )
    shape, volumes = spatial_shape(sizes, max_voxels)
    spacing = numbers(
        fields.get("ElementSpacing", fields.get("ElementSize", "1 " * len(sizes))), "ElementSpacing"
    )
    check_spacing(spacing)
    affine = LPS_TO_RAS @ affine_of_axes(axes(fields, spacing, len(sizes)), origin(fields, len(sizes)))
    return Header(
        shape=shape,
        affine=affine,
        dtype=number_type(fields),
        file_type="meta",
        volumes=volumes,
        warnings=tuple(check_affine(affine, "TransformMatrix")),
        stored=stored_voxels(fields, path, length),
    )


def parse(path: Path) -> tuple[dict[str, str], int]:
    """The fields, and the length of the header in bytes; ElementDataFile is its last line."""
    with open(path, "rb") as file:
        block = file.read(HEADER_LIMIT)
    fields: dict[str, str] = {}
    at = 0
    while at < len(block) and "ElementDataFile" not in fields:
        end = block.find(b"\n", at)
        end = len(block) if end < 0 else end
        name, separator, value = block[at:end].decode("utf-8", "replace").partition("=")
        if separator:
            fields[name.strip()] = value.strip()
        at = end + 1
    return fields, at


def axes(fields: dict[str, str], spacing: list[float], count: int) -> list[list[float]]:
    """Steps along the axes: the matrix has one axis per row."""
    names = [name for name in ("TransformMatrix", "Rotation", "Orientation") if name in fields]
    matrix = numbers(fields[names[0]], names[0]) if names else np.eye(count).ravel().tolist()
    if len(matrix) != count * count:
        raise ImageError(
            f"{len(matrix)} numbers in the TransformMatrix, expected {count * count}; restore the file"
        )
    return [[value * spacing[i] for value in matrix[i * count : i * count + 3]] for i in range(3)]


def origin(fields: dict[str, str], count: int) -> list[float]:
    names = [name for name in ("Offset", "Position", "Origin") if name in fields]
    found = numbers(fields[names[0]], names[0]) if names else [0.0] * count
    if len(found) != count:
        raise ImageError(f"{len(found)} numbers in the Offset, expected {count}; restore the file")
    return found


def number_type(fields: dict[str, str]) -> np.dtype[np.generic]:
    code = TYPES.get(fields["ElementType"])
    if code is None:
        raise ImageError(
            f"unknown or unsupported voxel type {shown(fields['ElementType'], 40)!r}; convert to int16 or float32"
        )
    order = fields.get("BinaryDataByteOrderMSB", fields.get("ElementByteOrderMSB", "False"))
    return np.dtype((">" if order.lower() in ("true", "1") else "<") + code)


def stored_voxels(fields: dict[str, str], path: Path, length: int) -> StoredVoxels:
    if fields.get("BinaryData", "True").lower() not in ("true", "1"):
        raise ImageError("voxels as text, expected binary data; convert to .mha or .nii.gz")
    skip = whole_numbers(fields.get("HeaderSize", "0"), "HeaderSize")
    if len(skip) != 1 or skip[0] < 0:
        raise ImageError("HeaderSize is not supported unless zero or positive; convert to .mha or .nii.gz")
    local = fields["ElementDataFile"].upper() == "LOCAL"
    data = path if local else beside(path, fields["ElementDataFile"])
    start = (length if local else 0) + skip[0]
    encoding = "raw"
    if fields.get("CompressedData", "False").lower() in ("true", "1"):
        with open(data, "rb") as file:
            file.seek(start)
            encoding = "gzip" if file.read(2) == b"\x1f\x8b" else "zlib"
    return StoredVoxels(path=data, encoding=encoding, file_offset=start)
