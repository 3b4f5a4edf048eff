"""Draws synthetic patients for the documentation: `python -m veloxseg.phantom.picture docs/images`."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.phantom import brain, petct
from veloxseg.phantom.scans import Scans

__all__ = ["brain_picture", "petct_picture"]


def petct_picture(patients: list[Scans], path: Path) -> None:
    """Per patient: the coronal CT slice with most lesion, and PET seen from the front with all lesions outlined."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, 2 * len(patients), figsize=(3.05 * len(patients), 3.5), facecolor="black", layout="constrained"
    )
    for patient, (left, right) in zip(patients, axes.reshape(-1, 2), strict=True):
        ct, pet, label = patient.images["ct"], patient.images["pet"], patient.label
        row = int(np.argmax((label.array > 0).sum(axis=(0, 2))))
        _show(left, ct.array[:, row], ct.geometry.affine, cmap="gray", vmin=-250, vmax=350)
        _show(
            left,
            np.ma.masked_equal(label.array[:, row] > 0, 0),
            label.geometry.affine,
            cmap="autumn",
            alpha=0.8,
        )
        _show(right, pet.array.max(axis=1), pet.geometry.affine, cmap="gray_r", vmin=0, vmax=8)
        _outline(right, label.array.max(axis=1) > 0, label.geometry.affine)
        for axis in (left, right):
            axis.axis("off")
            axis.set(
                xlim=(petct.FIELD_OF_VIEW[0] / 2, -petct.FIELD_OF_VIEW[0] / 2)
            )  # the patient's right at the left
            axis.set(ylim=(-petct.FIELD_OF_VIEW[2] / 2, petct.FIELD_OF_VIEW[2] / 2))
    title = "synthetic patients: CT with lesions, and PET (SUV 0 to 8) seen from the front, lesions outlined"
    figure.suptitle(title, color="white", fontsize=9)
    figure.savefig(path, dpi=92, facecolor="black")
    pyplot.close(figure)


def _show(axis: Any, plane: Any, affine: Any, **how: Any) -> None:
    """A coronal plane (X, Z) in millimetres."""
    (width, height), (left, bottom) = (affine[0, 0], affine[2, 2]), (affine[0, 3], affine[2, 3])
    right, top = left + width * (plane.shape[0] - 0.5), bottom + height * (plane.shape[1] - 0.5)
    axis.imshow(
        plane.T, origin="lower", extent=(left - width / 2, right, bottom - height / 2, top), aspect=1, **how
    )


def _outline(axis: Any, plane: Any, affine: Any) -> None:
    x = affine[0, 3] + affine[0, 0] * np.arange(plane.shape[0])
    z = affine[2, 3] + affine[2, 2] * np.arange(plane.shape[1])
    axis.contour(x, z, plane.T.astype(float), [0.5], colors="red", linewidths=0.7)


def brain_picture(patient: Scans, path: Path) -> None:
    """The axial slice with most tumour in the four sequences, and its labels."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    label = patient.label.array
    height = int(np.argmax((label > 0).sum(axis=(0, 1))))
    figure, axes = pyplot.subplots(1, 5, figsize=(9.2, 2.4), facecolor="black", layout="constrained")
    for axis, (name, volume) in zip(axes, patient.images.items(), strict=False):
        axis.imshow(volume.array[::-1, :, height].T, cmap="gray", origin="lower")
        axis.set_title(name, color="white", fontsize=9)
    axes[4].imshow(patient.images["flair"].array[::-1, :, height].T, cmap="gray", origin="lower")
    shown = np.ma.masked_equal(label[::-1, :, height].T, 0)
    axes[4].imshow(shown, cmap="brg", vmin=1, vmax=4, alpha=0.7, origin="lower")
    axes[4].set_title("labels 1, 2, 4", color="white", fontsize=9)
    for axis in axes:
        axis.axis("off")
    figure.savefig(path, dpi=80, facecolor="black")
    pyplot.close(figure)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    patients = [petct.render(petct.draw(0, index), (160, 108, 320)) for index in (2, 3, 4, 8)]
    petct_picture(patients, folder / "phantom.png")
    brain_picture(brain.render(brain.draw(0, 3), (168, 204, 160)), folder / "phantom-brain.png")
