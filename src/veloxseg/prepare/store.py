"""PREPARED: a folder of training-ready cases that is read patch by patch.

    plan.json  fingerprint.json  cases.json    readable decisions, numbers and splits
    data/<case>.safetensors                    one file per case, written at once, memory-mapped for reading:
        image   float16 (C, X, Y, Z)    normalised network input
        label   uint8   (X, Y, Z)
        points  uint16  (N, 4)          label value and voxel of sampled labelled voxels
        record  JSON, in the header     where the case lies in its scan, what it was made from, warnings

Uncompressed float16 was chosen by measuring. A random 2 × 96³ patch as float32, from a case of 2 × 256 × 256 × 288, on
one core: mapped float16 5 ms (12 ms from a cold disk; 75 MB), mapped float32 2 ms (14 ms; 151 MB), zlib chunks of
32³ 85 ms (54 MB).
"""

import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from veloxseg.dataset.dataset import SPLITS, safe_name
from veloxseg.dataset.seen import Learning, LearntCase
from veloxseg.dataset.splits import Split
from veloxseg.errors import DatasetError, VeloxSegError, shown
from veloxseg.files import atomic_path, read_json
from veloxseg.image.regions import label_boxes
from veloxseg.prepare.network_input import Placement
from veloxseg.prepare.plan import Plan
from veloxseg.schema import OneOf, read

__all__ = ["Prepared", "PreparedCase", "case_record", "write_case"]

POINTS_PER_LABEL = 5000
HALF_LIMIT = float(np.finfo(np.float16).max)
DTYPES = {"F16": np.float16, "U8": np.uint8, "U16": np.uint16}  # safetensors' names of what we store
AXES = {"image": 4, "label": 3, "points": 2}
MOST_HEADER_BYTES = 1 << 24


@dataclass(frozen=True)
class PreparedCase:
    name: str
    patient: str
    split: Annotated[str, OneOf(*SPLITS)]
    scans: dict[str, str] = field(default_factory=dict)  # modality -> content hash; {} in folders of older versions
    alignment: Any = None  # for people who read the file, as are the warnings
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        safe_name(self.name, Path("cases.json"))


@dataclass(frozen=True)
class Fold:
    train: tuple[str, ...]
    validation: tuple[str, ...]


@dataclass(frozen=True)
class Listing:
    """cases.json."""

    cases: tuple[PreparedCase, ...]
    folds: tuple[Fold, ...]
    seed: int = 0  # of the splits, for people who read the file


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
        listing = read(Listing, path / "cases.json", DatasetError, "run `veloxseg prepare` again")
        plan = Plan.from_json(read_json(path / "plan.json"))
        test = tuple(case.name for case in listing.cases if case.split == "test")
        return cls(path, plan, listing.cases, tuple(_fold(fold, test) for fold in listing.folds))

    def split(self, fold: int | None = None) -> Split:
        """The 6:2:2 split, or a fold of cross-validation."""
        if fold is None:
            return Split(*(tuple(c.name for c in self.cases if c.split == s) for s in ("train", "validation", "test")))
        if not 0 <= fold < len(self.folds):
            found = f"has folds 0 to {len(self.folds) - 1}" if self.folds else "has too few patients for folds"
            raise DatasetError(f"fold {fold} does not exist: {self.path} {found}; choose one, or `prepare --folds K`")
        return self.folds[fold]

    def learning(self, split: Split, modalities: tuple[str, ...]) -> Learning:
        """What a training on this split learns from, by names and by the content of these modalities."""
        scans = {case.name: {m: case.scans[m] for m in modalities if m in case.scans} for case in self.cases}
        train, validation = (
            tuple(LearntCase(name=name, scans=scans.get(name, {})) for name in part)
            for part in (split.train, split.validation)
        )
        return Learning(train=train, validation=validation)

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        return read_json(self.path / "fingerprint.json")

    def image(self, name: str) -> npt.NDArray[np.float16]:
        """(C, X, Y, Z), memory-mapped."""
        return _map(_file(self.path, name), "image")

    def label(self, name: str) -> npt.NDArray[Any]:
        """(X, Y, Z), memory-mapped."""
        return _map(_file(self.path, name), "label")

    def foreground(self, name: str) -> dict[int, npt.NDArray[np.uint16]]:
        """Label value → (N, 3) voxels of it, a random sample of at most 5000."""
        points = np.array(_map(_file(self.path, name), "points"))
        return {int(value): points[points[:, 0] == value, 1:] for value in np.unique(points[:, 0])}

    def placement(self, name: str) -> Placement:
        """Where the case's grid lies in its reference scan."""
        return Placement.from_json(self.record(name)["placement"])

    def record(self, name: str) -> dict[str, Any]:
        """Placement, inputs, alignment scores and warnings of a case."""
        return _record(_file(self.path, name))

    def content(self, name: str) -> str:
        """The hash of a case's voxels: the same for the same data, wherever and whenever they were prepared."""
        content = self.record(name).get("content")
        if not isinstance(content, str):
            raise DatasetError(f"{self.path} is of an older version; run `veloxseg prepare` again")
        return content


