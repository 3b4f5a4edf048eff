"""`Volume`: an array and where it lies in the patient.

Conventions, the same everywhere in this project: array axes are (X, Y, Z) as nibabel gives them, and the
affine maps voxel indices to millimetres in RAS+ (right, anterior, superior), whatever the file's own habit.
"""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Geometry", "Volume"]

Affine = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Geometry:
    """A regular grid in space: size in voxels and the affine from voxel index to RAS+ millimetres."""

    shape: tuple[int, int, int]
    affine: Affine  # 4 x 4

    @cached_property
    def spacing(self) -> tuple[float, float, float]:
        """Millimetres per voxel along each array axis."""
        x, y, z = np.linalg.norm(self.affine[:3, :3], axis=0)
        return float(x), float(y), float(z)

    @cached_property
    def direction(self) -> Affine:
        """Unit vectors of the array axes, as columns."""
        return np.asarray(self.affine[:3, :3] / np.asarray(self.spacing))

    @property
    def origin(self) -> tuple[float, float, float]:
        """Centre of the first voxel, in RAS+ millimetres."""
        x, y, z = self.affine[:3, 3]
        return float(x), float(y), float(z)

    @property
    def voxel_ml(self) -> float:
        """Volume of one voxel in millilitres."""
        return float(abs(np.linalg.det(self.affine[:3, :3]))) / 1000

    def same_grid(self, other: "Geometry", millimetres: float = 1e-2) -> bool:
        """Whether both grids have the same voxels: no corner is apart by more than `millimetres`."""
        return self.shape == other.shape and self.distance(other) <= millimetres

    def distance(self, other: "Geometry") -> float:
        """The largest distance, in millimetres, between the same corner of both grids."""
        corners = np.array(np.meshgrid(*[(0, 1)] * 3)).reshape(3, -1)
        size = np.array(self.shape)[:, None] - 1
        ours = self.affine[:3, :3] @ (corners * size) + self.affine[:3, 3:]
        size = np.array(other.shape)[:, None] - 1
        theirs = other.affine[:3, :3] @ (corners * size) + other.affine[:3, 3:]
        return float(np.linalg.norm(ours - theirs, axis=0).max())

    def to_json(self) -> dict[str, Any]:
        return {"shape": list(self.shape), "spacing": list(self.spacing), "affine": self.affine.tolist()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Volume:
    """One scan or one label map."""

    array: npt.NDArray[Any]  # (X, Y, Z)
    geometry: Geometry
    source: Path | None = None  # the file or DICOM folder it came from
    file_type: str = "nifti"  # what it was stored as: nifti, nrrd, meta, dicom
    header: dict[str, Any] = field(default_factory=dict)  # what writing back in the same form needs
    warnings: tuple[str, ...] = ()  # what the reader noticed and the user should know
