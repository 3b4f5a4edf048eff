"""`Volume`: an array and where it lies in the patient.

Conventions, the same everywhere in this project: array axes are (X, Y, Z) as nibabel gives them, and the
affine maps voxel indices to millimetres in RAS+ (right, anterior, superior), whatever the file's own habit.
"""

import itertools
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.types import Affine, Array, Size

__all__ = ["Geometry", "Orientation", "Volume"]


@dataclass(frozen=True, kw_only=True)
class Orientation:
    """Which axis of an array runs along each patient axis, and whether it runs the other way."""

    axes: tuple[int, int, int]
    flips: tuple[bool, bool, bool]

    def shape(self, shape: Size) -> Size:
        x, y, z = (shape[axis] for axis in self.axes)
        return x, y, z

    def apply(self, array: Array) -> Array:
        """A view of the array along the patient's axes."""
        return array.transpose(self.axes)[tuple(slice(None, None, -1 if flip else 1) for flip in self.flips)]

    def undo(self, array: Array) -> Array:
        """A view along the axes as they were before `apply`."""
        flipped = array[tuple(slice(None, None, -1 if flip else 1) for flip in self.flips)]
        return flipped.transpose(tuple(int(axis) for axis in np.argsort(self.axes)))


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

    def bounds(self) -> tuple[Affine, Affine]:
        """The lowest and the highest corner of the box that holds all voxels, in RAS+ millimetres."""
        corners = np.array(np.meshgrid(*[(-0.5, n - 0.5) for n in self.shape])).reshape(3, -1)
        points = self.affine[:3, :3] @ corners + self.affine[:3, 3:]
        return points.min(axis=1), points.max(axis=1)

    @cached_property
    def orientation(self) -> "Orientation":
        """How the array is turned so that its axes run as closely as possible to RAS+ (right, front, up)."""
        cosines = np.abs(self.direction)

        def closeness(axes: tuple[int, ...]) -> tuple[float, ...]:
            along = [float(cosines[world, axis]) for world, axis in enumerate(axes)]
            # rounded, and then by the patient's own axes: how a scan is stored must not decide between equals
            return round(sum(along), 6), *(round(value, 6) for value in along)

        x, y, z = max(itertools.permutations(range(3)), key=closeness)
        r, a, s = (bool(self.affine[world, axis] < 0) for world, axis in enumerate((x, y, z)))
        return Orientation(axes=(x, y, z), flips=(r, a, s))

    def in_ras(self) -> "Geometry":
        """The same voxels in the order of the axes closest to RAS+."""
        return Geometry(shape=self.orientation.shape(self.shape), affine=self.affine @ self.to_own())

    def to_own(self) -> Affine:
        """4 × 4: voxel index in the order of the axes closest to RAS+ → voxel index of this grid."""
        matrix = np.zeros((4, 4))
        matrix[3, 3] = 1
        for world, (axis, flip) in enumerate(zip(self.orientation.axes, self.orientation.flips, strict=True)):
            matrix[axis, world] = -1 if flip else 1
            matrix[axis, 3] = self.shape[axis] - 1 if flip else 0
        return matrix

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

    def in_ras(self) -> "Volume":
        """The same voxels along the axes closest to RAS+, as a view."""
        return replace(self, array=self.geometry.orientation.apply(self.array), geometry=self.geometry.in_ras())
