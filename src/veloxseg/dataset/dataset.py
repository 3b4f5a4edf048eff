"""The one internal form of a data set, whatever archive it came as."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from veloxseg.errors import DatasetError, shown

__all__ = ["Case", "Dataset", "inside", "possible", "safe_name"]

MOST_LABEL = 65535
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One examination: its scans by modality and, where there is one, its label map."""

    name: str
    patient: str  # cases of one patient never come apart in a split
    images: dict[str, Path]  # modality -> file or DICOM folder
    label: Path | None = None
    volumes: dict[str, int] = field(default_factory=dict)  # modality -> volume of a 4-D file
    series: dict[str, str] = field(default_factory=dict)  # modality -> series of a DICOM folder
    # label -> names of its region in an RTSTRUCT or SEG, with * and ?; without an entry the label's own name
    rois: dict[str, tuple[str, ...]] = field(default_factory=dict)
    split: str | None = None  # train, validation or test, where the data set itself says so


@dataclass(frozen=True, kw_only=True)
class Dataset:
    name: str
    layout: str
    root: Path
    modalities: tuple[str, ...]
    labels: dict[str, int]  # with "background": 0
    cases: tuple[Case, ...]
    regions: dict[str, tuple[int, ...]] | None = None
    ignore_label: int | None = None
    merged: dict[str, dict[str, int]] = field(default_factory=dict)  # label -> labels of the files that are one in it
    folds: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()  # (training, validation) case names

    def __post_init__(self) -> None:
        if not self.cases:
            raise DatasetError(
                f"{self.root} holds no case in {self.layout} layout; check the folder or name another --layout"
            )
        from veloxseg.errors import shown

        values = list(self.labels.values())
        if any(type(v) is not int or not 0 <= v <= MOST_LABEL for v in values) or len(set(values)) < len(values):
            raise DatasetError(
                f"{self.root} lists the label values {shown(values)}, expected different numbers up to {MOST_LABEL}"
            )
        used = {v for region in (self.regions or {}).values() for v in region}
        if self.ignore_label is not None:
            used.add(self.ignore_label)
        if unlisted := used - set(values):
            raise DatasetError(
                f"{self.root} uses label value {shown(unlisted)} in a region or as ignore; list it among the labels too"
            )


def safe_name(name: str, where: Path) -> str:
    """`name` if it can be a file name of its own and cannot lead anywhere else."""
    if not re.fullmatch(r"[^\W_][\w .,+()\-]{0,199}", name) or ".." in name:
        raise DatasetError(f"{where} names a case {name!r}, which is no plain file name; use letters, digits, - and _")
    return name


def inside(root: Path, relative: str, where: Path) -> Path:
    """`root / relative`, refused if it leaves `root`."""
    path = possible(root / relative, where)
    if Path(relative).is_absolute() or not path.resolve().is_relative_to(root.resolve()):
        raise DatasetError(f"{where} points to {relative!r}, outside of its folder {root}; move the file inside")
    return path


def possible(path: Path, where: Path) -> Path:
    """`path`, refused if no file can have that name."""
    try:
        path.lstat()
    except FileNotFoundError:
        pass  # which is told by whoever reads it
    except (OSError, ValueError) as error:  # too long, a NUL, a file where a folder is due
        reason = error.strerror if isinstance(error, OSError) else error
        raise DatasetError(f"{shown(where)} names {shown(path)!r}, which is no path ({reason}); correct it") from error
    return path
