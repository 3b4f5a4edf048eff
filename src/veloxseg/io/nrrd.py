"""NRRD: .nrrd, or .nhdr with a data file beside it. Format: teem's nrrd/format, version 5."""

from pathlib import Path

import numpy as np

from veloxseg.errors import ImageError
from veloxseg.io.checks import check_affine, shown
from veloxseg.io.header import Header, StoredVoxels
from veloxseg.io.textheader import (
    HEADER_LIMIT,
    affine_of_axes,
    beside,
    check_spacing,
    numbers,
    spatial_shape,
    whole_numbers,
)

__all__ = ["read_nrrd_header"]

TYPES = {
    "i1": ("signed char", "int8", "int8_t"),
    "u1": ("uchar", "unsigned char", "uint8", "uint8_t"),
    "i2": ("short", "short int", "signed short", "signed short int", "int16", "int16_t"),
    "u2": ("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"),
    "i4": ("int", "signed int", "int32", "int32_t"),
    "u4": ("uint", "unsigned int", "uint32", "uint32_t"),
    "i8": (
        "longlong",
        "long long",
        "long long int",
        "signed long long",
        "signed long long int",
        "int64",
        "int64_t",
    ),
    "u8": ("ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t"),
    "f4": ("float",),
    "f8": ("double",),
}
SPACES = {  # signs from the space's axes to RAS+
    "left-posterior-superior": (-1, -1, 1),
    "lps": (-1, -1, 1),
    "right-anterior-superior": (1, 1, 1),
    "ras": (1, 1, 1),
    "left-anterior-superior": (-1, 1, 1),
    "las": (-1, 1, 1),
}
COLOURS = ("rgb", "rgba", "hsv", "xyz", "color", "complex", "quaternion", "matrix", "normal")


def read_nrrd_header(path: Path, max_voxels: int) -> Header:
    """Parses and checks the header; reads no voxel."""
    fields, length = parse(path)
    missing = [name for name in ("type", "dimension", "sizes", "encoding") if name not in fields]
    if missing:
        raise ImageError(f"the NRRD header lacks {missing[0]!r}; restore the file")
    sizes = whole_numbers(fields["sizes"], "sizes")
    axes, interleaved, warnings = spatial_axes(fields, sizes)
    if interleaved:
        sizes = [*sizes[1:], sizes[0]]
    shape, volumes = spatial_shape(sizes, max_voxels)
    origin = numbers(fields.get("space origin", "0 0 0"), "space origin")
    if len(axes) != 3 or len(origin) < 3 or any(len(axis) < 3 for axis in axes):
        raise ImageError("the space origin or directions have fewer than 3 axes or numbers; restore the file")
    signs = SPACES.get(fields.get("space", "").lower(), (-1, -1, 1))
    affine = np.diag([*signs, 1.0]) @ affine_of_axes(axes, origin)
    return Header(
        shape=shape,
        affine=affine,
        dtype=number_type(fields),
        file_type="nrrd",
        volumes=volumes,
        warnings=(*warnings, *check_affine(affine, "space directions")),
        stored=stored_voxels(fields, path, length, interleaved),
    )


def parse(path: Path) -> tuple[dict[str, str], int]:
    """The fields in lower case, and the length of the header in bytes."""
    with open(path, "rb") as file:
        block = file.read(HEADER_LIMIT)
    ends = [(at, at + len(mark)) for mark in (b"\n\n", b"\r\n\r\n") if (at := block.find(mark)) >= 0]
    at, length = min(ends, default=(len(block), len(block)))
    fields: dict[str, str] = {}
    for line in block[:at].decode("utf-8", "replace").splitlines()[1:]:
        name, separator, value = line.partition(": ")
        if separator and not line.startswith("#") and ":=" not in name:
            fields[name.strip().lower()] = value.strip()
    return fields, length


def spatial_axes(fields: dict[str, str], sizes: list[int]) -> tuple[list[list[float]], bool, list[str]]:
    """Steps along the three spatial axes, whether a list axis comes before them, and warnings."""
    dimension = whole_numbers(fields["dimension"], "dimension")
    if dimension != [len(sizes)] or len(sizes) > 8:
        raise ImageError(
            f"the NRRD header has dimension {fields['dimension'][:20]!r} and {len(sizes)} sizes; restore the file"
        )
    kinds = fields.get("kinds", "").lower().split() or ["domain"] * len(sizes)
    if colour := [kind for kind in kinds if any(word in kind for word in COLOURS)]:
        raise ImageError(
            f"{shown(colour[0])} voxels, expected one real number per voxel; convert to grey values"
        )
    warnings = (
        []
        if fields.get("space", "").lower() in SPACES
        else ["no patient orientation in the header: LPS is assumed"]
    )
    if "space directions" in fields:
        words = fields["space directions"].replace(", ", ",").replace("( ", "(").replace(" )", ")").split()
        if len(words) != len(sizes):
            raise ImageError(f"{len(words)} space directions for {len(sizes)} axes; restore the file")
        interleaved = len(sizes) > 3 and words[0].lower() == "none"
        steps = [numbers(word, "space directions") for word in words if word.lower() != "none"]
        return steps[:3], interleaved, warnings
    interleaved = len(sizes) > 3 and kinds[0] not in ("domain", "space")
    spacing = numbers(fields.get("spacings", "1 " * len(sizes)), "spacings")[1 if interleaved else 0 :]
    check_spacing(spacing)
    return np.diag(spacing[:3]).tolist(), interleaved, warnings


def number_type(fields: dict[str, str]) -> np.dtype[np.generic]:
    wanted = " ".join(fields["type"].lower().split())
    code = next((code for code, names in TYPES.items() if wanted in names), None)
    if code is None:
        raise ImageError(
            f"unknown or unsupported voxel type {shown(wanted, 40)!r}; convert to int16 or float32"
        )
    if code[1] != "1" and fields.get("endian", "little").lower() not in ("little", "big"):
        raise ImageError(
            f"endian is {shown(fields['endian'], 20)!r}, expected little or big; restore the file"
        )
    return np.dtype((">" if fields.get("endian", "").lower() == "big" else "<") + code)


def stored_voxels(fields: dict[str, str], path: Path, length: int, interleaved: bool) -> StoredVoxels:
    encodings = {"raw": "raw", "gzip": "gzip", "gz": "gzip"}
    encoding = encodings.get(fields["encoding"].lower())
    skip = whole_numbers(fields.get("byte skip", fields.get("byteskip", "0")), "byte skip")
    lines = fields.get("line skip", fields.get("lineskip", "0"))
    if encoding is None or lines.strip() != "0" or len(skip) != 1 or skip[0] < 0:
        raise ImageError(
            f"NRRD encoding {shown(fields['encoding'], 20)!r} or its skips are not supported, expected raw or gzip; "
            "convert with 3D Slicer or SimpleITK"
        )
    name = fields.get("data file", fields.get("datafile"))
    return StoredVoxels(
        path=path if name is None else beside(path, name),
        encoding=encoding,
        file_offset=length if name is None else 0,
        offset=skip[0],
        interleaved=interleaved,
    )
