"""Writing: a `Volume` becomes a file of the format that the name asks for, on the grid it has.

What the writers of the formats share stands here too. They write voxels slab by slab, because a second copy of a
whole scan may not fit into memory.
"""

import gzip
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np

from veloxseg.errors import OutputError, shown
from veloxseg.image.formats import function, writable_suffixes, writer_of
from veloxseg.image.volume import Volume
from veloxseg.types import Array

__all__ = ["COMPRESSION_LEVEL", "gzip_stream", "slabs", "write", "write_dicom_seg"]

COMPRESSION_LEVEL = 3  # 0.3 of the time of level 6 on label maps (twice the bytes), 0.4 on CT (the same bytes)


def write(volume: Volume, path: str | Path) -> None:
    """Writes atomically; the suffix decides the format: .nii.gz, .nii, .nrrd, .mha, or another of formats.py."""
    path = Path(path)
    if "\0" in str(path):
        raise OutputError(f"cannot write {shown(path)}: a path cannot hold a zero byte; choose another name")
    volume = storable(volume, path)
    writer = writer_of(path.name)
    if writer is None:
        *most, last = writable_suffixes()
        raise OutputError(f"cannot write {shown(path)}: unknown type, expected {', '.join(most)} or {last}")
    function(writer)(volume, path)


def storable(volume: Volume, path: Path) -> Volume:
    """Gives the volume in a number type that all formats have; refuses an array that does not fit its grid."""
    array, shape = volume.array, volume.geometry.shape
    if array.shape != shape:
        found, expected = " × ".join(map(str, array.shape)), " × ".join(map(str, shape))
        raise OutputError(f"cannot write {shown(path)}: {found} voxels for a grid of {expected}")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise OutputError(f"cannot write {shown(path)}: voxels of type {array.dtype}, expected real numbers")
    other = {"bool": np.uint8, "float16": np.float32}.get(array.dtype.name)
    return volume if other is None else replace(volume, array=array.astype(other))


def slabs(array: Array) -> Iterator[bytes]:
    """The voxels in Fortran order and little endian, one slab after the other."""
    for z in range(array.shape[2]):
        slab = array[:, :, z]
        yield slab.astype(slab.dtype.newbyteorder("<"), copy=False).tobytes(order="F")


def gzip_stream(raw: IO[bytes]) -> gzip.GzipFile:
    """Compresses into an open file, without name and time, so that the same volume gives the same bytes."""
    return gzip.GzipFile("", "wb", COMPRESSION_LEVEL, raw, mtime=0)


def write_dicom_seg(
    labels: Volume,
    source_folder: str | Path,
    path: str | Path,
    label_names: Mapping[int, str],
    *,
    series: str | None = None,
) -> None:
    """Writes labels that lie on the grid of a DICOM series as a DICOM SEG; see dicom/seg.py."""
    from veloxseg.image.dicom.seg import write_segmentation

    write_segmentation(labels, Path(source_folder), Path(path), label_names, series)
