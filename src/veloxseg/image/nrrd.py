"""NRRD: .nrrd, or .nhdr with a data file beside it. Format: teem's nrrd/format, version 5.

A file has three spatial axes. Further axes (a list, time) must all come before them, where they alternate voxel by
voxel, or all after them; together they are the volumes of a 4-D file.
"""

import re
from pathlib import Path

import numpy as np

from veloxseg.errors import GeometryError, ImageError, shown
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
from veloxseg.image.validate import check_affine, check_shape
from veloxseg.image.volume import Volume
from veloxseg.image.writer import gzip_stream, slabs

__all__ = ["read_nrrd_header", "write_nrrd"]

TYPES = {  # the first name is the one that is written
    "i1": ("signed char", "int8", "int8_t"),
    "u1": ("uchar", "unsigned char", "uint8", "uint8_t"),
    "i2": ("short", "short int", "signed short", "signed short int", "int16", "int16_t"),
    "u2": ("ushort", "unsigned short", "unsigned short int", "uint16", "uint16_t"),
    "i4": ("int", "signed int", "int32", "int32_t"),
    "u4": ("uint", "unsigned int", "uint32", "uint32_t"),
    "i8": ("longlong", "long long", "long long int", "signed long long", "signed long long int", "int64", "int64_t"),
    "u8": ("ulonglong", "unsigned long long", "unsigned long long int", "uint64", "uint64_t"),
    "f4": ("float",),
    "f8": ("double",),
}
RAS, LAS = (1, 1, 1), (-1, 1, 1)  # signs from the space's axes to RAS+
PATIENT_SPACES = {  # name -> signs, and the number of axes, which is 4 with time
    name: (signs, axes)
    for long, short, signs in (
        ("left-posterior-superior", "lps", LPS),
        ("right-anterior-superior", "ras", RAS),
        ("left-anterior-superior", "las", LAS),
    )
    for name, axes in ((long, 3), (short, 3), (f"{long}-time", 4), (f"{short}t", 4))
}
# right-handed spaces of a scanner or of nothing: they could be LPS+, and nobody says so
OTHER_SPACES = {"scanner-xyz": 3, "scanner-xyz-time": 4, "3d-right-handed": 3, "3d-right-handed-time": 4}
# teem reads these names without their space, too
JOINED = {f"space{what}": f"space {what}" for what in ("directions", "origin", "dimension", "units")}
COLOURS = ("rgb", "rgba", "hsv", "xyz", "color", "complex", "quaternion", "matrix", "normal")


def read_nrrd_header(path: Path, max_voxels: int) -> Header:
    """Parses and checks the header; reads no voxel."""
    fields, length = parse(path)
    sizes = whole_numbers(fields["sizes"], "sizes")
    if whole_numbers(fields["dimension"], "dimension") != [len(sizes)] or len(sizes) > 8:
        raise ImageError(
            f"the NRRD header has dimension {shown(fields['dimension'], 20)!r} and {len(sizes)} sizes; restore the file"
        )
    if len(sizes) < 3:
        check_shape(tuple(sizes))  # which refuses it as a 2-D image
    kinds = fields.get("kinds", "").lower().split() or ["domain"] * len(sizes)
    if len(kinds) != len(sizes):
        raise ImageError(f"{len(kinds)} kinds for {len(sizes)} axes; restore the file")
    if colour := [kind for kind in kinds if any(word in kind for word in COLOURS)]:
        raise ImageError(f"{shown(colour[0], 40)} voxels, expected one real number per voxel; convert to grey values")
    signs, dimension, warnings = space_of(fields)
    if "space directions" in fields:
        before, axes, origin = in_space(fields, sizes, dimension)
    else:
        before, axes, origin = without_space(fields, sizes, kinds)
    shape, volumes = spatial_shape([*sizes[before:], *sizes[:before]], max_voxels)
    affine = affine_of_axes(axes, origin, signs)
    return Header(
        shape=shape,
        affine=affine,
        dtype=number_type(fields),
        file_type="nrrd",
        volumes=volumes,
        warnings=(*warnings, *check_affine(affine, "space directions")),
        stored=stored_voxels(fields, path, length, interleaved=before > 0),
    )


