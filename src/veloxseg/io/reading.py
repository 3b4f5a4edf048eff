"""Reading: any file or DICOM folder becomes a `Volume`.

What a path is, is decided by its content: the first bytes tell NIfTI, NRRD, MetaImage and DICOM apart.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ImageError
from veloxseg.io.checks import MAX_VOXELS, about, check_image_values, label_array
from veloxseg.io.header import Header
from veloxseg.io.nifti import read_nifti_header
from veloxseg.io.volume import Volume
from veloxseg.io.voxels import read_voxels

__all__ = ["read", "read_header", "read_label"]


def read(
    path: str | Path, *, series: str | None = None, volume: int | None = None, max_voxels: int = MAX_VOXELS
) -> Volume:
    """Reads an image as float32 in (X, Y, Z) with an affine to RAS+ millimetres; PET from DICOM is in SUV."""
    path = Path(path)
    with about(path):
        header = file_header(path, max_voxels)
        stored, warnings = read_voxels(header, pick_volume(header, volume))
        array = scaled_float32(stored, header)
        check_image_values(array)
    return as_volume(header, array, path, warnings)


def read_label(path: str | Path, *, reference: Volume | None = None) -> Volume:
    """Reads a label map in the smallest unsigned integer type that holds it."""
    path = Path(path)
    with about(path):
        header = file_header(path, MAX_VOXELS)
        stored, warnings = read_voxels(header, pick_volume(header, None))
        assert header.stored is not None
        plain = (header.stored.slope, header.stored.intercept) == (1.0, 0.0)
        array, more = label_array(stored if plain else scaled_float32(stored, header))
    return as_volume(header, array, path, warnings + more)


def read_header(path: str | Path, *, max_voxels: int = MAX_VOXELS) -> Header:
    """The grid and how it is stored, checked, without reading voxels."""
    path = Path(path)
    with about(path):
        return file_header(path, max_voxels)


def file_header(path: Path, max_voxels: int) -> Header:
    if not path.exists():
        raise ImageError("does not exist; check the path")
    if path.is_file() and path.stat().st_size == 0:
        raise ImageError("is empty (0 bytes); copy or download it again")
    return read_nifti_header(path, max_voxels)


def pick_volume(header: Header, volume: int | None) -> int:
    if volume is None and header.volumes > 1:
        raise ImageError(
            f"4-D, with {header.volumes} volumes, expected 3-D; pick one with --volume N "
            f"(volume=N in Python), N from 0 to {header.volumes - 1}"
        )
    if not 0 <= (volume or 0) < header.volumes:
        raise ImageError(f"there is no volume {volume}; expected a number from 0 to {header.volumes - 1}")
    return volume or 0


def scaled_float32(stored: npt.NDArray[Any], header: Header) -> npt.NDArray[np.float32]:
    assert header.stored is not None
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # what overflows becomes Inf, and is counted by the check
        array = stored.astype(np.float32, copy=False)
        if header.stored.slope != 1:
            array *= np.float32(header.stored.slope)
        if header.stored.intercept != 0:
            array += np.float32(header.stored.intercept)
    return array


def as_volume(header: Header, array: npt.NDArray[Any], path: Path, warnings: list[str]) -> Volume:
    return Volume(
        array=array,
        geometry=header.grid(),
        source=path,
        file_type=header.file_type,
        header=header.keep,
        warnings=(*header.warnings, *warnings),
    )
