"""NIfTI-1 and NIfTI-2, one file (.nii, .nii.gz) or a pair (.hdr/.img, also .gz), either byte order.

nibabel knows the header's fields and quaternions. It also repairs bad headers silently (a spacing of 0
becomes 1 mm, a negative one positive), so we read with its repairs switched off and check ourselves.

Which affine holds: the sform where its code is positive, else the qform, else only the spacings (with a
warning). Where both forms are given they must agree.

Values are scl_slope × stored + scl_inter. A slope of zero means no scaling by the standard, and NaN means the same
because nibabel writes it so; scl_inter has no meaning then. Any other number that is not finite is refused.
"""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.errors import GeometryError, ImageError, shown
from veloxseg.files import atomic_path
from veloxseg.image.stream import ByteStream, Header, StoredVoxels
from veloxseg.image.validate import check_affine, check_shape
from veloxseg.image.volume import Geometry, Volume
from veloxseg.image.writer import gzip_stream, slabs
from veloxseg.types import Affine, Size

__all__ = ["place", "read_nifti_header", "write_nifti"]

NIFTI1, NIFTI2 = 348, 540  # header sizes, which are the first number of the file
MAGIC = {NIFTI1: (b"n+1\0", b"ni1\0"), NIFTI2: (b"n+2\0", b"ni2\0")}  # of one file, and of a pair
EXTENDER = 4  # bytes between the header and what follows; the first says whether extensions do
UNIT_MM = {0: 1.0, 1: 1000.0, 2: 1.0, 3: 0.001}  # unknown (taken as mm), metre, millimetre, micrometre
FORM_CODES = range(6)  # none, scanner, aligned, Talairach, MNI 152, other template
INTEGERS = {2: "u1", 4: "i2", 8: "i4", 256: "i1", 512: "u2", 768: "u4", 1024: "i8", 1280: "u8"}
REAL = INTEGERS | {16: "f4", 64: "f8"}
COLOUR = {32: "complex", 1792: "complex", 2048: "complex", 128: "RGB", 2304: "RGBA"}


def read_nifti_header(path: Path, max_voxels: int) -> Header:
    """Parses and checks the header; reads no voxel."""
    header_path, image_path = pair(path)
    block, encoding = header_bytes(header_path)
    fields, swapped = parse(block)
    check_magic(fields, header_path, image_path)
    shape, volumes = sizes(fields, max_voxels)
    dtype = number_type(fields, swapped)
    affine, warnings = place(fields, shape)
    slope, intercept = scaling(fields)
    return Header(
        shape=shape,
        affine=affine,
        dtype=dtype,
        file_type="nifti",
        volumes=volumes,
        warnings=tuple(warnings),
        keep={
            "version": 1 if int(fields["sizeof_hdr"]) == NIFTI1 else 2,
            "sform_code": int(fields["sform_code"]),
            "qform_code": int(fields["qform_code"]),
            "xyzt_units": int(fields["xyzt_units"]),
            "suffix": ".nii.gz" if encoding == "gzip" else ".nii",
        },
        stored=StoredVoxels(
            path=image_path,
            encoding=encoding if image_path == header_path else compression_of(image_path),
            offset=voxel_offset(fields, block, single=image_path == header_path),
            slope=slope,
            intercept=intercept,
        ),
    )


def check_magic(fields: Any, header_path: Path, image_path: Path) -> None:
    """Refuses a header that says otherwise than its file's name whether the voxels lie in the same file."""
    size = int(fields["sizeof_hdr"])
    magic = fields["magic"].tobytes()[:4]
    if magic not in MAGIC[size]:
        raise ImageError(f"Analyze or damaged header (magic {magic!r}), expected NIfTI; convert it to NIfTI")
    one_file = magic == MAGIC[size][0]
    if one_file and image_path != header_path:
        raise ImageError(
            f"named as a pair of header and voxels, but its magic {magic[:3].decode()} says that both are one file; "
            "rename it to .nii"
        )
    if not one_file and image_path == header_path:
        raise ImageError(
            f"its magic {magic[:3].decode()} says that the voxels lie in a file of their own, expected a pair called "
            ".hdr and .img; restore both files"
        )
    if not image_path.is_file():
        raise ImageError(f"the voxels of this pair are missing, expected {shown(image_path.name)} beside it")


def voxel_offset(fields: Any, block: bytes, single: bool) -> int:
    """The byte of the first voxel. In one file it comes after the header; zero there means right after it."""
    offset = float(fields["vox_offset"])
    least = int(fields["sizeof_hdr"]) + EXTENDER if single else 0
    if not 0 <= offset < 1 << 40 or offset % 1 or 0 < offset < least:  # NaN is refused too
        raise ImageError(f"the header puts the voxels at byte {offset:g}, inside itself or nowhere; restore the file")
    if single and offset == 0 and block[least - EXTENDER]:
        raise ImageError("the header has extensions and does not say where the voxels start; restore the file")
    return int(offset) or least


def scaling(fields: Any) -> tuple[float, float]:
    """Slope and intercept, as told at the top of this file."""
    slope, intercept = float(fields["scl_slope"]), float(fields["scl_inter"])
    if np.isnan(slope) or slope == 0:
        return 1.0, 0.0
    if not (np.isfinite(slope) and np.isfinite(intercept)):
        raise ImageError(
            f"the values' slope is {slope:g} and their intercept {intercept:g}, expected finite numbers; "
            "restore the file from the original scan"
        )
    return slope, intercept


