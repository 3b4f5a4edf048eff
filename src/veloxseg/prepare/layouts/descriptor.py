"""`dataset.json` as nnU-Net and the Medical Segmentation Decathlon write it: reading with clear errors."""

from pathlib import Path
from typing import Any

from veloxseg.errors import DatasetError, VeloxSegError
from veloxseg.files import read_json

__all__ = ["find_descriptor", "read_descriptor"]


def find_descriptor(path: Path) -> Path:
    """`path/dataset.json`, or `path` itself if it is that file."""
    return path if path.name == "dataset.json" else path / "dataset.json"


def read_descriptor(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; anything else is an error."""
    try:
        value = read_json(path)
    except OSError as error:
        raise DatasetError(
            f"cannot read {path}: {error.strerror or error}; check the file's permissions"
        ) from error
    except VeloxSegError as error:
        from veloxseg.io.checks import shown

        raise DatasetError(shown(error, 400)) from error
    if not isinstance(value, dict):
        raise DatasetError(
            f"{path} holds a {type(value).__name__}, expected an object; see the layout's documentation"
        )
    return value


def peek(path: Path) -> dict[str, Any]:
    """As `read_descriptor`, but empty instead of an error: for recognising a layout."""
    try:
        return read_descriptor(path) if path.is_file() else {}
    except DatasetError:
        return {}
