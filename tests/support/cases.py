"""Tiny scans as files: a body with a lesion, on any grid."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest

from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.image.volume import Geometry, Volume
from veloxseg.prepare.network_input import Placement
from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan


def phantom(kind: str, shape: tuple[int, int, int], affine: Any, seed: int = 0, shift: Any = (0, 0, 0)) -> np.ndarray:
    """An ellipsoid of tissue in air, centred at the origin of space, with a brighter lesion off its centre."""
    index = np.indices(shape).reshape(3, -1)
    points = (affine[:3, :3] @ index + affine[:3, 3:]).T - np.asarray(shift)
    body = ((points / (28, 22, 30)) ** 2).sum(axis=1) < 1
    lesion = np.linalg.norm(points - (8, 4, -5), axis=1) < 7
    air, tissue, hot = {"ct": (-1000, 40, 80), "pet": (0, 1, 6)}.get(kind, (0, 300, 500))
    noise = np.random.default_rng(seed).normal(0, 0.02 * (tissue - air), len(points))
    values = np.where(lesion, hot, np.where(body, tissue, air)) + np.where(body, noise, np.abs(noise) * 0.1)
    return values.reshape(shape).astype(np.float32)


def lesion(shape: tuple[int, int, int], affine: Any) -> np.ndarray:
    index = np.indices(shape).reshape(3, -1)
    points = (affine[:3, :3] @ index + affine[:3, 3:]).T
    return (np.linalg.norm(points - (8, 4, -5), axis=1) < 7).reshape(shape).astype(np.uint8)


def centred(shape: tuple[int, int, int], spacing: tuple[float, float, float]) -> np.ndarray:
    affine = np.diag([*spacing, 1.0])
    affine[:3, 3] = -(np.array(shape) - 1) / 2 * spacing
    return affine


def save(path: Path, array: np.ndarray, affine: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(array, affine), path)
    return path


CT_GRID = ((40, 32, 20), (2.0, 2.0, 4.0))
PET_GRID = ((20, 18, 20), (4.0, 4.0, 4.0))


@pytest.fixture
def write_case() -> Callable[..., Case]:
    """Writes ct, pet and label of one case and returns it."""

    def write(folder: Path, name: str, seed: int = 0, patient: str | None = None, shift: Any = (0, 0, 0)) -> Case:
        ct, pet = centred(*CT_GRID), centred(*PET_GRID)
        images = {
            "ct": save(folder / name / "ct.nii.gz", phantom("ct", CT_GRID[0], ct, seed), ct),
            "pet": save(folder / name / "pet.nii.gz", phantom("pet", PET_GRID[0], pet, seed, shift), pet),
        }
        label = save(folder / name / "label.nii.gz", lesion(CT_GRID[0], ct), ct)
        return Case(name=name, patient=patient or name, images=images, label=label)

    return write


@pytest.fixture
def make_dataset(tmp_path: Path, write_case: Callable[..., Case]) -> Callable[..., Dataset]:
    def make(count: int = 5) -> Dataset:
        cases = tuple(write_case(tmp_path / "raw", f"case_{i}", seed=i) for i in range(count))
        return Dataset(
            name="tiny",
            layout="table",
            root=tmp_path / "raw",
            modalities=("ct", "pet"),
            labels={"background": 0, "lesion": 1},
            cases=cases,
        )

    return make


def plan_for(kinds: dict[str, str], spacing: tuple[float, float, float], scheme: str = "none") -> Plan:
    return Plan(
        dataset="tiny",
        modalities=tuple(
            ModalityPlan(name=name, kind=kind, normalisation=Normalisation(scheme=scheme))
            for name, kind in kinds.items()
        ),
        reference=next(iter(kinds)),
        spacing=spacing,
        patch=(32, 32, 32),
        windows=((1, 1, 1),) * 4,
        labels={"background": 0, "lesion": 1},
    )


def from_network(labels_XYZ: np.ndarray, placement: Placement) -> np.ndarray:
    """A network's labels on the scan's own grid: the label at each voxel's centre, 0 outside."""
    to_network = np.linalg.inv(placement.network.affine) @ placement.reference.affine
    index = np.indices(placement.reference_shape).reshape(3, -1)
    there = np.rint(to_network[:3, :3] @ index + to_network[:3, 3:]).astype(int)
    inside = ((there >= 0) & (there < np.array(labels_XYZ.shape)[:, None])).all(axis=0)
    result = np.zeros(index.shape[1], labels_XYZ.dtype)
    result[inside] = labels_XYZ[tuple(there[:, inside])]
    return result.reshape(placement.reference_shape)


@pytest.fixture
def tools() -> Any:
    """The helpers above, for tests in other files."""

    class Tools:
        phantom = staticmethod(phantom)
        lesion = staticmethod(lesion)
        centred = staticmethod(centred)
        save = staticmethod(save)
        plan = staticmethod(plan_for)

        @staticmethod
        def volume(array: np.ndarray, affine: np.ndarray) -> Volume:
            return Volume(array=array, geometry=Geometry(shape=array.shape, affine=np.asarray(affine, float)))

    return Tools
