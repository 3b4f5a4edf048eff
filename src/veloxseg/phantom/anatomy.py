"""A patient from the crown of the head to the thighs, as a map of tissues.

The body is drawn from outside to inside: skin outline, fat, muscle, then cavities, bones, organs. z = 0 is the
crown of the head; all millimetres are those of an average adult before the case's own scale and bending.
Nothing here is random but what `Body` holds. Synthetic: shaped after textbooks, taken from no patient.
"""

from dataclasses import dataclass

import numpy as np

from veloxseg.phantom.canvas import Canvas, Tissue, TissueMap
from veloxseg.phantom.shapes import Field, Space

__all__ = ["Body", "draw_tissues"]


@dataclass(frozen=True, kw_only=True)
class Body:
    """What differs between patients, apart from size and bending (those are in `Space`)."""

    fat: float  # thickness under the skin, millimetres
    arm_angle: float  # radians from upright, arms are raised
    arms: bool
    liver: float  # sizes relative to the average
    spleen: float
    kidney: float
    heart: float
    bladder: float
    lung: float
    kidney_shift: tuple[float, float]  # right and left, downwards, millimetres
    bowel: tuple[tuple[float, float, float, float, bool], ...]  # loops: x, y, z, radius, filled with gas
    ureters: bool


CHEST = (-290.0, -545.0)  # ribs between these heights


def spine_y(z: Field | float) -> Field | float:
    """The spine's gentle S, seen from the side."""
    return -62 + 14 * np.sin(np.asarray(z) / 120 - 0.4) * np.clip(-np.asarray(z) / 300, 0.2, 1)


def draw_tissues(space: Space, body: Body) -> TissueMap:
    canvas = Canvas(space)
    _outline(canvas, body)
    _arms(canvas, body)
    _chest(canvas, body)
    _bones(canvas)
    _head(canvas)
    _abdomen(canvas, body)
    _pelvis(canvas, body)
    _table(canvas)
    return canvas.tissue


def _outline(canvas: Canvas, body: Body) -> None:
    space = canvas.space
    canvas.tissue[canvas.outline() < 1] = Tissue.FAT
    canvas.tissue[canvas.outline(body.fat) < 1] = Tissue.MUSCLE
    cavity = canvas.outline(body.fat + 26)  # inside the muscles of the trunk lies fat with the organs in it
    cavity += ((space.z + 582) / 254) ** 8  # closed above the heart and below the bladder
    canvas.tissue[(cavity < 1) & (space.y > spine_y(space.z) - 4)] = Tissue.FAT
    for side in (-1, 1):  # armpits and sides of the neck are soft
        box, field = space.ellipsoid((side * 128, -5, -325), (30, 34, 36))
        canvas.paint((box, field), Tissue.FAT)
        box, field = space.ellipsoid((side * 62, -18, -262), (34, 24, 24))
        canvas.paint((box, field), Tissue.FAT)


def _arms(canvas: Canvas, body: Body) -> None:
    if not body.arms:
        return
    for side in (-1, 1):
        shoulder = (side * 158.0, -8.0, -296.0)
        reach = 340.0
        elbow = (
            side * (158 + reach * float(np.sin(body.arm_angle))),
            20.0,
            -296 + reach * float(np.cos(body.arm_angle)),
        )
        for radius, tissue in ((44.0, Tissue.FAT), (38.0, Tissue.MUSCLE), (12.0, Tissue.BONE), (7.0, Tissue.MARROW)):
            box, field = canvas.space.capsule(shoulder, elbow, radius)
            part = canvas.tissue[box]
            free = part < tissue if tissue != Tissue.FAT else part == Tissue.AIR
            part[(field < 1) & free] = tissue
        canvas.paint(canvas.space.ellipsoid(shoulder, (25, 25, 25)), Tissue.BONE)
        canvas.paint(canvas.space.ellipsoid(shoulder, (19, 19, 19)), Tissue.MARROW)


