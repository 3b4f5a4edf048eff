"""DICOM SEG: reading it as a label map, and writing a label map on the grid of a DICOM series as one (highdicom).

A SEG is filed with its series, so it repeats the patient and study of the source: it is as confidential as that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg import __version__
from veloxseg.errors import GeometryError, ImageError, OutputError, shown
from veloxseg.files import atomic_path
from veloxseg.image.dicom.file import open_dicom, parsing, quiet
from veloxseg.image.dicom.frames import LPS_TO_RAS
from veloxseg.image.dicom.segments import segment_description, value_of_segments
from veloxseg.image.dicom.series import pick_series, stack_of
from veloxseg.image.validate import MAX_VOXELS, about, check_affine, check_shape, grid_difference, label_array
from veloxseg.image.values import renumbered
from veloxseg.image.volume import Geometry, Volume
from veloxseg.types import Labels

__all__ = ["Identity", "read_dicom_seg", "source_images", "write_segmentation"]

NEEDED = ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "SOPClassUID", "FrameOfReferenceUID")
MAY_BE_EMPTY = (  # attributes of type 2: they have to be there
    "PatientID",
    "PatientName",
    "PatientBirthDate",
    "PatientSex",
    "StudyDate",
    "StudyTime",
    "StudyID",
    "AccessionNumber",
    "ReferringPhysicianName",
    "PositionReferenceIndicator",
)


def read_dicom_seg(path: Path, reference: Volume | None) -> Volume:
    """Segments as label values, on the SEG's own grid or, placed exactly, on that of `reference`."""
    import highdicom

    segmentation = highdicom.seg.Segmentation.from_dataset(open_dicom(path), copy=False)
    grid = segmentation.get_volume_geometry(allow_missing_positions=True)
    if grid is None:
        raise GeometryError("the frames of the DICOM SEG do not form a regular volume; export it again")
    check_shape(tuple(grid.spatial_shape[::-1]), MAX_VOXELS)
    try:
        volume = segmentation.get_volume(combine_segments=True, allow_missing_positions=True)
    except RuntimeError as error:
        raise ImageError("segments overlap, expected one label per voxel; export them as separate files") from error
    array = volume.array.transpose(2, 1, 0)  # from (slice, row, column)
    affine = LPS_TO_RAS @ volume.affine[:, [2, 1, 0, 3]]
    warnings = pad_missing_slices(segmentation, array, affine)
    if np.linalg.det((LPS_TO_RAS @ affine)[:3, :3]) < 0:  # slices ascend along the normal, as in an image series
        affine[:3, 3] += affine[:3, 2] * (array.shape[2] - 1)
        affine[:3, 2] *= -1
        array = array[:, :, ::-1]
    check_affine(affine, "DICOM SEG")
    x, y, z = array.shape
    geometry = Geometry(shape=(x, y, z), affine=affine)
    if reference is not None:
        array, geometry = place_on(array, geometry, reference.geometry), reference.geometry
    values = value_of_segments(segmentation.SegmentSequence)
    labels, more = label_array(renumbered(np.asfortranarray(array), values))
    names = {str(values[int(s.SegmentNumber)]): str(s.SegmentLabel) for s in segmentation.SegmentSequence}
    return Volume(
        array=labels,
        geometry=geometry,
        source=path,
        file_type="dicom",
        header={"names": names},
        warnings=(*warnings, *more),
    )


def pad_missing_slices(segmentation: Any, array: npt.NDArray[Any], affine: npt.NDArray[np.float64]) -> list[str]:
    """Slices that a label map leaves out hold its padding value, which is mostly 0 and need not be."""
    padding = int(segmentation.get("PixelPaddingValue") or 0)
    if not padding:
        return []
    present = set()
    for group in segmentation.PerFrameFunctionalGroupsSequence:
        position = np.array(group.PlanePositionSequence[0].ImagePositionPatient, float) * np.diag(LPS_TO_RAS)[:3]
        present.add(int(np.rint((np.linalg.inv(affine) @ [*position, 1.0])[2])))
    absent = sorted(set(range(array.shape[2])) - present)
    array[:, :, absent] = padding
    return [f"{len(absent)} slices are not stored and hold the padding value {padding}"] if absent else []


