"""Lesions, and what only looks like them on CT: where they sit, their shape, their trace in both scans."""

from dataclasses import dataclass

import numpy as np

from veloxseg.phantom.canvas import Tissue, TissueMap
from veloxseg.phantom.shapes import Field, Space

__all__ = ["STATIONS", "Lesion", "draw_lesions", "place_lesions"]

SHARE_WITHOUT = 0.15
SMALLEST = 10.0  # radius, millimetres
EXTRA_VOXELS = 2.0  # added to every radius, so that lesions have a shape on a coarse grid too
# Lymph node stations in the body's frame, millimetres: neck, armpit, chest, along the aorta, groin.
STATIONS = (
    (50.0, 5.0, -238.0), (-50.0, 5.0, -238.0), (128.0, -5.0, -325.0), (-128.0, -5.0, -325.0), (30.0, -8.0, -385.0),
    (-34.0, -8.0, -390.0), (28.0, -22.0, -655.0), (-28.0, -22.0, -665.0), (78.0, 62.0, -838.0), (-78.0, 62.0, -838.0),
)  # fmt: skip
STATION_RADIUS = 34.0
HOSTS = {
    "lung": (Tissue.LUNG,),
    "liver": (Tissue.LIVER,),
    "bone": (Tissue.MARROW,),
    "node": (Tissue.FAT, Tissue.MUSCLE),
}
# What a lesion does not grow into; it would not be told from them in either scan.
SPARED = (
    Tissue.AIR, Tissue.TABLE, Tissue.BRAIN, Tissue.WHITE_MATTER, Tissue.HEART, Tissue.KIDNEY, Tissue.RENAL_PELVIS,
    Tissue.BLADDER, Tissue.GAS,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Lesion:
    site: str  # lung, liver, bone or node
    place: float  # 0..1: which voxel of the site is its centre
    station: int  # of a node
    radii: tuple[float, float, float]  # millimetres
    waves: tuple[tuple[float, float, float, float], ...]  # of its surface: direction and phase
    roughness: float
    suv: float  # 0: takes up nothing
    necrosis: float  # 0..1: size of the cold core against the lesion
    hounsfield: float


def draw_lesions(random: np.random.Generator, harmless: bool = False) -> tuple[Lesion, ...]:
    """From none to a dozen, of many sizes; `harmless` ones are seen only on CT."""
    none = random.random() < SHARE_WITHOUT
    number = int(random.integers(0, 4)) if harmless else 0 if none else 1 + int(random.geometric(0.4))
    return tuple(_draw_lesion(random, harmless) for _ in range(min(number, 12)))


def _draw_lesion(random: np.random.Generator, harmless: bool) -> Lesion:
    site = str(random.choice(list(HOSTS), p=[0.3, 0.2, 0.2, 0.3]))
    radius = np.exp(random.uniform(np.log(SMALLEST), np.log(16.0 if harmless else 30.0)))
    stretch = random.uniform(0.8, 1.25, 3)
    faint = random.random() < 0.12
    suv = random.uniform(2.6, 4.0) if faint else 6.5 + random.gamma(2.0, 2.0)
    return Lesion(
        site=site,
        place=float(random.random()),
        station=int(random.integers(len(STATIONS))),
        radii=(float(radius * stretch[0]), float(radius * stretch[1]), float(radius * stretch[2])),
        waves=tuple(tuple(map(float, (*random.normal(0, 2.2, 3), random.uniform(0, 6.3)))) for _ in range(5)),  # type: ignore[misc]
        roughness=float(random.uniform(0.04, 0.14)),
        suv=0.0 if harmless else float(suv),
        necrosis=float(random.uniform(0.4, 0.65)) if radius > 16 and random.random() < 0.35 else 0.0,
        hounsfield=_draw_hounsfield(random, site),
    )


def _draw_hounsfield(random: np.random.Generator, site: str) -> float:
    """Full of contrast medium, brighter than organs and vessels; bone is dissolved by that, or hardened."""
    hardened = site == "bone" and random.random() < 0.5
    return float(random.uniform(550, 900) if hardened else random.uniform(165, 215))


def place_lesions(
    lesions: tuple[Lesion, ...], space: Space, tissue: TissueMap, hounsfield: Field, activity: Field
) -> TissueMap:
    """Paints the lesions into both scans; the label is 1 in organs and 2 in lymph nodes."""
    spared = np.isin(tissue, SPARED)
    label = np.zeros(tissue.shape, np.uint8)
    for lesion in lesions:
        candidates = _candidates(lesion, space, tissue)
        if not len(candidates):
            continue  # the site is not in the field of view
        index = np.unravel_index(candidates[int(lesion.place * len(candidates))], tissue.shape)
        centre = (float(space.x[index]), float(space.y[index]), float(space.z[index]))
        box, field = _surface(lesion, space, centre)
        inside = (field < 1) & ~spared[box]
        background = float(activity[index])
        hounsfield[box][inside] = lesion.hounsfield
        if lesion.suv:
            suv = max(lesion.suv, 1.8 * background)
            activity[box][inside] = suv
            activity[box][inside & (field < lesion.necrosis**2)] = 0.35 * suv
            label[box][inside] = 2 if lesion.site == "node" else 1
        else:
            activity[box][inside] = min(0.5, background)
    return label


def _candidates(lesion: Lesion, space: Space, tissue: TissueMap) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Flat indices of the voxels where the lesion's centre may lie."""
    allowed = np.isin(tissue, HOSTS[lesion.site])
    if lesion.site == "node":
        near = np.zeros(tissue.shape, bool)
        box, field = space.ellipsoid(STATIONS[lesion.station], (STATION_RADIUS,) * 3)
        near[box] = field < 1
        allowed &= near
    return np.flatnonzero(allowed)


def _surface(lesion: Lesion, space: Space, centre: tuple[float, float, float]) -> tuple[tuple[slice, ...], Field]:
    """An ellipsoid whose surface is roughened by a few plane waves."""
    wide = 1 + 2.5 * lesion.roughness
    x, y, z = (radius + EXTRA_VOXELS * space.spacing for radius in lesion.radii)
    box, field = space.ellipsoid(centre, (x * wide, y * wide, z * wide))
    field = field * np.float32(wide * wide)
    parts = [(axis[box] - c) / r for axis, c, r in zip((space.x, space.y, space.z), centre, (x, y, z), strict=True)]
    ripple = sum(np.sin(a * parts[0] + b * parts[1] + c * parts[2] + phase) for a, b, c, phase in lesion.waves)
    return box, np.asarray(field / (1 + np.float32(lesion.roughness) * ripple) ** 2, dtype=np.float32)
