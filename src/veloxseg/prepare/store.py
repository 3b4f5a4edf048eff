"""PREPARED: a folder of training-ready cases that is read patch by patch.

    plan.json  fingerprint.json  cases.json        readable decisions, numbers and splits
    data/<case>.image.npy     float16 (C, X, Y, Z)    normalised network input
    data/<case>.label.npy     uint8   (X, Y, Z)
    data/<case>.points.npy    uint16  (N, 4)          label value and voxel of sampled labelled voxels
    data/<case>.json          where it lies in the scan, what it was made from; written last

Plain memory-mapped .npy was chosen by measuring (MEASURED).
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import DatasetError, ModelError, VeloxSegError
from veloxseg.files import atomic_path, read_json, write_json
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.splits import Split
from veloxseg.prepare.transform import Placement

__all__ = ["Prepared", "PreparedCase", "case_record", "write_case"]

POINTS_PER_LABEL = 5000
HALF_LIMIT = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class PreparedCase:
    name: str
    patient: str
    split: str


@dataclass(frozen=True)
class Prepared:
    """An opened PREPARED folder. Arrays stay on disk until a part of them is asked for."""

    path: Path
    plan: Plan
    cases: tuple[PreparedCase, ...]
    folds: tuple[Split, ...]

    @classmethod
    def open(cls, path: str | Path) -> "Prepared":
        path = Path(path)
        if not (path / "cases.json").is_file():
            raise DatasetError(
                f"{path} is not a prepared data set: cases.json is missing; run `veloxseg prepare` first"
            )
        listing = read_json(path / "cases.json")
        plan = Plan.from_json(read_json(path / "plan.json"))
        try:
            cases = tuple(PreparedCase(c["name"], c["patient"], c["split"]) for c in listing["cases"])
            test = tuple(case.name for case in cases if case.split == "test")
            folds = tuple(Split(tuple(f["train"]), tuple(f["validation"]), test) for f in listing["folds"])
        except (KeyError, TypeError) as error:
            raise DatasetError(
                f"{path / 'cases.json'} is damaged ({error}); run `veloxseg prepare` again"
            ) from error
        return cls(path, plan, cases, folds)

    def split(self, fold: int | None = None) -> Split:
        """The 6:2:2 split, or a fold of cross-validation."""
        if fold is None:
            return Split(
                *(tuple(c.name for c in self.cases if c.split == s) for s in ("train", "validation", "test"))
            )
        if not 0 <= fold < len(self.folds):
            found = (
                f"has folds 0 to {len(self.folds) - 1}" if self.folds else "has too few patients for folds"
            )
            raise DatasetError(
                f"fold {fold} does not exist: {self.path} {found}; choose one, or `prepare --folds K`"
            )
        return self.folds[fold]

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        value: dict[str, Any] = read_json(self.path / "fingerprint.json")
        return value

    def image(self, name: str) -> npt.NDArray[np.float16]:
        """(C, X, Y, Z), memory-mapped."""
        return self._array(name, "image", "r")

    def label(self, name: str) -> npt.NDArray[Any]:
        """(X, Y, Z), memory-mapped."""
        return self._array(name, "label", "r")

    def foreground(self, name: str) -> dict[int, npt.NDArray[np.uint16]]:
        """Label value → (N, 3) voxels of it, a random sample of at most 5000."""
        points = self._array(name, "points", None)
        return {int(value): points[points[:, 0] == value, 1:] for value in np.unique(points[:, 0])}

    def placement(self, name: str) -> Placement:
        """Where the case's grid lies in its reference scan."""
        return Placement.from_json(self.record(name)["placement"])

    def record(self, name: str) -> dict[str, Any]:
        """The case's own JSON: placement, inputs, alignment scores, warnings."""
        value: dict[str, Any] = read_json(_file(self.path, name, "json"))
        return value

    def _array(self, name: str, what: str, mode: Any) -> npt.NDArray[Any]:
        path = _file(self.path, name, f"{what}.npy")
        try:
            array: npt.NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DatasetError(
                f"{path} cannot be read ({error}); run `veloxseg prepare` again to restore it"
            ) from error
        return array


def _file(folder: Path, name: str, suffix: str) -> Path:
    return folder / "data" / f"{name}.{suffix}"


def write_case(
    folder: Path,
    name: str,
    image_CXYZ: npt.NDArray[np.float32],
    label_XYZ: npt.NDArray[Any],
    record: dict[str, Any],
    seed: int,
) -> None:
    """Stores a case; its JSON comes last, so that a case with JSON is whole."""
    np.clip(image_CXYZ, -HALF_LIMIT, HALF_LIMIT, out=image_CXYZ)
    arrays = {
        "image": image_CXYZ.astype(np.float16),
        "label": label_XYZ.astype(np.uint8 if label_XYZ.max(initial=0) < 256 else np.uint16),
        "points": _sample_points(label_XYZ, seed),
    }
    _file(folder, name, "json").unlink(missing_ok=True)
    for what, array in arrays.items():
        with atomic_path(_file(folder, name, f"{what}.npy")) as temporary:
            np.save(temporary, array, allow_pickle=False)
    write_json(_file(folder, name, "json"), record)


def case_record(folder: Path, name: str) -> dict[str, Any] | None:
    """The JSON of a case that was stored whole; None if it was not."""
    try:
        record = read_json(_file(folder, name, "json"))
    except ModelError:
        return None
    whole = all(_file(folder, name, f"{what}.npy").is_file() for what in ("image", "label", "points"))
    return record if whole and isinstance(record, dict) else None


def _sample_points(label_XYZ: npt.NDArray[Any], seed: int) -> npt.NDArray[np.uint16]:
    if max(label_XYZ.shape) > np.iinfo(np.uint16).max:
        raise VeloxSegError(
            f"an image of {label_XYZ.shape} voxels is too long to index; use a coarser --spacing"
        )
    random = np.random.default_rng(seed)
    rows = [np.empty((0, 4), np.uint16)]
    flat = np.flatnonzero(label_XYZ)
    values = label_XYZ.ravel()[flat]
    for value in np.unique(values):
        chosen = flat[values == value]
        if len(chosen) > POINTS_PER_LABEL:
            chosen = np.sort(random.choice(chosen, POINTS_PER_LABEL, replace=False))
        voxels = np.stack(np.unravel_index(chosen, label_XYZ.shape), axis=1)
        rows.append(np.column_stack([np.full(len(chosen), value), voxels]).astype(np.uint16))
    return np.concatenate(rows)
