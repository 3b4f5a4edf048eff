"""Reading and writing scans: any file or DICOM folder becomes a `Volume`, an array and its place in space.

Names are loaded when they are first used: `formats.py` of this package serves the command line's help, which must
not wait for numpy.
"""

import importlib
from typing import TYPE_CHECKING, Any

# public name -> the module of this package that defines it
_LAZY = {
    "MAX_VOXELS": "validate",
    "Geometry": "volume",
    "Header": "stream",
    "Volume": "volume",
    "check_same_grid": "validate",
    "from_image": "reader",
    "grid_difference": "validate",
    "output_suffix": "formats",
    "read": "reader",
    "read_header": "reader",
    "read_label": "reader",
    "write": "writer",
    "write_dicom_seg": "writer",
}

__all__ = [
    "MAX_VOXELS",
    "Geometry",
    "Header",
    "Volume",
    "check_same_grid",
    "from_image",
    "grid_difference",
    "output_suffix",
    "read",
    "read_header",
    "read_label",
    "write",
    "write_dicom_seg",
]

if TYPE_CHECKING:
    from veloxseg.image.formats import output_suffix as output_suffix
    from veloxseg.image.reader import from_image as from_image
    from veloxseg.image.reader import read as read
    from veloxseg.image.reader import read_header as read_header
    from veloxseg.image.reader import read_label as read_label
    from veloxseg.image.stream import Header as Header
    from veloxseg.image.validate import MAX_VOXELS as MAX_VOXELS
    from veloxseg.image.validate import check_same_grid as check_same_grid
    from veloxseg.image.validate import grid_difference as grid_difference
    from veloxseg.image.volume import Geometry as Geometry
    from veloxseg.image.volume import Volume as Volume
    from veloxseg.image.writer import write as write
    from veloxseg.image.writer import write_dicom_seg as write_dicom_seg


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'veloxseg.image' has no attribute {name!r}")
    return getattr(importlib.import_module(f"veloxseg.image.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
