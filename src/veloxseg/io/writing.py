"""Writing: a `Volume` becomes a file of the type that the name asks for, on the grid it has."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from veloxseg.errors import OutputError
from veloxseg.io.checks import shown
from veloxseg.io.itk import write_itk
from veloxseg.io.nifti import write_nifti
from veloxseg.io.volume import Volume

__all__ = ["output_suffix", "write", "write_dicom_seg"]


def write(volume: Volume, path: str | Path) -> None:
    """Writes atomically; the suffix decides the type: .nii.gz, .nii, .nrrd or .mha."""
    path = Path(path)
    volume = storable(volume, path)
    if path.name.lower().endswith((".nii", ".nii.gz")):
        write_nifti(volume, path)
    elif path.name.lower().endswith((".nrrd", ".mha")):
        write_itk(volume, path)
    else:
        raise OutputError(f"cannot write {shown(path)}: unknown type, expected .nii.gz, .nii, .nrrd or .mha")


def storable(volume: Volume, path: Path) -> Volume:
    """The volume in a number type that all formats have, if its array fits its grid."""
    array, shape = volume.array, volume.geometry.shape
    if array.shape != shape:
        found, expected = " × ".join(map(str, array.shape)), " × ".join(map(str, shape))
        raise OutputError(f"cannot write {shown(path)}: {found} voxels for a grid of {expected}")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise OutputError(f"cannot write {shown(path)}: voxels of type {array.dtype}, expected real numbers")
    other = {"bool": np.uint8, "float16": np.float32}.get(array.dtype.name)
    return volume if other is None else replace(volume, array=array.astype(other))


def write_dicom_seg(
    labels: Volume,
    source_folder: str | Path,
    path: str | Path,
    label_names: Mapping[int, str],
    *,
    series: str | None = None,
) -> None:
    """Writes labels that lie on the grid of a DICOM series as a DICOM SEG; see `dicomseg.py`."""
    from veloxseg.io.dicomseg import write_segmentation

    write_segmentation(labels, Path(source_folder), Path(path), label_names, series)


def output_suffix(volume: Volume) -> str:
    """The file name's ending that keeps the type of a volume's source; DICOM gives `.dcm`, a DICOM SEG."""
    if volume.file_type == "nifti":
        return ".nii.gz" if volume.header.get("compressed", True) else ".nii"
    return {"nrrd": ".nrrd", "meta": ".mha", "dicom": ".dcm"}[volume.file_type]
