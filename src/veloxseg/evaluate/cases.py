"""Which files belong together: a case is known by its file's name without the ending."""

from pathlib import Path

from veloxseg.errors import DatasetError, GeometryError
from veloxseg.files import read_json
from veloxseg.io import Geometry, grid_difference

__all__ = ["SUFFIXES", "case_name", "check_same_grid", "label_names", "list_cases"]

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


def label_names(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and values from the `dataset.json` in or above `folder` (nnU-Net or Decathlon); {} without one."""
    for path in (folder / "dataset.json", folder.parent / "dataset.json"):
        if path.is_file():
            content = read_json(path)
            labels = content.get("labels", {}) if isinstance(content, dict) else {}
            return _read_names(labels) if isinstance(labels, dict) else {}
    return {}


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
