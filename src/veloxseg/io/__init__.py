"""Reading and writing scans: any file or DICOM folder becomes a `Volume`, an array and its place in space."""

from veloxseg.io.checks import MAX_VOXELS, check_same_grid, grid_difference
from veloxseg.io.header import Header
from veloxseg.io.objects import from_image
from veloxseg.io.reading import read, read_header, read_label
from veloxseg.io.volume import Geometry, Volume
from veloxseg.io.writing import output_suffix, write, write_dicom_seg

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