def pair(path: Path) -> tuple[Path, Path]:
    """Gives the header file and the image file, which are the same where there is no pair."""
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
    """Reads the first 544 bytes (a small file may have 348), decompressed; returns them and the compression."""
    encoding = compression_of(path)
    if path.name.lower().endswith(".gz") and encoding == "raw":
        raise ImageError("named .gz and not compressed; rename it without .gz, or compress it")
    buffer = np.zeros(NIFTI2 + EXTENDER, np.uint8)
    with ByteStream(path, encoding) as stream:
        got = stream.fill(buffer.data)
    if got < NIFTI1:
        raise ImageError(f"ends early: got {got} of {NIFTI1} bytes of a NIfTI header; copy or download it again")
    return buffer.tobytes(), encoding


def parse(block: bytes) -> tuple[Any, bool]:
    """Gives nibabel's structured header, and whether its bytes are swapped."""
    from nibabel.nifti1 import Nifti1Header
    from nibabel.nifti2 import Nifti2Header

    for order in "<>":
        size = int(np.frombuffer(block[:4], order + "i4")[0])
        if size in (NIFTI1, NIFTI2):
            kind = Nifti1Header if size == NIFTI1 else Nifti2Header
            return kind(block[:size], endianness=order, check=False), order == ">"
    raise ImageError("not an image of a known type; expected .nii, .nii.gz, .nrrd, .mha or a DICOM folder")


def sizes(fields: Any, max_voxels: int) -> tuple[Size, int]:
    """Takes the three spatial sizes and the number of volumes from `dim`."""
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


def place(fields: Any, shape: Size) -> tuple[Affine, list[str]]:
    """The affine in millimetres, after every form that the header has was checked, and warnings."""
    spacing = np.asarray(fields["pixdim"][1:4], np.float64)
    if not np.isfinite(spacing).all() or (spacing <= 0).any():
        found = " × ".join(f"{s:g}" for s in spacing)
        raise GeometryError(f"the spacing is {found}, expected positive numbers; restore it from the original scan")
    unit = millimetres_per_unit(fields)
    scale = np.array([[unit], [unit], [unit], [1.0]])
    sform_code, qform_code = form_code(fields, "sform_code"), form_code(fields, "qform_code")
    if sform_code == qform_code == 0:
        affine = scale * fields.get_base_affine()
        guess = "no orientation in the header (sform and qform code 0): left and right are a guess"
        return affine, [guess, *check_affine(affine, "pixdim")]
    sform = scale * fields.get_sform() if sform_code else None
    qform = scale * quaternion_affine(fields) if qform_code else None
    warnings = check_affine(sform, "sform") if sform is not None else []
    if qform is not None:
        more = check_affine(qform, "qform")
        warnings = warnings or more
    if sform is None:
        assert qform is not None
        return qform, warnings
    if qform is not None:
        apart = Geometry(shape=shape, affine=sform).distance(Geometry(shape=shape, affine=qform))
        if apart > 0.1 * unit * float(spacing.min()):
            raise GeometryError(
                f"sform and qform disagree by up to {apart:.3g} mm; decide which is right, and store it "
                "as both (in nibabel: image.set_qform(image.affine))"
            )
    if not np.allclose(np.linalg.norm(sform[:3, :3], axis=0), unit * spacing, rtol=0.01):
        warnings.append("the sform's spacing differs from pixdim: the sform is used here, and other tools may differ")
    return sform, warnings


def millimetres_per_unit(fields: Any) -> float:
    code = int(fields["xyzt_units"]) & 7  # the other bits are the unit of time
    if code not in UNIT_MM:
        raise GeometryError(
            f"the unit of space has the unknown code {code}, expected metres, millimetres or micrometres; "
            "restore it from the original scan"
        )
    return UNIT_MM[code]


def form_code(fields: Any, name: str) -> int:
    code = int(fields[name])
    if code not in FORM_CODES:
        raise GeometryError(f"{name} is {code}, expected {FORM_CODES[0]} to {FORM_CODES[-1]}; restore the file")
    return code


def quaternion_affine(fields: Any) -> Affine:
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
    header.set_data_dtype(volume.array.dtype.newbyteorder("<"))
    header.set_data_shape(volume.array.shape)
    units = kept.get("xyzt_units", 2)
    unit = UNIT_MM[units & 7]
    affine = volume.geometry.affine.copy()
    affine[:3] /= unit
    sform_code, qform_code = kept.get("sform_code", 1), kept.get("qform_code", 1)
    header.set_zooms(np.linalg.norm(affine[:3, :3], axis=0))
    header.set_qform(affine, code=qform_code)
    header.set_sform(affine, code=sform_code)
    lost = np.abs(header.get_best_affine() - affine).max() * unit  # in millimetres
    if lost > 1e-3:  # the source had no orientation, and this is another grid
        header.set_sform(affine, code=1)
    header["xyzt_units"] = units
    header["vox_offset"] = len(header.binaryblock) + EXTENDER
    header["magic"] = header.single_magic
    packed = path.suffix.lower() == ".gz"
    with (
        atomic_path(path) as temporary,
        open(temporary, "wb") as raw,
        gzip_stream(raw) if packed else contextlib.nullcontext(raw) as file,
    ):
        file.write(header.binaryblock + bytes(EXTENDER))
        for slab in slabs(volume.array):
            file.write(slab)
