"""Draws a few synthetic patients: `python -m veloxseg.phantom.picture docs/images/phantom.png`."""

import sys
from typing import Any

import numpy as np

from veloxseg.phantom import petct
from veloxseg.phantom.scans import Scans

__all__ = ["picture"]


def picture(patients: list[Scans], path: str) -> None:
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


if __name__ == "__main__":
    picture([petct.render(petct.draw(0, index), (160, 108, 320)) for index in (2, 3, 4, 8)], sys.argv[1])
