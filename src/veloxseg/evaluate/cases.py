"""Which files belong together: a case is known by its file's name without the ending."""

from dataclasses import dataclass, field
from pathlib import Path

from veloxseg.errors import DatasetError, GeometryError
from veloxseg.files import read_json
from veloxseg.io import Geometry, grid_difference

__all__ = ["SUFFIXES", "Labels", "case_name", "check_same_grid", "list_cases", "open_labels"]

SUFFIXES = (".seg.nrrd", ".nii.gz", ".nii", ".nrrd", ".mha", ".mhd")


def case_name(path: Path) -> str | None:
    """The file's name without the ending of an image; None if it is no image.

    >>> case_name(Path("STS_001.nii.gz"))
    'STS_001'
    """
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix) and len(path.name) > len(suffix):
            return path.name[: -len(suffix)]
    return None


def list_cases(folder: Path) -> dict[str, Path]:
    """The images of a folder by case, in the order of their names."""
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "does not exist"
        raise DatasetError(f"{folder} {found}; give a folder with one image per case")
    cases: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        name = None if path.name.startswith(".") else case_name(path)
        if name is None:
            continue
        if name in cases:
            raise DatasetError(
                f"case {name!r} is in {folder} twice ({cases[name].name}, {path.name}); remove one of them"
            )
        cases[name] = path
    return cases


def check_same_grid(prediction: Geometry, label: Geometry, case: str, method: str) -> None:
    """Refuses a prediction that does not lie on its label's voxels."""
    if difference := grid_difference(prediction, label):
        raise GeometryError(
            f"case {case!r}: the prediction of {method} and the label lie on different grids: {difference}; "
            "predict on the label's grid, or resample the prediction there with nearest neighbour"
        )


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The truth: where it lies and what its values mean."""

    files: dict[str, Path]  # by case
    structures: dict[str, tuple[int, ...]]  # {} if nothing says what the values mean
    ignore: int | None = None  # voxels of this value are not scored
    images: dict[str, dict[str, Path]] = field(default_factory=dict)  # case -> modality -> file


def open_labels(folder: Path) -> Labels:
    """A folder of label maps, or a data set in any layout that prepare knows.

    Of a data set with unseen (test) cases that have labels, those; else all cases with labels.
    """
    files = list_cases(folder)
    if files:
        return _with_names(files, folder)
    from veloxseg.prepare.layouts import open_dataset

    try:
        dataset = open_dataset(folder)
    except DatasetError as error:
        raise DatasetError(
            f"{folder} holds no image and is no data set of a known layout; give a folder with one label map per case"
        ) from error
    labelled = [(case.name, case.label, case.split) for case in dataset.cases if case.label is not None]
    if not labelled:
        raise DatasetError(
            f"{folder} has {len(dataset.cases)} cases and no label; give a data set with labels"
        )
    unseen = [entry for entry in labelled if entry[2] == "test"]
    structures = dict(dataset.regions or {})
    for name, value in dataset.labels.items() if not structures else ():
        if value not in (0, dataset.ignore_label):
            structures[name] = (value,)
    return Labels(
        files={name: label for name, label, _ in unseen or labelled},
        structures=structures,
        ignore=dataset.ignore_label,
        images={case.name: case.images for case in dataset.cases},
    )


def _with_names(files: dict[str, Path], folder: Path) -> Labels:
    """Names and values from the `dataset.json` in or above the folder (nnU-Net or Decathlon), if there is one."""
    for path in (folder / "dataset.json", folder.parent / "dataset.json"):
        if path.is_file():
            content = read_json(path)
            given = content.get("labels") if isinstance(content, dict) else None
            names = _read_names(given) if isinstance(given, dict) else {}
            ignore = names.pop("ignore", (None,))[0]  # nnU-Net's word for voxels that nobody labelled
            return Labels(files=files, structures=names, ignore=ignore)
    return Labels(files=files, structures={})


def _read_names(labels: dict[str, object]) -> dict[str, tuple[int, ...]]:
    names: dict[str, tuple[int, ...]] = {}
    for key, value in labels.items():
        if key.isdecimal():  # Decathlon: {"1": "liver"}
            names[str(value)] = (int(key),)
        elif isinstance(value, list) and all(isinstance(v, int) for v in value):  # nnU-Net regions
            names[key] = tuple(value)
        elif isinstance(value, int):  # nnU-Net: {"liver": 1}
            names[key] = (value,)
    return {name: values for name, values in names.items() if values and 0 not in values}
