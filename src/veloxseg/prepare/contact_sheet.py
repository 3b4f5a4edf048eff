"""A picture per case, to look at before training: three planes through the largest lesion, a row per modality."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.console import progress
from veloxseg.files import atomic_path, writable_folder
from veloxseg.prepare.store import Prepared

__all__ = ["draw_contact_sheet", "draw_contact_sheets"]

PLANES = (("axial", 2), ("coronal", 1), ("sagittal", 0))
SIDES = {"axial": "RL", "coronal": "RL", "sagittal": "PA"}
COLOURS = ("#ff4040", "#40c0ff", "#60ff60", "#ffd040", "#ff60ff", "#60ffff")
INK, PAPER = "#e8e8e8", "#101010"


def draw_contact_sheets(prepared: Prepared) -> Path:
    """`PREPARED/pictures/<case>.png` for every case."""
    folder = writable_folder(prepared.path / "pictures")
    for case in progress(prepared.cases, "pictures"):
        draw_contact_sheet(prepared, case.name, folder / f"{case.name}.png")
    return folder


def draw_contact_sheet(prepared: Prepared, name: str, path: Path) -> None:
    """Rows are modalities, columns are planes; outlines are labels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    image, label, plan = prepared.image(name), np.asarray(prepared.label(name)), prepared.plan
    millimetres = np.array(prepared.placement(name).network.spacing)
    centre = _centre(label)
    extents = np.array(label.shape) * millimetres
    widths = [extents[0], extents[0], extents[1]]  # axial shows x, coronal x, sagittal y
    heights = [extents[1], extents[2], extents[2]]
    rows = len(plan.modalities)
    scale = 9.0 / sum(widths)
    FigureCanvasAgg(figure := Figure(figsize=(9.0, max(heights) * scale * rows + 0.6), facecolor=PAPER))
    grid = figure.subplots(rows, 3, squeeze=False, width_ratios=widths)
    for row, modality in enumerate(plan.modalities):
        low, high = _window(np.asarray(image[row], np.float32), modality.kind)
        for column, (plane, axis) in enumerate(PLANES):
            axes = grid[row][column]
            across, up = (a for a in range(3) if a != axis)
            part = (slice(None),) * axis + (centre[axis],)
            axes.imshow(
                np.asarray(image[row][part], np.float32).T,
                cmap="gray_r" if modality.kind == "pet" else "gray",
                vmin=low,
                vmax=high,
                origin="lower",
                aspect=millimetres[up] / millimetres[across],
                interpolation="bilinear",
            )
            _outline(axes, label[part].T, plan.ignore_label)
            axes.set_xlim(
                axes.get_xlim()[::-1]
            ) if plane != "sagittal" else None  # patient's right on the left
            axes.axis("off")
            for letter, x in zip(SIDES[plane], (0.02, 0.94), strict=True):
                axes.text(x, 0.48, letter, color="#ffb000", fontsize=8, transform=axes.transAxes)
            text = f"{modality.name}  {plane}  {'xyz'[axis]} = {centre[axis]}"
            axes.set_title(text, color=INK, fontsize=8)
    names = [n for n, v in plan.labels.items() if v and (label == v).any()]
    shape = " × ".join(map(str, label.shape))
    spacing = " × ".join(f"{m:.3g}" for m in millimetres)
    title = f"{name}    {shape} voxels of {spacing} mm    labels: {', '.join(names) or 'none'}"
    figure.suptitle(title, color=INK, fontsize=9, y=0.995)
    figure.tight_layout(pad=0.4)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")


def _centre(label: npt.NDArray[Any]) -> tuple[int, int, int]:
    """The slice with most voxels of the largest lesion along each axis, or the middle."""
    from scipy import ndimage

    pieces, count = ndimage.label(label != 0)
    if not count:
        return label.shape[0] // 2, label.shape[1] // 2, label.shape[2] // 2
    hit = pieces == np.bincount(pieces[pieces > 0]).argmax()
    x, y, z = (int(hit.sum(axis=tuple(a for a in range(3) if a != axis)).argmax()) for axis in range(3))
    return x, y, z


def _window(image: npt.NDArray[np.float32], kind: str) -> tuple[float, float]:
    low, high = np.percentile(image, [1, 99.5])
    if kind == "pet":
        low = float(image.min())
    return float(low), float(max(high, low + 1e-3))


def _outline(axes: Any, label: npt.NDArray[Any], ignore: int | None) -> None:
    for value in np.unique(label):
        if value:
            colour = "#a0a0a0" if value == ignore else COLOURS[(int(value) - 1) % len(COLOURS)]
            axes.contour(label == value, levels=[0.5], colors=colour, linewidths=1.0)
