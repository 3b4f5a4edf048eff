"""One picture per case: projections of the whole scan, and slices through the largest lesion with its outline.

Views are radiological: the patient's right is on the left of axial and coronal pictures, the front of the patient
to the left of sagittal ones, the head up.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.infer.provenance import NOTICE
from veloxseg.infer.result import Segmentation
from veloxseg.io import Volume

__all__ = ["draw"]

Array = npt.NDArray[Any]
COLOURS = ("#ff5a36", "#35c4ff", "#ffd23f", "#7bd88f", "#c792ea", "#ff9ecd")
PLANES = {"axial": 2, "coronal": 1, "sagittal": 0}
CT_WINDOW = (-160.0, 240.0)


def draw(result: Segmentation, pet: Volume | None, anatomy: Volume | None, path: Path, *, title: str) -> None:
    """Writes the picture; `pet` and `anatomy` lie on the grid of the mask, and one of them is there."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    orient, spacing = _to_ras(result)
    labels = orient(result.array)
    images = {name: orient(v.array) for name, v in (("pet", pet), ("anatomy", anatomy)) if v is not None}
    figure = Figure(figsize=(13, 6.2), facecolor="black", layout="constrained")
    FigureCanvasAgg(figure)
    columns = figure.subplots(1, 5, width_ratios=(1, 1, 1.15, 1, 1))
    whole = images.get("pet", images.get("anatomy"))
    assert whole is not None
    for axes, plane in ((columns[0], "coronal"), (columns[1], "sagittal")):
        _projection(axes, whole, labels, plane, spacing, inverted="pet" in images)
    centre = _centre_of_largest(labels)
    for axes, plane in zip(columns[2:], PLANES, strict=True):
        _slice(axes, images, labels, plane, centre, spacing)
    rows = [f"{name}  {ml:.2f} mL" for name, ml in result.volumes_ml.items()] or ["no label"]
    figure.suptitle(f"{title}\n{'   '.join(rows)}", color="white", fontsize=12)
    figure.supxlabel(NOTICE, color="#999999", fontsize=8)
    figure.savefig(path, dpi=110, facecolor="black")


def _to_ras(result: Segmentation) -> tuple[Any, npt.NDArray[np.float64]]:
    """A function that turns arrays to the closest RAS orientation, and the spacing along these axes."""
    from nibabel.orientations import apply_orientation, io_orientation

    orientation = io_orientation(result.geometry.affine)
    spacing = np.empty(3)
    spacing[orientation[:, 0].astype(int)] = result.geometry.spacing
    return lambda array: apply_orientation(array, orientation), spacing


def _shown(array: Array) -> Array:
    """A slice (two RAS axes) with the origin below: the patient's right, or front, to the left."""
    return array.T[:, ::-1]


def _aspect(plane: str, spacing: npt.NDArray[np.float64]) -> float:
    across, up = (spacing[axis] for axis in range(3) if axis != PLANES[plane])
    return float(up / across)


def _window(image: Array, kind: str) -> tuple[float, float]:
    if kind == "pet":
        return 0.0, float(max(np.percentile(image[::2, ::2, ::2], 99.7), 1e-3))
    if image.min() < -500:
        return CT_WINDOW
    return float(image.min()), float(np.percentile(image[::2, ::2, ::2], 99.5))


def _projection(
    axes: Any, image: Array, labels: Array, plane: str, spacing: npt.NDArray[np.float64], *, inverted: bool
) -> None:
    low, high = _window(image, "pet" if inverted else "anatomy")
    projected = _shown(image.max(axis=PLANES[plane]))
    axes.imshow(
        projected,
        cmap="gray_r" if inverted else "gray",
        vmin=low,
        vmax=high,
        origin="lower",
        aspect=_aspect(plane, spacing),
        interpolation="bilinear",
    )
    _outlines(axes, labels, lambda mask: _shown(mask.any(axis=PLANES[plane])))
    _finish(axes, f"{plane}, maximum")


def _slice(
    axes: Any,
    images: dict[str, Array],
    labels: Array,
    plane: str,
    centre: tuple[int, int, int],
    spacing: npt.NDArray[np.float64],
) -> None:
    place = (slice(None),) * PLANES[plane] + (centre[PLANES[plane]],)
    aspect = _aspect(plane, spacing)
    if "anatomy" in images:
        low, high = _window(images["anatomy"], "anatomy")
        axes.imshow(
            _shown(images["anatomy"][place]),
            cmap="gray",
            vmin=low,
            vmax=high,
            origin="lower",
            aspect=aspect,
        )
    if "pet" in images:
        low, high = _window(images["pet"], "pet")
        uptake = _shown(images["pet"][place])
        # only what is hot covers the anatomy
        alpha = np.clip(uptake / high, 0, 1) * 0.7 if "anatomy" in images else 1.0
        axes.imshow(
            uptake,
            cmap="hot",
            vmin=low,
            vmax=high,
            origin="lower",
            aspect=aspect,
            alpha=alpha,
            interpolation="bilinear",
        )
    _outlines(axes, labels, lambda mask: _shown(mask[place]))
    _finish(axes, plane)


def _outlines(axes: Any, labels: Array, view: Any) -> None:
    for value in np.unique(labels):
        if value:
            mask = view(labels == value)
            if mask.any() and not mask.all():
                axes.contour(mask, [0.5], colors=[COLOURS[(int(value) - 1) % len(COLOURS)]], linewidths=1.2)


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, color="#cccccc", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_facecolor("black")
    for side in axes.spines.values():
        side.set_visible(False)


def _centre_of_largest(labels: Array) -> tuple[int, int, int]:
    """A voxel in the middle of the largest lesion; of the scan, if there is none."""
    from scipy import ndimage

    pieces, count = ndimage.label(labels > 0)
    if not count:
        x, y, z = (n // 2 for n in labels.shape)
        return x, y, z
    largest = int(np.bincount(pieces.ravel())[1:].argmax()) + 1
    voxels = np.argwhere(pieces == largest)
    nearest = voxels[np.linalg.norm(voxels - voxels.mean(axis=0), axis=1).argmin()]
    x, y, z = (int(n) for n in nearest)
    return x, y, z