def _chest(canvas: Canvas, body: Body) -> None:
    space = canvas.space
    for side in (1, -1):
        big = body.lung
        box, field = space.ellipsoid((side * 74, -6, -430), (61 * big, 84 * big, 138 * big), tilt=-0.10 * side)
        dome = space.ellipsoid((side * 78, 12, -585), (88, 100, 100 if side > 0 else 88))  # the diaphragm
        above = np.ones(space.x.shape, bool)
        above[dome[0]] = dome[1] > 1
        above &= space.z > -545
        canvas.paint((box, field), Tissue.LUNG, over=above & (canvas.outline(body.fat + 14) < 1))
    canvas.paint(space.capsule((0, 2, -205), (0, 0, -262), 9), Tissue.GAS)
    canvas.paint(space.capsule((0, 0, -262), (0, -14, -372), 9), Tissue.GAS)
    for side in (1, -1):
        canvas.paint(space.capsule((0, -14, -372), (side * 42, -16, -405), 6), Tissue.GAS)
    large = body.heart
    heart = ((-22.0, 28.0, -452.0), (52 * large, 46 * large, 56 * large))
    canvas.paint(space.ellipsoid(*heart, tilt=-0.5), Tissue.HEART)
    canvas.paint(space.ellipsoid((-30, 30, -458), (27 * large, 26 * large, 37 * large), tilt=-0.5), Tissue.BLOOD)
    canvas.paint(space.ellipsoid((22, 30, -440), (30 * large, 30 * large, 38 * large)), Tissue.BLOOD)
    canvas.paint(space.capsule((4, 8, -425), (4, 2, -352), 15), Tissue.BLOOD)
    canvas.paint(space.capsule((4, 2, -352), (-20, -34, -358), 13), Tissue.BLOOD)
    canvas.paint(space.capsule((-20, -34, -358), (-8, -28, -540), 12), Tissue.BLOOD)
    canvas.paint(space.capsule((-8, -28, -540), (-5, -30, -690), 10), Tissue.BLOOD)
    canvas.paint(space.capsule((22, 6, -345), (20, 12, -420), 10), Tissue.BLOOD)
    canvas.paint(space.capsule((16, -22, -560), (14, -30, -690), 10), Tissue.BLOOD)


def _bones(canvas: Canvas) -> None:
    space = canvas.space
    wall = canvas.outline(20.0)
    ribs = (wall > 0.80) & (wall < 0.98) & (space.z < CHEST[0]) & (space.z > CHEST[1])
    ribs &= np.cos(2 * np.pi * (space.z - 0.45 * space.y + 0.1 * np.abs(space.x)) / 29) > 0.30
    ribs &= ~((np.abs(space.x) < 60) & (space.y > 0) & (space.z < -470))  # the arch opens in front
    ribs &= (canvas.tissue == Tissue.MUSCLE) | (canvas.tissue == Tissue.FAT) | (canvas.tissue == Tissue.LUNG)
    canvas.tissue[ribs] = Tissue.BONE
    canvas.paint(space.ellipsoid((0, 86, -385), (17, 8, 75)), Tissue.BONE)  # breastbone
    for side in (1, -1):
        canvas.paint(space.capsule((side * 14, 60, -300), (side * 145, -2, -278), 7), Tissue.BONE)  # collarbone
        canvas.paint(space.ellipsoid((side * 115, -82, -340), (34, 6, 52), tilt=0.25 * side), Tissue.BONE)
    x, y, z = space.x, space.y - spine_y(space.z), space.z
    column = (z < -195) & (z > -800)
    thick = np.interp(-z, (195, 350, 700), (11, 15, 22)).astype(np.float32)
    vertebra = (x / thick) ** 2 + (y / (thick * 0.85)) ** 2
    period = np.interp(-z, (195, 350, 700), (18, 24, 34))
    disc = np.abs(np.mod(-z, period) - period / 2) < 3.2
    body = (vertebra < 1) & column
    canvas.tissue[body] = Tissue.BONE
    canvas.tissue[(vertebra < 0.66) & column] = Tissue.MARROW
    canvas.tissue[body & disc] = Tissue.MUSCLE
    behind = y + thick * 0.85 + 16
    arch = ((x / 16) ** 2 + (behind / 14) ** 2 < 1) & ((x / 9) ** 2 + ((behind - 3) / 8) ** 2 > 1)
    process = (np.abs(x) < 4.5) & (y < -thick - 18) & (y > -thick - 40)
    wings = (np.abs(x) < 34) & (np.abs(behind - 2) < 5)
    inside = canvas.tissue != Tissue.AIR
    canvas.tissue[(arch | ((process | wings) & ~disc)) & column & inside] = Tissue.BONE


