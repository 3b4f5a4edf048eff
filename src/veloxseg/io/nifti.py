"""NIfTI-1 and NIfTI-2, one file (.nii, .nii.gz) or a pair (.hdr/.img, also .gz), either byte order.

nibabel knows the header's fields and quaternions. It also repairs bad headers silently (a spacing of 0
becomes 1 mm, a negative one positive), so we read with its repairs switched off and check ourselves.

Which affine holds: the sform where its code is positive, else the qform, else only the spacings (with a
warning). Where both forms are given they must agree.
"""

import contextlib
import gzip
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import GeometryError, ImageError
from veloxseg.files import atomic_path
from veloxseg.io.checks import check_affine, check_shape, shown
from veloxseg.io.header import Header, StoredVoxels
from veloxseg.io.volume import Geometry, Volume
from veloxseg.io.voxels import ByteStream

__all__ = ["place", "read_nifti_header", "write_nifti"]

NIFTI1, NIFTI2 = 348, 540  # header sizes, which are the first number of the file
UNIT_MM = {0: 1.0, 1: 1000.0, 2: 1.0, 3: 0.001}  # unknown (taken as mm), metre, millimetre, micrometre
INTEGERS = {2: "u1", 4: "i2", 8: "i4", 256: "i1", 512: "u2", 768: "u4", 1024: "i8", 1280: "u8"}
REAL = INTEGERS | {16: "f4", 64: "f8"}
COLOUR = {32: "complex", 1792: "complex", 2048: "complex", 128: "RGB", 2304: "RGBA"}
COMPRESSION_LEVEL = (
    3  # 0.3 of the time of level 6 on label maps (twice the bytes), 0.4 on CT (the same bytes)
)


def read_nifti_header(path: Path, max_voxels: int) -> Header:
    """Parses and checks the header; reads no voxel."""
    header_path, image_path = pair(path)
    block, encoding = header_bytes(header_path)
    fields, swapped = parse(block)
    if (magic := bytes(fields["magic"].tobytes()[:3])) not in (b"n+1", b"ni1", b"n+2", b"ni2"):
        raise ImageError(f"Analyze or damaged header (magic {magic!r}), expected NIfTI; convert it to NIfTI")
    single = magic[1:2] == b"+"
    if single:
        image_path = header_path
    elif not image_path.is_file():
        raise ImageError(f"the voxels of this pair are missing, expected {shown(image_path.name)} beside it")
    shape, volumes = sizes(fields, max_voxels)
    dtype = number_type(fields, swapped)
    affine, warnings = place(fields, shape)
    offset = float(fields["vox_offset"])
    least = int(fields["sizeof_hdr"]) if single else 0
    if not 0 <= offset < 1 << 40 or 0 < offset < least:  # NaN is refused too
        raise ImageError(
            f"the header puts the voxels at byte {offset:g}, inside itself or nowhere; restore the file"
        )
    slope, intercept = float(fields["scl_slope"]), float(fields["scl_inter"])
    if not np.isfinite(slope) or slope == 0 or not np.isfinite(intercept):
        slope, intercept = 1.0, 0.0  # the standard: zero means no scaling; nibabel writes NaN for it
    return Header(
        shape=shape,
        affine=affine,
        dtype=dtype,
        file_type="nifti",
        volumes=volumes,
        warnings=tuple(warnings),
        keep={
            "version": 2 if magic[2:3] == b"2" else 1,
            "sform_code": int(fields["sform_code"]),
            "qform_code": int(fields["qform_code"]),
            "xyzt_units": int(fields["xyzt_units"]),
            "compressed": encoding == "gzip",
        },
        stored=StoredVoxels(
            path=image_path,
            encoding=encoding if single else compression_of(image_path),
            offset=int(offset) or (int(fields["sizeof_hdr"]) + 4 if single else 0),
            slope=slope,
            intercept=intercept,
        ),
    )


