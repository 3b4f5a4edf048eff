"""`Header`: what a file says about its voxels before any of them is read.

NIfTI, NRRD and MetaImage differ in how they write this down and agree in what it is: a grid, a number type,
and the place of the bytes. Their modules only parse; `voxels.py` reads for all three.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.io.volume import Geometry

__all__ = ["Header", "StoredVoxels"]


@dataclass(frozen=True, kw_only=True)
class StoredVoxels:
    """Where the voxels of a file lie, in Fortran order."""

    path: Path
    encoding: str  # raw, gzip or zlib
    file_offset: int = 0  # bytes of the file before the (compressed) stream
    offset: int = 0  # bytes of the stream before the first voxel
    interleaved: bool = False  # whether the volumes of a 4-D file alternate voxel by voxel
    slope: float = 1.0
    intercept: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Header(Geometry):
    """The grid of an image file, and how its voxels are stored."""

    dtype: np.dtype[Any]  # as stored
    file_type: str  # nifti, nrrd, meta, dicom
    volumes: int = 1  # more than one in a 4-D file; `read(path, volume=k)` picks one
    keep: dict[str, Any] = field(default_factory=dict)  # what writing back in the same form needs
    warnings: tuple[str, ...] = ()
    stored: StoredVoxels | None = None  # None for DICOM, whose voxels lie in many files

    @property
    def voxels(self) -> int:
        """Number of voxels of one volume."""
        x, y, z = self.shape
        return x * y * z

    def grid(self) -> Geometry:
        """The grid alone."""
        return Geometry(shape=self.shape, affine=self.affine)
