"""DICOM frames and how they stack to a volume.

A classic series has one frame per file, an enhanced file has many; both become a list of `Frame`. The voxel at
(column i, row j, frame k) lies at

    position_k + row_direction · column_spacing · i + column_direction · row_spacing · j      (PS3.3 C.7.6.2.1.1)

in LPS+ millimetres. Readers in common use take the first gap for all, and open tilted, uneven, mixed and
incomplete series without a word; here each of these is an error.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import GeometryError, ImageError, shown
from veloxseg.image.dicom.tags import number
from veloxseg.image.validate import SHEAR, check_affine, check_shape
from veloxseg.image.volume import Geometry

__all__ = ["Frame", "Stack", "frames_of", "stack_frames"]

UNEVEN = 0.05  # a gap may differ from the usual one by this share: PET beds meet with some hundredths of a millimetre
DRIFT = 0.1  # and no slice may lie further than this share of a gap from the regular grid
LPS_TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One slice: where its pixels are stored, where it lies, and what its numbers mean."""

    path: Path
    index: int  # number of the frame in its file
    instance: int  # order of acquisition, for positions that occur several times
    rows: int
    columns: int
    position: tuple[float, ...]  # of the first pixel's centre, LPS+
    orientation: tuple[float, ...]  # direction of the rows, then of the columns
    spacing: tuple[float, ...]  # between rows, then between columns
    rescale: tuple[float, float] | None  # slope and intercept; None where the file states neither


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Frames in order: `volumes[v][z]`, all on one grid."""

    geometry: Geometry
    volumes: tuple[tuple[Frame, ...], ...]
    warnings: tuple[str, ...] = ()


def frames_of(dataset: Any, path: Path) -> list[Frame]:
    """The frames of one file."""
    check_coding(dataset)
    count = int(dataset.get("NumberOfFrames") or 1)
    if "PerFrameFunctionalGroupsSequence" not in dataset:
        if count > 1:
            raise ImageError(f"{count} frames without a position for each; export it as enhanced multi-frame")
        return [frame(dataset, path, 0, [dataset])]
    shared = list(dataset.get("SharedFunctionalGroupsSequence") or [])
    groups = list(dataset.PerFrameFunctionalGroupsSequence)
    if len(groups) != count:
        raise ImageError(f"{count} frames and positions for {len(groups)}; export the series again")
    return [frame(dataset, path, index, [group, *shared, dataset]) for index, group in enumerate(groups)]


def check_coding(dataset: Any) -> None:
    """One grey value per pixel, in bits that do not contradict each other; no table between it and its meaning."""
    colours = str(dataset.get("PhotometricInterpretation") or "")
    if number(dataset, "SamplesPerPixel") != 1 or "MONOCHROME" not in colours:
        raise ImageError("RGB or palette colour voxels, expected one real number per voxel; convert to grey values")
    if colours != "MONOCHROME2":
        raise ImageError(
            f"PhotometricInterpretation {shown(colours, 16)} (dark means much), expected MONOCHROME2; "
            "convert the series"
        )
    if "ModalityLUTSequence" in dataset:
        raise ImageError("values by a table (ModalityLUTSequence), expected RescaleSlope; convert the series")
    allocated, stored, high = (number(dataset, k) for k in ("BitsAllocated", "BitsStored", "HighBit"))
    if allocated not in (8, 16, 32) or not 1 <= stored <= allocated or high != stored - 1:
        raise ImageError(
            f"{allocated} bits allocated, {stored} stored, the highest is number {high}; expected 8, 16 or "
            "32 allocated, no more stored, and the highest one below the number stored; export the series again"
        )
    if number(dataset, "PixelRepresentation") not in (0, 1):
        raise ImageError("PixelRepresentation is neither 0 nor 1; export the series again")


def frame(dataset: Any, path: Path, index: int, places: list[Any]) -> Frame:
    """One frame; each of its tags is in the first of `places` that has it."""
    position = look_up(places, "PlanePositionSequence", "ImagePositionPatient")
    orientation = look_up(places, "PlaneOrientationSequence", "ImageOrientationPatient")
    spacing = look_up(places, "PixelMeasuresSequence", "PixelSpacing")
    if position is None or orientation is None or spacing is None:
        raise GeometryError("a DICOM image without position, orientation or pixel spacing; export the original series")
    if (len(position), len(orientation), len(spacing)) != (3, 6, 2):
        raise GeometryError(
            "a DICOM position, orientation or pixel spacing with missing numbers; export the series again"
        )
    return Frame(
        path=path,
        index=index,
        instance=int(dataset.get("InstanceNumber") or 0),
        rows=number(dataset, "Rows"),
        columns=number(dataset, "Columns"),
        position=tuple(float(x) for x in position),
        orientation=tuple(float(x) for x in orientation),
        spacing=tuple(float(x) for x in spacing),
        rescale=rescale_of(places),
    )


def rescale_of(places: list[Any]) -> tuple[float, float] | None:
    """Slope and intercept: both or none, because one alone would leave the other to a guess."""
    slope, intercept = (
        look_up(places, "PixelValueTransformationSequence", keyword) for keyword in ("RescaleSlope", "RescaleIntercept")
    )
    if slope in (None, "") and intercept in (None, ""):
        return None
    if slope in (None, "") or intercept in (None, ""):
        raise ImageError("only one of RescaleSlope and RescaleIntercept is stated, expected both or none")
    if not 0 < float(slope) < np.inf or not np.isfinite(float(intercept)):
        raise ImageError("RescaleSlope is not a positive, finite number, or RescaleIntercept not a finite one")
    return float(slope), float(intercept)


def look_up(places: list[Any], sequence: str, keyword: str) -> Any:
    """A value from the frame's own groups, the shared groups, or the root of the file."""
    for place in places:
        for item in (place, *(place.get(sequence) or [])):
            if (value := item.get(keyword)) is not None:
                return value
    return None


