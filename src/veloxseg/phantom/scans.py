"""What a synthetic patient comes out as."""

from dataclasses import dataclass

import numpy as np

from veloxseg.image.volume import Geometry, Volume

__all__ = ["Scans", "centred_grid"]


@dataclass(frozen=True, kw_only=True)
class Scans:
    """The scans of one synthetic patient by modality, and the label on the grid of the first."""

    images: dict[str, Volume]
    label: Volume


def centred_grid(
    shape: tuple[int, int, int], spacing: tuple[float, ...], shift: tuple[float, ...] = (0, 0, 0)
) -> Geometry:
    """A grid whose centre is the patient's, shifted by millimetres; axes in RAS+ order."""
    affine = np.diag([*spacing, 1.0])
    affine[:3, 3] = [-(n - 1) / 2 * s + d for n, s, d in zip(shape, spacing, shift, strict=True)]
    return Geometry(shape=shape, affine=affine)
