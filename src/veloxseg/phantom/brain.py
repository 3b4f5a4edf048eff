"""Synthetic brain MR: T1, contrast-enhanced T1, T2 and FLAIR of a skull-stripped head with a nested tumour.

Labels as in BraTS 2021: 1 necrotic core, 2 oedema, 4 enhancing. No sequence shows all of them: oedema is bright
in FLAIR, the rim only in contrast-enhanced T1, the core is dark in T1; fluid, bright in T2, is none of them.

Another `Scanner` shows the same tissues with other contrasts, noise and unevenness, and has other voxels by default.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from veloxseg.image.volume import Volume
from veloxseg.phantom.scans import Scans, centred_grid
from veloxseg.phantom.shapes import Field, Space, smooth_noise

__all__ = ["FIELD_OF_VIEW", "HOME", "OLD", "SEQUENCES", "SIZE", "Case", "Scanner", "draw", "render"]

FIELD_OF_VIEW = (168.0, 204.0, 160.0)  # millimetres
SIZE = (96, 112, 88)
SEQUENCES = ("t1", "t1ce", "t2", "flair")

NOTHING, FLUID, GREY, WHITE, NUCLEI, VESSEL, OEDEMA, CORE, RIM = range(9)
# Brightness per sequence, in the order of the tissues above.
BRIGHTNESS = {
    "t1": (0, 0.28, 0.62, 0.82, 0.68, 0.45, 0.60, 0.40, 0.62),
    "t1ce": (0, 0.28, 0.62, 0.82, 0.68, 1.15, 0.60, 0.42, 1.20),
    "t2": (0, 1.10, 0.66, 0.48, 0.58, 0.25, 0.86, 0.95, 0.74),
    "flair": (0, 0.22, 0.64, 0.52, 0.58, 0.25, 0.98, 0.58, 0.82),
}
LABELS = {OEDEMA: 2, CORE: 1, RIM: 4}


@dataclass(frozen=True, kw_only=True)
class Scanner:
    """How a scanner and its protocol show tissue."""

    size: tuple[int, int, int] = SIZE  # voxels of the field of view, unless others are asked for
    contrast: dict[str, float] = field(default_factory=dict)  # exponent of a sequence's brightness; below 1 is flatter
    noise: float = 1.0  # against the case's
    bias: float = 0.08  # how uneven the receiver's sensitivity is
    blur: float = 0.5  # of partial volume, voxels


HOME = Scanner()
# years before, elsewhere: voxels larger in plane and thick along z, T1 and FLAIR flatter, T2 steeper, noisy and uneven
OLD = Scanner(
    size=(84, 100, 48), contrast={"t1": 0.6, "t1ce": 0.75, "t2": 1.5, "flair": 0.65}, noise=2.0, bias=0.15, blur=0.7
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """All numbers of a patient and the four scans."""

    scale: tuple[float, float, float]
    bend: float
    ventricles: float  # size against the average
    place: float  # 0..1: which voxel of the white matter is the tumour's centre
    radii: tuple[float, float, float]  # of the tumour without oedema, millimetres
    oedema: float  # radius against the tumour's, > 1
    core: float  # radius against the tumour's, < 1
    enhancing: bool  # a low-grade tumour has no rim
    gains: tuple[float, float, float, float]  # of the sequences: MR has no unit
    noise: float
    seed: int


def draw(seed: int, index: int) -> Case:
    random = np.random.default_rng([seed, index, 1])
    size = random.uniform(0.92, 1.05)
    radius = np.exp(random.uniform(np.log(9), np.log(24)))
    stretch = random.uniform(0.8, 1.25, 3)
    gains = random.uniform(250, 1400, 4)
    return Case(
        scale=(size, size * random.uniform(0.96, 1.04), size * random.uniform(0.96, 1.04)),
        bend=random.uniform(1.5, 3.5),
        ventricles=random.uniform(0.7, 1.4),
        place=float(random.random()),
        radii=(float(radius * stretch[0]), float(radius * stretch[1]), float(radius * stretch[2])),
        oedema=random.uniform(1.3, 2.0),
        core=random.uniform(0.45, 0.8),
        enhancing=bool(random.random() > 0.15),
        gains=(float(gains[0]), float(gains[1]), float(gains[2]), float(gains[3])),
        noise=random.uniform(0.02, 0.05),
        seed=int(random.integers(2**31)),
    )


def render(case: Case, size: tuple[int, int, int] = SIZE, scanner: Scanner = HOME) -> Scans:
    """The four sequences, all on one grid, as BraTS gives them."""
    spacing = (FIELD_OF_VIEW[0] / size[0], FIELD_OF_VIEW[1] / size[1], FIELD_OF_VIEW[2] / size[2])
    top = FIELD_OF_VIEW[2] / 2 / case.scale[2]
    space = Space.bent(size, spacing, case.scale, top, case.bend, case.seed)
    random = np.random.default_rng([case.seed, 1])
    tissue = _brain(space, case, random)
    _tumour(space, case, tissue, random)
    geometry = centred_grid(size, spacing)
    label = np.zeros(size, np.uint8)
    for kind, value in LABELS.items():
        label[tissue == kind] = value
    images = {
        name: Volume(array=_scan(tissue, name, gain, case, scanner, random), geometry=geometry)
        for name, gain in zip(SEQUENCES, case.gains, strict=True)
    }
    return Scans(images=images, label=Volume(array=label, geometry=geometry))


def _brain(space: Space, case: Case, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    tissue = np.zeros(space.x.shape, np.uint8)
    x, y, z = space.x, space.y, space.z
    knots = [max(3, int(extent / 11)) for extent in FIELD_OF_VIEW]
    folds = smooth_noise(random, (x.shape[0], x.shape[1], x.shape[2]), (knots[0], knots[1], knots[2]))
    outer = (x / 68) ** 2 + (y / 86) ** 2 + ((z - 8) / 62) ** 2
    tissue[(outer < 1) & (z > -42 + 0.12 * y)] = FLUID
    crease = np.abs(folds) + np.float32(0.9) * np.clip(0.72 - outer, 0, 1) * 3  # zero sheets of noise fold the cortex
    fissure = np.abs(x) < 1.6 + 1.5 * np.clip(outer - 0.5, 0, 1)  # between the hemispheres
    above = (z > -36 + 0.12 * y) & ~fissure
    tissue[(outer + np.float32(0.03) * folds < 0.95) & (crease > 0.22) & above] = GREY
    tissue[(outer + np.float32(0.04) * folds < 0.80) & (crease > 0.75) & above & (np.abs(x) > 5)] = WHITE
    tissue[(np.abs(x) <= 8) & (outer < 0.25) & (z > 4) & (z < 18)] = WHITE  # corpus callosum
    box, field = space.ellipsoid((0, -46, -44), (46, 32, 24))  # cerebellum
    stripes = np.cos(space.z[box] * 0.9 + space.y[box] * 0.3) > 0.35
    tissue[box][field < 1] = GREY
    tissue[box][(field < 0.8) & stripes] = WHITE
    _paint(tissue, space.capsule((0, -14, -14), (0, -24, -80), 13), WHITE)  # brain stem
    for side in (1, -1):
        _paint(tissue, space.ellipsoid((side * 16, -8, 2), (11, 17, 12)), NUCLEI)
        _paint(tissue, space.ellipsoid((side * 25, 12, 4), (8, 19, 12)), NUCLEI)
        wide = case.ventricles
        _paint(tissue, space.ellipsoid((side * 9, 8, 16), (6 * wide, 30, 9 * wide), 0.25 * side), FLUID)
        _paint(tissue, space.capsule((side * 12, -20, 12), (side * 24, -30, -8), 5 * wide), FLUID)
    _paint(tissue, space.capsule((0, -76, 10), (0, -30, 64), 3.0), VESSEL)  # sagittal sinus, behind and above
    return tissue


def _paint(tissue: npt.NDArray[np.uint8], solid: tuple[tuple[slice, ...], Field], kind: int) -> None:
    box, field = solid
    tissue[box][field < 1] = kind


def _tumour(space: Space, case: Case, tissue: npt.NDArray[np.uint8], random: np.random.Generator) -> None:
    """Core within rim within oedema; oedema creeps along the white matter and spares the cortex."""
    white = np.flatnonzero((tissue == WHITE) & (space.z > -25))
    index = np.unravel_index(white[int(case.place * len(white))], tissue.shape)
    centre = (float(space.x[index]), float(space.y[index]), float(space.z[index]))
    reach = case.oedema * 1.35
    box, field = space.ellipsoid(centre, tuple(r * reach for r in case.radii))  # type: ignore[arg-type]
    distance = np.sqrt(field) * np.float32(reach)  # 1 on the tumour's surface
    rough = np.clip(smooth_noise(random, distance.shape, (6, 6, 6)), -2, 2)
    inside = tissue[box] != NOTHING
    host = tissue[box] == WHITE
    brain = inside & (tissue[box] != FLUID)
    swollen = distance * (1 + np.float32(0.10) * rough)
    bulk = distance * (1 + np.float32(0.09) * rough[::-1])
    part = tissue[box]
    part[brain & (swollen < np.where(host, case.oedema, 0.5 * (1 + case.oedema)))] = OEDEMA
    part[inside & (bulk < 1)] = RIM if case.enhancing else CORE
    part[inside & (bulk * (1 + np.float32(0.08) * rough[:, ::-1]) < case.core)] = CORE


def _scan(
    tissue: npt.NDArray[np.uint8], name: str, gain: float, case: Case, scanner: Scanner, random: np.random.Generator
) -> npt.NDArray[np.int16]:
    """Partial volume, texture, a receiver's uneven sensitivity, Rician noise; zero outside the brain."""
    from scipy.ndimage import gaussian_filter

    shape = (tissue.shape[0], tissue.shape[1], tissue.shape[2])
    brightness = np.array(BRIGHTNESS[name], np.float32) ** np.float32(scanner.contrast.get(name, 1))
    bright, noise = brightness[tissue], np.float32(case.noise * scanner.noise)
    texture = smooth_noise(random, shape, (max(2, shape[0] // 3), max(2, shape[1] // 3), max(2, shape[2] // 3)))
    bright = gaussian_filter(bright, scanner.blur) * (1 + np.float32(0.05) * texture)
    bright *= 1 + np.float32(scanner.bias) * smooth_noise(random, shape, (3, 3, 3))
    real = bright + noise * random.standard_normal(shape, dtype=np.float32)
    imaginary = noise * random.standard_normal(shape, dtype=np.float32)
    magnitude = np.hypot(real, imaginary) * (tissue != NOTHING)
    return np.asarray(np.clip(np.rint(magnitude * gain), 0, 32767).astype(np.int16))
