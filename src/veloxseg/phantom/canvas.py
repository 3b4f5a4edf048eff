"""The map of tissues while it is painted: the skin's outline, and solids filled inside it."""

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from veloxseg.phantom.shapes import Box, Field, Mask, Space

__all__ = ["Canvas", "Tissue", "TissueMap"]

TissueMap = npt.NDArray[np.uint8]


class Tissue(IntEnum):
    AIR = 0
    FAT = 1
    MUSCLE = 2
    LUNG = 3
    BONE = 4
    MARROW = 5
    LIVER = 6
    SPLEEN = 7
    KIDNEY = 8
    RENAL_PELVIS = 9
    HEART = 10
    BLOOD = 11
    BRAIN = 12
    WHITE_MATTER = 13
    BLADDER = 14
    BOWEL = 15
    STOMACH = 16
    GAS = 17
    TABLE = 18
    URETER = 19


# Outline: z, half width, half depth, centre's y, from the crown to the thighs (smoothly joined in between).
OUTLINE = np.array(
    [
        (0, 30, 35, 5), (-20, 58, 72, 5), (-60, 76, 94, 5), (-110, 78, 98, 5), (-160, 68, 90, 8),
        (-200, 62, 78, 5), (-232, 62, 62, 0), (-255, 88, 62, -5), (-285, 168, 78, -5), (-330, 178, 98, 0),
        (-400, 168, 110, 0), (-470, 160, 112, 0), (-560, 150, 108, 0), (-640, 146, 104, 0), (-700, 156, 106, 0),
        (-770, 174, 112, 0), (-840, 178, 110, 0), (-1200, 168, 100, 0),
    ],
    dtype=np.float32,
)  # fmt: skip
LEG_SPLIT = -835.0


class Canvas:
    """The tissue map while it is being painted."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.tissue: TissueMap = np.zeros(space.x.shape, np.uint8)
        millimetre = np.clip(-space.z, 0, -OUTLINE[-1, 0]).astype(np.intp)
        heights = np.arange(int(-OUTLINE[-1, 0]) + 1)
        tables = [np.interp(heights, -OUTLINE[:, 0], OUTLINE[:, k]).astype(np.float32) for k in (1, 2, 3)]
        self.width, self.depth, self.middle = (table[millimetre] for table in tables)

    def paint(self, solid: tuple[Box, Field], tissue: Tissue, level: float = 1.0, over: Mask | None = None) -> None:
        """Fills where the field is below `level`, inside the body, and where `over` allows."""
        box, field = solid
        inside = (field < level) & (self.tissue[box] != Tissue.AIR)
        if over is not None:
            inside &= over[box]
        self.tissue[box][inside] = tissue

    def outline(self, shrink: float = 0.0) -> Field:
        """The skin as a field below 1 inside; `shrink` moves it inwards by millimetres (by less at the head)."""
        space, deep_below = self.space, -self.space.z
        shrunk = shrink * np.clip((deep_below - 150) / 150, 0.25, 1)
        across = np.abs(space.x) / np.maximum(self.width - shrunk, 1)
        deep = np.abs(space.y - self.middle) / np.maximum(self.depth - shrunk, 1)
        field = across**2.4 + deep**2.4
        field[space.z > 0] = 2
        low = int(np.searchsorted(space.axes[2], LEG_SPLIT))  # below, two legs part from each other
        part = np.clip((deep_below[..., :low] + LEG_SPLIT) / 110, 0, 1)
        leg = np.abs(np.abs(space.x[..., :low]) - (55 + 37 * part)) / (123 - 45 * part - shrink)
        field[..., :low] = leg**2.2 + deep[..., :low] ** 2.2
        return np.asarray(field, dtype=np.float32)