def stack_frames(frames: list[Frame], max_voxels: int) -> Stack:
    """Sorts frames along their normal, after checking that they form one regular, complete, upright stack."""
    check_alike(frames)
    first = frames[0]
    numbers = np.array([[*f.position, *f.orientation, *f.spacing] for f in frames])
    if not np.isfinite(numbers).all() or min(first.spacing) <= 0:
        raise GeometryError("a DICOM position, orientation or pixel spacing is not a positive, finite number")
    row, column = np.array(first.orientation[:3]), np.array(first.orientation[3:])
    if abs(np.linalg.norm(row) - 1) > SHEAR or abs(np.linalg.norm(column) - 1) > SHEAR or abs(row @ column) > SHEAR:
        raise GeometryError("the DICOM orientation is not two unit vectors at right angles; export the series again")
    normal = np.cross(row, column)
    heights = [float(np.dot(f.position, normal)) for f in frames]
    levels = group_by_height(frames, heights)
    repeats = Counter(len(level) for level in levels)
    if len(repeats) > 1:
        raise GeometryError(
            f"slice positions repeat unevenly (between {min(repeats)} and {max(repeats)} images per position): "
            "several scans are mixed, or slices are missing; put one scan into a folder"
        )
    shape = (first.columns, first.rows, len(levels))
    check_shape(shape, max_voxels)
    affine = np.eye(4)
    affine[:3, 0], affine[:3, 1] = row * first.spacing[1], column * first.spacing[0]
    affine[:3, 2] = slice_step([level[0] for level in levels], normal)
    affine[:3, 3] = levels[0][0].position
    affine = LPS_TO_RAS @ affine
    warnings = check_affine(affine, "DICOM geometry") + order_doubts(levels)
    volumes = tuple(tuple(level[v] for level in levels) for v in range(len(levels[0])))
    return Stack(geometry=Geometry(shape=shape, affine=affine), volumes=volumes, warnings=tuple(warnings))