def parse(path: Path) -> tuple[dict[str, str], int]:
    """Gives the fields, with names in lower case, and the length of the header in bytes."""
    with open(path, "rb") as file:
        block = file.read(HEADER_LIMIT)
    if not block.startswith(b"NRRD000"):
        raise ImageError("not an image of a known type, though it is named as NRRD; expected it to start with NRRD000")
    ends = [(at, at + len(mark)) for mark in (b"\n\n", b"\r\n\r\n") if (at := block.find(mark)) >= 0]
    at, length = min(ends, default=(len(block), len(block)))
    fields: dict[str, str] = {}
    strange: list[str] = []
    for line in block[:at].decode("utf-8", "replace").split("\n")[1:]:
        line = line.strip()
        if not line or line.startswith("#") or ":=" in line.partition(": ")[0]:  # comments, and keys of the user
            continue
        name, separator, value = line.partition(": ")
        name = JOINED.get(name.strip().lower(), name.strip().lower())
        if not separator or name in fields:
            strange.append(line)
        fields[name] = value.strip()
    missing = [name for name in ("type", "dimension", "sizes", "encoding") if name not in fields]
    if missing:
        raise ImageError(f"the NRRD header lacks {missing[0]!r}; restore the file")
    if strange:
        raise ImageError(
            f"the NRRD header has a line {shown(strange[0], 40)!r}, expected each field once, as name: value; "
            "restore the file"
        )
    return fields, length


def space_of(fields: dict[str, str]) -> tuple[tuple[int, int, int], int, list[str]]:
    """The signs from the axes of the header's space to RAS+, how many axes it has (4 with time), and warnings."""
    guess = ["no patient orientation in the header: LPS is assumed"]
    said = one_whole_number(fields["space dimension"], "space dimension") if "space dimension" in fields else None
    name = fields.get("space", "").lower()
    if name in PATIENT_SPACES:
        signs, dimension = PATIENT_SPACES[name]
        warnings = []
    elif name in OTHER_SPACES or "space" not in fields:
        signs, dimension, warnings = LPS, OTHER_SPACES.get(name, said or 3), guess
    else:
        raise GeometryError(
            f"the space is {shown(fields['space'], 40)!r}, expected left-posterior-superior or another space of the "
            "patient; convert to .nii.gz with the program that wrote it"
        )
    if dimension not in (3, 4) or said not in (None, dimension):
        raise GeometryError(f"a space of {said} dimensions, expected 3, or 4 with time; convert to .nii.gz")
    return signs, dimension, warnings


def in_space(fields: dict[str, str], sizes: list[int], dimension: int) -> tuple[int, list[list[float]], list[float]]:
    """From `space directions`: the number of axes before the spatial ones, the steps along these, and the origin."""
    if "spacings" in fields:
        raise ImageError("the header has both spacings and space directions, expected one of them; restore the file")
    words = fields["space directions"].replace(", ", ",").replace("( ", "(").replace(" )", ")").split()
    if len(words) != len(sizes):
        raise ImageError(f"{len(words)} space directions for {len(sizes)} axes; restore the file")
    steps = [[] if word.lower() == "none" else numbers(word, "space directions") for word in words]
    origin = numbers(fields.get("space origin", "0 " * dimension), "space origin")
    if len(origin) != dimension or any(len(step) not in (0, dimension) for step in steps):
        raise ImageError(
            f"the space origin or directions have fewer than 3 axes or numbers, or more than the {dimension} of the "
            "space; restore the file"
        )
    spatial = [bool(step) and any(step[:3] if dimension == 4 else [1]) for step in steps]
    before = axes_before(spatial)
    axes = steps[before : before + 3]
    if any(step[3:] not in ([], [0.0]) for step in axes):
        raise GeometryError("a spatial axis runs through time too; restore the geometry from the original scan")
    scale = units(fields, "space units", dimension, 0)
    return before, [scaled(step, scale) for step in axes], scaled(origin, scale)