def place_on(array: npt.NDArray[Any], own: Geometry, grid: Geometry) -> npt.NDArray[Any]:
    """Copies a label map into a grid that it is a part of, whichever way its axes run."""
    step = np.linalg.inv(grid.affine) @ own.affine  # from its voxels to those of the grid
    whole = np.rint(step)
    corner = whole[:3, 3]
    off = np.abs(step - whole)[:3] * np.array([*(max(n - 1, 1) for n in own.shape), 1])
    if off.max() > 0.05 or not np.array_equal(np.sort(np.abs(whole[:3, :3]), axis=None), [0] * 6 + [1] * 3):
        raise GeometryError(f"the DICOM SEG and the reference lie on different grids: {grid_difference(own, grid)}")
    placed = np.zeros(grid.shape, array.dtype, order="F")
    indices = np.argwhere(array)
    moved = (indices @ whole[:3, :3].T + corner).astype(int)
    if (moved < 0).any() or (moved >= grid.shape).any():
        raise GeometryError("the DICOM SEG reaches outside of the reference image; give the image that it was made on")
    placed[tuple(moved.T)] = array[tuple(indices.T)]
    return placed


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Under which UIDs a SEG is filed, and whether a person changed the mask. New UIDs for every file by default."""

    series: str | None = None
    instance: str | None = None
    edited: bool = False


def write_segmentation(
    labels: Volume,
    source: Path,
    path: Path,
    label_names: Mapping[int, str],
    series: str | None,
    identity: Identity | None = None,
) -> None:
    """Writes `labels`, which lie on the grid of the DICOM series in `source`, as one binary segment per value.

    Only values that occur are written, because viewers stumble over segments without a frame; where none occurs, the
    named ones say what was looked for. See `segments.py` for how a value survives.
    """
    array, _ = label_array(labels.array)
    values = values_in(array) or sorted(value for value in label_names if value > 0)
    if not values:
        raise OutputError(f"cannot write {shown(path)}: no label is named, and a DICOM SEG needs at least one segment")
    numbers = {value: number for number, value in enumerate(values, start=1)}
    names = [label_names.get(value, f"label {value}") for value in values]
    images = source_images(labels, source, series)
    with quiet():
        try:
            identity = identity or Identity()
            described = [
                segment_description(*one, edited=identity.edited)
                for one in zip(numbers.values(), values, names, strict=True)
            ]
            segmentation = segmentation_of(
                replace(labels, array=renumbered(array, numbers)), images, described, identity
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise OutputError(
                f"cannot write {shown(path)}: the DICOM series lacks what highdicom needs for a DICOM SEG "
                f"({type(error).__name__}); write .nii.gz instead"
            ) from error
        with atomic_path(path) as temporary:
            segmentation.save_as(temporary)


def values_in(array: Labels) -> list[int]:
    """The values that occur, but 0; slice by slice, because an index of the whole would take eight times its memory."""
    seen = np.zeros(int(array.max()) + 1, bool)
    for z in range(array.shape[2]):
        seen[array[:, :, z]] = True
    return [int(value) for value in np.flatnonzero(seen) if value]


def segmentation_of(labels: Volume, images: list[Any], descriptions: list[Any], identity: Identity) -> Any:
    import highdicom

    array = labels.array.transpose(2, 1, 0)  # (slice, row, column)
    return highdicom.seg.Segmentation(
        source_images=images,
        pixel_array=highdicom.Volume(
            array=np.ascontiguousarray(array, np.uint8 if len(descriptions) < 256 else np.uint16),
            affine=(LPS_TO_RAS @ labels.geometry.affine)[:, [2, 1, 0, 3]],
            coordinate_system="PATIENT",
            frame_of_reference_uid=images[0].FrameOfReferenceUID,
        ),
        segmentation_type=highdicom.seg.SegmentationTypeValues.BINARY,
        segment_descriptions=descriptions,
        series_instance_uid=identity.series or highdicom.UID(),
        series_number=9001,
        sop_instance_uid=identity.instance or highdicom.UID(),
        instance_number=1,
        manufacturer="VeloxSeg developers",
        manufacturer_model_name="VeloxSeg",
        software_versions=__version__,
        device_serial_number="0",
        content_description="Research use only",
        series_description="VeloxSeg segmentation, research use only",
        omit_empty_frames=bool(array.any()),
    )


def source_images(labels: Volume, source: Path, series: str | None) -> list[Any]:
    """The files of the series in the order of its slices, with all that a SEG has to repeat of them."""
    with about(source), parsing():
        picked = pick_series(source, series or labels.header.get("series"))
        stack = stack_of(source, picked, MAX_VOXELS)
        if difference := grid_difference(labels.geometry, stack.geometry):
            raise GeometryError(f"the labels and the DICOM series lie on different grids: {difference}; resample first")
        images = [open_dicom(file) for file in dict.fromkeys(frame.path for frame in stack.volumes[0])]
        for image in images:
            if missing := [keyword for keyword in NEEDED if not image.get(keyword)]:
                raise OutputError(
                    f"{shown(source)}: the DICOM series has no {missing[0]}, which a DICOM SEG has to refer to "
                    "(removed when it was anonymised?); write .nii.gz instead"
                )
            for keyword in MAY_BE_EMPTY:
                if keyword not in image:
                    setattr(image, keyword, None)
            share_groups(image)
    return images


def share_groups(image: Any) -> None:
    """Puts what all frames of an enhanced file have in common where highdicom looks for it."""
    for frame in list(image.get("PerFrameFunctionalGroupsSequence") or [])[:1]:
        for keyword in ("PixelMeasuresSequence", "PlaneOrientationSequence"):
            if keyword in frame and keyword not in image.SharedFunctionalGroupsSequence[0]:
                setattr(image.SharedFunctionalGroupsSequence[0], keyword, frame[keyword].value)
