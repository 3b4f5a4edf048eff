"""RTSTRUCT contours as a label map on the grid of the image that they were drawn on.

A voxel belongs to a region if its centre lies inside the contours of its slice, by the even-odd rule: a contour
inside another one is a hole. An RTSTRUCT names the series that it was drawn on. If the image is a DICOM series too, it
has to be that one: contours of another series of the same patient may lie on its slices, and beside its organs.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import GeometryError, ImageError, shown
from veloxseg.image.dicom.frames import LPS_TO_RAS
from veloxseg.image.values import matching
from veloxseg.image.volume import Geometry, Volume

__all__ = ["fill_polygon", "read_rtstruct", "series_drawn_on"]

OFF_PLANE = 0.25  # of a slice: further away, and the contours belong to another image


def read_rtstruct(dataset: Any, reference: Volume | None, rois: tuple[str, ...]) -> Volume:
    """Regions `rois` (names, or patterns such as "GTV*|tumour") become labels 1, 2, …; a later one lies over others."""
    if reference is None:
        raise ImageError("an RTSTRUCT holds contours and no grid; give the image that it was drawn on as reference")
    check_drawn_on(dataset, reference)
    regions = contours_by_name(dataset)
    if not rois and len(regions) != 1:
        raise ImageError(f"{len(regions)} regions ({listed(regions)}); pick with rois=(…), in the order of the labels")
    labels = np.zeros(reference.geometry.shape, np.uint8, order="F")
    warnings: list[str] = []
    for value, name in enumerate(rois or tuple(regions), start=1):
        found = matching(name, regions)
        if not found and not name.endswith("|"):  # or none at all
            raise ImageError(f"no region {shown(name)!r}, expected one of {listed(regions)}")
        for region in found:
            mask, outside = region_mask(regions[region], reference.geometry)
            if outside:
                warnings.append(f"{outside} contours of {shown(region)} lie outside of the reference image")
            labels[mask] = value
    if not labels.any():
        raise GeometryError("no contour lies inside the reference image; give the image that it was drawn on")
    return Volume(
        array=labels,
        geometry=reference.geometry,
        file_type="dicom",
        header={"rois": list(rois or regions)},
        warnings=tuple(warnings),
    )


def series_drawn_on(dataset: Any) -> set[str]:
    """The UIDs of the series that an RTSTRUCT or a SEG says it was made on; empty where it says nothing."""
    named = [
        series
        for frame in dataset.get("ReferencedFrameOfReferenceSequence") or []
        for study in frame.get("RTReferencedStudySequence") or []
        for series in study.get("RTReferencedSeriesSequence") or []
    ]
    named += list(dataset.get("ReferencedSeriesSequence") or [])
    return {str(series.get("SeriesInstanceUID")) for series in named if series.get("SeriesInstanceUID")}


def check_drawn_on(dataset: Any, reference: Volume) -> None:
    drawn, given = series_drawn_on(dataset), reference.header.get("series")
    if drawn and given and given not in drawn:
        kind = shown(reference.header.get("modality") or "image", 16)
        raise ImageError(
            f"the contours were drawn on another series than the {kind} that is given, by its UID; "
            "give the image that they were drawn on"
        )


def listed(regions: dict[str, Any]) -> str:
    return ", ".join(shown(name, 40) for name in list(regions)[:12]) or "none"


def contours_by_name(dataset: Any) -> dict[str, list[npt.NDArray[np.float64]]]:
    """Closed contours, as points in RAS+ millimetres, per region."""
    names = {int(roi.ROINumber): str(roi.ROIName) for roi in dataset.get("StructureSetROISequence") or []}
    regions: dict[str, list[npt.NDArray[np.float64]]] = {}
    for roi in dataset.get("ROIContourSequence") or []:
        contours = regions.setdefault(names.get(int(roi.ReferencedROINumber), "unnamed"), [])
        for contour in roi.get("ContourSequence") or []:
            if not str(contour.ContourGeometricType).startswith("CLOSED"):
                continue  # points and open lines enclose nothing
            points = np.array(contour.ContourData, np.float64).reshape(-1, 3)
            if len(points) >= 3 and np.isfinite(points).all():
                contours.append(points * np.diag(LPS_TO_RAS)[:3])
    return {name: contours for name, contours in regions.items() if contours}


def region_mask(contours: list[npt.NDArray[np.float64]], grid: Geometry) -> tuple[npt.NDArray[np.bool_], int]:
    """The mask, and the number of contours outside of the grid."""
    to_voxels = np.linalg.inv(grid.affine)
    mask = np.zeros(grid.shape, bool, order="F")
    outside = 0
    for points in contours:
        voxels = points @ to_voxels[:3, :3].T + to_voxels[:3, 3]
        z = int(np.clip(np.rint(voxels[:, 2].mean()), -1, grid.shape[2]))
        if not 0 <= z < grid.shape[2]:
            outside += 1
            continue
        off = float(np.abs(voxels[:, 2] - z).max())
        if off > OFF_PLANE:
            raise GeometryError(
                f"a contour lies {off * grid.spacing[2]:.3g} mm off the slices of the reference image; "
                "give the image that it was drawn on"
            )
        mask[:, :, z] ^= fill_polygon(voxels[:, :2], grid.shape[:2])
    return mask, outside


def fill_polygon(points: npt.NDArray[np.float64], shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Pixels whose centres lie inside: each edge toggles all pixels to its right, row by row."""
    width, height = shape
    toggles = np.zeros((width + 1, height), bool)
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
        if y0 == y1:
            continue
        low, high = np.clip(np.ceil([min(y0, y1), max(y0, y1)]), 0, height).astype(int)
        rows = np.arange(low, high)
        crossings = x0 + (rows - y0) * (x1 - x0) / (y1 - y0)
        toggles[np.clip(np.ceil(crossings), 0, width).astype(int), rows] ^= True
    return np.logical_xor.accumulate(toggles, axis=0)[:width]