def without_space(
    fields: dict[str, str], sizes: list[int], kinds: list[str]
) -> tuple[int, list[list[float]], list[float]]:
    """From `spacings`: the number of axes before the spatial ones, the steps along these, and the origin."""
    if other := [name for name in ("axis mins", "axis maxs", "axismins", "axismaxs") if name in fields]:
        raise ImageError(f"the header has {other[0]!r} without space directions; convert to .nii.gz")
    spatial = [kind in ("domain", "space", "none", "???") for kind in kinds]
    if len(sizes) > 3 and all(spatial):
        spatial = [True] * 3 + [False] * (len(sizes) - 3)  # nothing tells them apart: the last are volumes
    before = axes_before(spatial)
    given = numbers(fields.get("spacings", "1 " * len(sizes)), "spacings")
    spacing = given[before : before + 3] if len(given) == len(sizes) else given
    check_spacing(spacing)
    origin = numbers(fields.get("space origin", "0 0 0"), "space origin")
    if len(origin) != 3:
        raise ImageError(f"{len(origin)} numbers in the space origin, expected 3; restore the file")
    steps = np.diag(scaled(spacing, units(fields, "units", len(sizes), before))).tolist()
    return before, steps, scaled(origin, units(fields, "space units", 3, 0))


def axes_before(spatial: list[bool]) -> int:
    """How many axes come before the three spatial ones, which must be neighbours at the start or at the end."""
    count = len(spatial)
    if count > 3 and spatial == [True] * 3 + [False] * (count - 3):
        return 0
    if spatial == [False] * (count - 3) + [True] * 3:
        return count - 3
    raise ImageError(
        f"{sum(spatial)} spatial axes of {count}, expected 3 that all come before or all come after the others; "
        "restore the file, or convert to .nii.gz"
    )


def units(fields: dict[str, str], name: str, count: int, first: int) -> list[float]:
    """Millimetres per unit, for the three spatial axes of `count` from number `first` on."""
    if name not in fields:
        return [1.0] * 3
    words = [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', fields[name])]
    if len(words) != count:
        raise ImageError(f"{len(words)} {name} for {count} axes; restore the file")
    return [millimetres(word, name) for word in words[first : first + 3]]


def scaled(values: list[float], scale: list[float]) -> list[float]:
    return [value * factor for value, factor in zip(values[:3], scale, strict=True)]


def number_type(fields: dict[str, str]) -> np.dtype[np.generic]:
    wanted = " ".join(fields["type"].lower().split())
    code = next((code for code, names in TYPES.items() if wanted in names), None)
    if code is None:
        raise ImageError(f"unknown or unsupported voxel type {shown(wanted, 40)!r}; convert to int16 or float32")
    if code[1] != "1" and fields.get("endian", "little").lower() not in ("little", "big"):
        raise ImageError(f"endian is {shown(fields['endian'], 20)!r}, expected little or big; restore the file")
    return np.dtype((">" if fields.get("endian", "").lower() == "big" else "<") + code)


def stored_voxels(fields: dict[str, str], path: Path, length: int, interleaved: bool) -> StoredVoxels:
    encodings = {"raw": "raw", "gzip": "gzip", "gz": "gzip"}
    encoding = encodings.get(fields["encoding"].lower())
    skip = one_whole_number(same_in_all(fields, ("byte skip", "byteskip")) or "0", "byte skip")
    lines = one_whole_number(same_in_all(fields, ("line skip", "lineskip")) or "0", "line skip")
    if encoding is None or lines != 0 or skip < 0:
        raise ImageError(
            f"NRRD encoding {shown(fields['encoding'], 20)!r} or its skips are not supported, expected raw or gzip; "
            "convert with 3D Slicer or SimpleITK"
        )
    name = same_in_all(fields, ("data file", "datafile"))
    return StoredVoxels(
        path=path if name is None else beside(path, name),
        encoding=encoding,
        file_offset=length if name is None else 0,
        offset=skip,
        interleaved=interleaved,
    )


def write_nrrd(volume: Volume, path: Path) -> None:
    """Writes header and compressed voxels as one file, in LPS+."""
    affine = volume.geometry.affine[:3] * np.array(LPS)[:, None]
    steps = [",".join(map(repr, column)) for column in affine.T.tolist()]
    header = [
        "NRRD0004",
        f"type: {TYPES[volume.array.dtype.str[1:]][0]}",
        "dimension: 3",
        "space: left-posterior-superior",
        f"sizes: {' '.join(map(str, volume.array.shape))}",
        f"space directions: {' '.join(f'({step})' for step in steps[:3])}",
        "kinds: domain domain domain",
        "endian: little",
        "encoding: gzip",
        f"space origin: ({steps[3]})",
    ]
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        file.write("\n".join([*header, "", ""]).encode())
        with gzip_stream(file) as stream:
            for slab in slabs(volume.array):
                stream.write(slab)