def _fold(fold: Fold, test: tuple[str, ...]) -> Split:
    """Folds that came with the data set may train on cases that the 6:2:2 split tests on: these are not unseen."""
    seen = {*fold.train, *fold.validation}
    return Split(fold.train, fold.validation, tuple(name for name in test if name not in seen))


def write_case(
    folder: Path,
    name: str,
    image_CXYZ: npt.NDArray[np.float32],
    label_XYZ: npt.NDArray[Any],
    record: dict[str, Any],
    seed: int,
) -> None:
    """Stores a case in one file, whole or not at all. Values beyond float16 are clipped, in place."""
    from safetensors.numpy import save

    np.clip(image_CXYZ, -HALF_LIMIT, HALF_LIMIT, out=image_CXYZ)
    arrays = {
        "image": image_CXYZ.astype(np.float16),
        "label": np.ascontiguousarray(label_XYZ, np.uint8 if label_XYZ.max(initial=0) < 256 else np.uint16),
        "points": _sample_points(label_XYZ, seed),
    }
    record = {**record, "content": _content(arrays)}
    with atomic_path(_file(folder, name)) as temporary:
        # save_file tells of a full disk by an error of its own
        temporary.write_bytes(save(arrays, metadata={"record": json.dumps(record)}))


def _content(arrays: dict[str, npt.NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.data if array.size else b"")
    return digest.hexdigest()


def case_record(folder: Path, name: str) -> dict[str, Any] | None:
    """The record of a case that is stored whole; None if it is not there or damaged."""
    try:
        return _record(_file(folder, name))
    except DatasetError:
        return None


def _file(folder: Path, name: str) -> Path:
    return folder / "data" / f"{name}.safetensors"


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """safetensors: eight bytes with the header's length, the header as JSON, then the arrays."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > MOST_HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
        end = 8 + length + max(entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__")
        if path.stat().st_size != end:
            raise ValueError(f"{path.stat().st_size} of {end} bytes")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        message = f"{path} cannot be read ({error}); run `veloxseg prepare` again to restore it"
        raise DatasetError(message) from error
    return header, 8 + length


def _record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(_header(path)[0]["__metadata__"]["record"])
    except (LookupError, ValueError, TypeError) as error:
        raise DatasetError(f"{path} has no record ({error}); run `veloxseg prepare` again to restore it") from error
    if not isinstance(record, dict):
        raise DatasetError(f"{path} has a record that is no object; run `veloxseg prepare` again to restore it")
    return record


def _map(path: Path, what: str) -> npt.NDArray[Any]:
    header, base = _header(path)
    try:
        dtype, shape, start = _place(header, what)
        if header["image"]["shape"][1:] != header["label"]["shape"]:
            raise ValueError(f"an image of {header['image']['shape']}, a label of {header['label']['shape']}")
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(path, dtype, "r", base + start, shape)
    except (LookupError, ValueError, TypeError, OSError) as error:
        message = f"{path} has no {what} ({shown(error)}); run `veloxseg prepare` again to restore it"
        raise DatasetError(message) from error


def _place(header: dict[str, Any], what: str) -> tuple[npt.DTypeLike, tuple[int, ...], int]:
    """Type, shape and first byte of an array, as a header states them: they fit each other and what is stored."""
    entry = header[what]
    dtype, shape, (start, end) = DTYPES[entry["dtype"]], tuple(map(int, entry["shape"])), entry["data_offsets"]
    expected = math.prod(shape) * np.dtype(dtype).itemsize
    if len(shape) != AXES[what] or min(shape) < 0 or start < 0 or end - start != expected:
        raise ValueError(f"a shape of {shape} in bytes {start} to {end}")
    if what == "points" and shape[1] != 4:
        raise ValueError(f"{shape[1]} numbers for each point")
    return dtype, shape, start


def _sample_points(label_XYZ: npt.NDArray[Any], seed: int) -> npt.NDArray[np.uint16]:
    if max(label_XYZ.shape) > np.iinfo(np.uint16).max:
        raise VeloxSegError(f"an image of {label_XYZ.shape} voxels is too long to index; use a coarser --spacing")
    random = np.random.default_rng(seed)
    rows = [np.empty((0, 4), np.uint16)]
    for value, box in label_boxes(label_XYZ).items():
        part = label_XYZ[box] == value
        chosen = np.flatnonzero(part)
        if len(chosen) > POINTS_PER_LABEL:
            chosen = np.sort(random.choice(chosen, POINTS_PER_LABEL, replace=False))
        voxels = np.stack(np.unravel_index(chosen, part.shape), axis=1) + [side.start for side in box]
        rows.append(np.column_stack([np.full(len(chosen), value), voxels]).astype(np.uint16))
    return np.concatenate(rows)