def _head(canvas: Canvas) -> None:
    space = canvas.space
    skull = ((0.0, 4.0, -92.0), (70.0, 90.0, 86.0))
    canvas.paint(space.ellipsoid(*skull), Tissue.BONE)
    canvas.paint(space.ellipsoid((0, 4, -92), (63, 83, 79)), Tissue.BRAIN)
    for side in (1, -1):
        box, field = space.ellipsoid((side * 29, 4, -88), (22, 62, 50))
        canvas.paint((box, field), Tissue.WHITE_MATTER)
        canvas.paint(space.ellipsoid((side * 11, 2, -90), (6, 26, 13)), Tissue.MUSCLE)  # ventricles: fluid
        canvas.paint(space.ellipsoid((side * 30, 78, -112), (15, 14, 13)), Tissue.FAT)  # orbits
        canvas.paint(space.ellipsoid((side * 30, 84, -112), (10, 10, 10)), Tissue.MUSCLE)
        canvas.paint(space.ellipsoid((side * 24, 66, -148), (14, 16, 15)), Tissue.GAS)  # sinuses
        canvas.paint(space.capsule((side * 46, 20, -185), (side * 14, 74, -202), 8), Tissue.BONE)  # jaw
    canvas.paint(space.capsule((0, 30, -145), (0, 12, -205), 9), Tissue.GAS)
    canvas.paint(space.ellipsoid((0, 70, -176), (24, 14, 8)), Tissue.BONE)  # teeth


def _abdomen(canvas: Canvas, body: Body) -> None:
    space = canvas.space
    roomy = canvas.tissue != Tissue.AIR
    for organ in (Tissue.LUNG, Tissue.BONE, Tissue.MARROW, Tissue.HEART, Tissue.BLOOD, Tissue.GAS):
        roomy &= canvas.tissue != organ
    roomy &= canvas.outline(body.fat + 12) < 1
    size = body.liver
    canvas.paint(space.ellipsoid((-58, 32, -572), (46, 44, 52), tilt=0.3), Tissue.STOMACH, over=roomy)
    canvas.paint(space.ellipsoid((-58, 48, -552), (20, 16, 22)), Tissue.GAS, over=roomy)
    canvas.paint(space.ellipsoid((72, 6, -568), (78 * size, 88 * size, 88 * size)), Tissue.LIVER, over=roomy)
    canvas.paint(space.ellipsoid((2, 46, -548), (74 * size, 40 * size, 40 * size), 0.25), Tissue.LIVER, over=roomy)
    canvas.paint(space.ellipsoid((60, 52, -608), (14, 16, 24)), Tissue.URETER, over=roomy)  # gall bladder: fluid
    size = body.spleen
    canvas.paint(space.ellipsoid((-112, -34, -570), (30 * size, 44 * size, 56 * size), 0.2), Tissue.SPLEEN, over=roomy)
    for x, y, z, radius, gas in body.bowel:
        canvas.paint(space.ellipsoid((x, y, z), (radius, radius, radius * 0.8)), Tissue.BOWEL, over=roomy)
        if gas:
            canvas.paint(space.ellipsoid((x, y + 4, z), (radius * 0.6,) * 3), Tissue.GAS, over=roomy)
    size = body.kidney
    for side, shift in zip((1, -1), body.kidney_shift, strict=True):
        centre = (side * 62.0, -40.0, -628 - shift)
        canvas.paint(space.ellipsoid(centre, (30 * size, 27 * size, 56 * size), -0.2 * side), Tissue.KIDNEY)
        pelvis = (centre[0] - side * 6, centre[1] + 3, centre[2])
        canvas.paint(space.ellipsoid(pelvis, (11 * size, 10 * size, 22 * size)), Tissue.RENAL_PELVIS)
        canvas.paint(space.capsule((side * 34, -44, -575), (side * 42, -50, -760), 20), Tissue.MUSCLE, over=roomy)
        if body.ureters:
            canvas.paint(space.capsule((side * 40, -26, -650), (side * 34, -12, -760), 4.5), Tissue.URETER, over=roomy)