def pair(path: Path) -> tuple[Path, Path]:
    """The header file and the image file; the same where there is no pair."""
    name, gz = (path.name[:-3], path.name[-3:]) if path.name.lower().endswith(".gz") else (path.name, "")
    if not name.lower().endswith((".hdr", ".img")):
        return path, path
    header, image = path.with_name(name[:-4] + ".hdr" + gz), path.with_name(name[:-4] + ".img" + gz)
    if not header.is_file():
        raise ImageError(f"the header of this pair is missing, expected {shown(header.name)} beside it")
    return header, image


def compression_of(path: Path) -> str:
    with open(path, "rb") as file:
        return "gzip" if file.read(2) == b"\x1f\x8b" else "raw"


def header_bytes(path: Path) -> tuple[bytes, str]:
    """The first 540 bytes (or 348), decompressed, and the compression."""
    encoding = compression_of(path)
    if path.name.lower().endswith(".gz") and encoding == "raw":
        raise ImageError("named .gz and not compressed; rename it without .gz, or compress it")
    buffer = np.zeros(NIFTI2, np.uint8)
    with ByteStream(path, encoding) as stream:
        got = stream.fill(buffer.data)
    if got < NIFTI1:
        raise ImageError(
            f"ends early: got {got} of {NIFTI1} bytes of a NIfTI header; copy or download it again"
        )
    return buffer.tobytes(), encoding


def parse(block: bytes) -> tuple[Any, bool]:
    """nibabel's structured header and whether its bytes are swapped."""
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    for order in "<>":
        size = int(np.frombuffer(block[:4], order + "i4")[0])
        if size in (NIFTI1, NIFTI2):
            kind = Nifti1Header if size == NIFTI1 else Nifti2Header
            return kind(block[:size], endianness=order, check=False), order == ">"
    raise ImageError("not an image of a known type; expected .nii, .nii.gz, .nrrd, .mha or a DICOM folder")


def sizes(fields: Any, max_voxels: int) -> tuple[tuple[int, int, int], int]:
    """The three spatial sizes and the number of volumes, from `dim`."""
    count = int(fields["dim"][0])
    if not 1 <= count <= 7:
        raise ImageError(f"the header claims {count} dimensions, expected 3; restore the file")
    dims = tuple(int(n) for n in fields["dim"][1 : count + 1])
    check_shape(dims, max_voxels)
    volumes = 1
    for n in dims[3:]:
        volumes *= n
    return (dims[0], dims[1], dims[2]), volumes


def number_type(fields: Any, swapped: bool) -> np.dtype[Any]:
    code = int(fields["datatype"])
    if code in COLOUR:
        raise ImageError(f"{COLOUR[code]} voxels, expected one real number per voxel; convert to grey values")
    if code not in REAL:
        raise ImageError(f"unknown or unsupported voxel type {code}; convert to int16 or float32")
    dtype = np.dtype((">" if swapped else "<") + REAL[code])
    bits = int(fields["bitpix"])
    if bits != dtype.itemsize * 8:
        raise ImageError(f"{bits} bits per voxel do not fit the voxel type {dtype.name}; restore the file")
    return dtype