def check_alike(frames: list[Frame]) -> None:
    """One size, one orientation, one spacing, and numbers that are all rescaled or all as stored."""
    first = frames[0]
    if len(sizes := Counter((f.columns, f.rows) for f in frames)) > 1:
        found = ", ".join(f"{n} of {x} × {y}" for (x, y), n in sizes.most_common(3))
        raise GeometryError(f"slices of different size in one series ({found}); put one scan into a folder")
    turned = sum(not np.allclose(f.orientation, first.orientation, atol=SHEAR) for f in frames)
    if turned:
        raise GeometryError(
            f"mixed orientations in one series: {turned} of {len(frames)} slices are turned against the first "
            "(a localizer?); keep the slices of one orientation"
        )
    if not all(np.allclose(f.spacing, first.spacing, rtol=SHEAR, atol=0) for f in frames):
        raise GeometryError("slices of different pixel spacing in one series; put one scan into a folder")
    without = sum(f.rescale is None for f in frames)
    if 0 < without < len(frames):
        raise ImageError(
            f"{without} of {len(frames)} slices lack RescaleSlope and RescaleIntercept, which the others have; "
            "export the series again"
        )


def group_by_height(frames: list[Frame], heights: list[float]) -> list[list[Frame]]:
    """Frames by position along the normal, ascending; those of one position in the order of acquisition."""
    order = sorted(range(len(frames)), key=lambda i: (heights[i], frames[i].instance, frames[i].index))
    levels: list[list[Frame]] = []
    for previous, i in zip([None, *order], order, strict=False):
        if previous is None or heights[i] - heights[previous] > 1e-3:
            levels.append([])
        levels[-1].append(frames[i])
    return [sorted(level, key=lambda f: (f.instance, f.index)) for level in levels]


def order_doubts(levels: list[list[Frame]]) -> list[str]:
    """Positions decide; but instance numbers that run to and fro along them say that some may be mixed up."""
    steps = np.diff([level[0].instance for level in levels])
    backwards = int(min((steps > 0).sum(), (steps < 0).sum()))
    if not backwards:
        return []
    return [f"the order of the slices by position is not that of their instance numbers at {backwards} places"]


def slice_step(slices: list[Frame], normal: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The vector from slice to slice, if it is the same all along and upright on the slices."""
    positions = np.array([f.position for f in slices])
    steps = np.diff(positions, axis=0)
    gaps = steps @ normal
    usual = float(np.median(gaps))
    step = np.asarray((positions[-1] - positions[0]) / (len(slices) - 1))
    odd = np.flatnonzero(np.abs(gaps - usual) > UNEVEN * usual)
    if odd.size:
        wholes = gaps[odd] / usual
        missing = int(np.rint(wholes - 1).sum())
        if missing >= 1 and (np.abs(wholes - np.rint(wholes)) < UNEVEN).all():
            raise GeometryError(
                f"{missing} slice{'s are' if missing > 1 else ' is'} missing: the gap after slice {odd[0] + 1} of "
                f"{len(slices)} is {gaps[odd[0]]:.4g} mm, elsewhere {usual:.4g} mm; export the whole series"
            )
        raise GeometryError(
            f"irregular gaps between slices, from {gaps.min():.4g} to {gaps.max():.4g} mm (usually {usual:.4g} mm); "
            "resample the series to even spacing first"
        )
    tilt = float(np.degrees(np.arctan2(np.linalg.norm(step - (step @ normal) * normal), step @ normal)))
    if tilt > np.degrees(SHEAR):
        raise GeometryError(
            f"the gantry is tilted: slices are shifted against each other by {tilt:.2f} degrees; "
            "correct the tilt first (dcm2niix does)"
        )
    drift = np.linalg.norm(positions - positions[0] - np.arange(len(slices))[:, None] * step, axis=1).max()
    if drift > DRIFT * usual:
        raise GeometryError(f"slices lie up to {drift:.3g} mm off a regular grid; resample the series first")
    return step