def _pelvis(canvas: Canvas, body: Body) -> None:
    space = canvas.space
    for side in (1, -1):
        box, field = space.ellipsoid((side * 62, -4, -742), (66, 76, 82), tilt=0.15 * side)
        outwards = side * space.x[box] > 68 + 0.45 * space.y[box]
        wing = (field > 0.74) & (field < 1) & outwards & (space.y[box] < 52) & (space.z[box] > -815)
        canvas.tissue[box][wing & (canvas.tissue[box] != Tissue.AIR)] = Tissue.BONE
        marrow = (field > 0.81) & (field < 0.93) & wing
        canvas.tissue[box][marrow & (canvas.tissue[box] == Tissue.BONE)] = Tissue.MARROW
        hip = (side * 92.0, 2.0, -822.0)
        canvas.paint(space.ellipsoid(hip, (33, 31, 32)), Tissue.BONE)
        canvas.paint(space.ellipsoid(hip, (26, 24, 25)), Tissue.MARROW)
        shaft = ((side * 118.0, -2.0, -852.0), (side * 96.0, 4.0, -1200.0))
        canvas.paint(space.capsule(hip, shaft[0], 20), Tissue.BONE)
        canvas.paint(space.capsule(*shaft, 17), Tissue.BONE)
        canvas.paint(space.capsule(*shaft, 10), Tissue.MARROW)
        canvas.paint(space.capsule((side * 12, 46, -842), (side * 80, 26, -818), 10), Tissue.BONE)  # pubis
        canvas.paint(space.capsule((side * 52, -42, -870), (side * 74, -22, -830), 14), Tissue.BONE)  # ischium
        canvas.paint(space.ellipsoid((side * 78, 66, -838), (26, 16, 30)), Tissue.FAT)  # groin
        canvas.paint(space.capsule((side * 74, 58, -800), (side * 84, 48, -1000), 8), Tissue.BLOOD)
        canvas.paint(space.capsule((side * 8, -32, -690), (side * 74, 50, -805), 8), Tissue.BLOOD)
    canvas.paint(space.ellipsoid((0, -66, -780), (52, 20, 52)), Tissue.BONE)  # sacrum
    canvas.paint(space.ellipsoid((0, -66, -778), (44, 13, 44)), Tissue.MARROW)
    canvas.paint(space.ellipsoid((0, -32, -815), (22, 20, 38)), Tissue.BOWEL)  # rectum
    size = body.bladder
    canvas.paint(space.ellipsoid((0, 28, -806), (40 * size, 32 * size, 30 * size)), Tissue.BLADDER)


def _table(canvas: Canvas) -> None:
    """The couch: a thin sheet behind the back, curved upwards at its sides. Straight, unlike the patient."""
    x, y, _ = canvas.space.axes
    sheet = np.abs(y[None, :] + 124 - (x[:, None] / 46) ** 2) < 4
    sheet &= np.abs(x[:, None]) < 205
    canvas.tissue[sheet[:, :, None] & (canvas.tissue == Tissue.AIR)] = Tissue.TABLE