def place(fields: Any, shape: tuple[int, int, int]) -> tuple[npt.NDArray[np.float64], list[str]]:
    """The affine in millimetres, after both of the header's forms were checked, and warnings."""
    spacing = np.asarray(fields["pixdim"][1:4], np.float64)
    if not np.isfinite(spacing).all() or (spacing <= 0).any():
        found = " × ".join(f"{s:g}" for s in spacing)
        raise GeometryError(
            f"the spacing is {found}, expected positive numbers; restore it from the original scan"
        )
    millimetres = np.diag([*[UNIT_MM.get(int(fields["xyzt_units"]) & 7, 1.0)] * 3, 1.0])
    spacing = spacing * millimetres[0, 0]
    warnings: list[str] = []
    sform = qform = None
    if int(fields["sform_code"]) > 0:
        sform = millimetres @ fields.get_sform()
        warnings += check_affine(sform, "sform")
    if int(fields["qform_code"]) > 0:
        qform = millimetres @ quaternion_affine(fields)
        check_affine(qform, "qform")
    if sform is not None and qform is not None:
        apart = Geometry(shape=shape, affine=sform).distance(Geometry(shape=shape, affine=qform))
        if apart > 0.1 * float(spacing.min()):
            raise GeometryError(
                f"sform and qform disagree by up to {apart:.3g} mm; decide which is right, and store it "
                "as both (in nibabel: image.set_qform(image.affine))"
            )
    affine = sform if sform is not None else qform
    if sform is not None and not np.allclose(np.linalg.norm(sform[:3, :3], axis=0), spacing, rtol=0.01):
        warnings.append(
            "the sform's spacing differs from pixdim: the sform is used here, and other tools may differ"
        )
    if affine is None:
        affine = millimetres @ fields.get_base_affine()
        warnings.append("no orientation in the header (sform and qform code 0): left and right are a guess")
    return np.asarray(affine, np.float64), warnings


def quaternion_affine(fields: Any) -> npt.NDArray[np.float64]:
    b, c, d = (float(fields[f"quatern_{name}"]) for name in "bcd")
    if not b * b + c * c + d * d <= 1 + 1e-5:  # also refuses NaN
        raise GeometryError("the qform's quaternion is not a rotation; restore it from the original scan")
    if float(fields["pixdim"][0]) not in (-1.0, 0.0, 1.0):
        raise GeometryError(
            f"the qform's handedness (pixdim[0]) is {float(fields['pixdim'][0]):g}, expected 1 or -1; "
            "restore it from the original scan"
        )
    if float(fields["pixdim"][0]) == 0:  # the standard: 0 means 1
        fields["pixdim"][0] = 1
    return np.asarray(fields.get_qform(), np.float64)


def write_nifti(volume: Volume, path: Path) -> None:
    """Writes one file on the volume's grid, with the form codes and units of its source."""
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    kept = volume.header if volume.file_type == "nifti" else {}
    two = kept.get("version", 1) == 2 or max(volume.array.shape) > 32767
    header: Any = Nifti2Header() if two else Nifti1Header()
    array = volume.array.astype(volume.array.dtype.newbyteorder("<"), copy=False)
    header.set_data_dtype(array.dtype)
    header.set_data_shape(array.shape)
    units = kept.get("xyzt_units", 2)
    affine = volume.geometry.affine.copy()
    affine[:3] /= UNIT_MM.get(units & 7, 1.0)
    sform_code, qform_code = kept.get("sform_code", 1), kept.get("qform_code", 1)
    header.set_zooms(np.linalg.norm(affine[:3, :3], axis=0))
    header.set_qform(affine, code=qform_code)
    header.set_sform(affine, code=sform_code)
    lost = np.abs(header.get_best_affine() - affine).max() > 1e-3
    if lost:  # the source had no orientation, and this is another grid
        header.set_sform(affine, code=1)
    header["xyzt_units"] = units
    header["vox_offset"] = len(header.binaryblock) + 4
    header["magic"] = header.single_magic
    with atomic_path(path) as temporary, open(temporary, "wb") as raw, compressor(path, raw) as file:
        file.write(header.binaryblock + bytes(4))
        for z in range(array.shape[2]):  # slab by slab: no second copy of the whole volume
            file.write(array[:, :, z].tobytes(order="F"))


def compressor(path: Path, raw: IO[bytes]) -> contextlib.AbstractContextManager[Any]:
    """Gzip without name and time, so that the same volume gives the same bytes; or the file itself."""
    if path.suffix.lower() != ".gz":
        return contextlib.nullcontext(raw)
    return gzip.GzipFile("", "wb", COMPRESSION_LEVEL, raw, mtime=0)
