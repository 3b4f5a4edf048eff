"""Synthetic whole-body PET/CT: CT in Hounsfield units, PET in SUV on a coarser grid, a label of the lesions.

What makes it worth learning on: neither scan is enough. PET alone is misled by brain, heart, kidneys, bladder,
bowel and brown fat, which are as hot as tumour (brown fat where lymph nodes are); CT alone is misled by harmless
nodules, which are as bright with contrast medium as tumour but take up nothing. `draw` picks the numbers of a case,
`render` turns them into scans.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veloxseg.image.volume import Geometry, Volume
from veloxseg.phantom.anatomy import Body, draw_tissues
from veloxseg.phantom.canvas import Tissue, TissueMap
from veloxseg.phantom.lesions import STATIONS, Lesion, draw_lesions, place_lesions
from veloxseg.phantom.scans import Scans, centred_grid
from veloxseg.phantom.shapes import Field, Space, smooth_noise

__all__ = ["FIELD_OF_VIEW", "SIZE", "Case", "draw", "render"]

FIELD_OF_VIEW = (460.0, 310.0, 960.0)  # millimetres: crown to thighs, arms raised
SIZE = (96, 64, 192)  # CT voxels by default: about 5 mm, a second per case
MARGIN_ABOVE = 14.0  # millimetres of air above the head

HOUNSFIELD = {
    Tissue.AIR: -1000, Tissue.FAT: -95, Tissue.MUSCLE: 50, Tissue.LUNG: -800, Tissue.BONE: 700, Tissue.MARROW: 220,
    Tissue.LIVER: 105, Tissue.SPLEEN: 112, Tissue.KIDNEY: 145, Tissue.RENAL_PELVIS: 60, Tissue.HEART: 95,
    Tissue.BLOOD: 150, Tissue.BRAIN: 38, Tissue.WHITE_MATTER: 29, Tissue.BLADDER: 8, Tissue.BOWEL: 40,
    Tissue.STOMACH: 30, Tissue.GAS: -960, Tissue.TABLE: -150, Tissue.URETER: 10,
}  # fmt: skip
# Standardised uptake values of an average FDG scan; those that vary most between patients are drawn per case.
UPTAKE = {
    Tissue.AIR: 0.0, Tissue.FAT: 0.3, Tissue.MUSCLE: 0.7, Tissue.LUNG: 0.4, Tissue.BONE: 0.7, Tissue.MARROW: 1.3,
    Tissue.LIVER: 2.2, Tissue.SPLEEN: 1.8, Tissue.KIDNEY: 3.0, Tissue.RENAL_PELVIS: 9.0, Tissue.HEART: 4.0,
    Tissue.BLOOD: 1.5, Tissue.BRAIN: 9.0, Tissue.WHITE_MATTER: 4.0, Tissue.BLADDER: 15.0, Tissue.BOWEL: 1.3,
    Tissue.STOMACH: 1.6, Tissue.GAS: 0.1, Tissue.TABLE: 0.0, Tissue.URETER: 1.5,
}  # fmt: skip
SHARE_WITH_BROWN_FAT = 0.6
BROWN_FAT_STATIONS = STATIONS[:8]  # neck, armpits, chest, beside the aorta: where lymph nodes are too


@dataclass(frozen=True, kw_only=True)
class HotFat:
    """A depot of brown fat: on PET like a lymph node with tumour, on CT fat."""

    centre: tuple[float, float, float]  # millimetres
    radii: tuple[float, float, float]
    suv: float


@dataclass(frozen=True, kw_only=True)
class Case:
    """All numbers of a patient and a scan; the same numbers give the same voxels."""

    scale: tuple[float, float, float]  # of the body against the average adult
    bend: float  # millimetres
    body: Body
    uptake: dict[Tissue, float]
    brown_fat: tuple[HotFat, ...]
    lesions: tuple[Lesion, ...]
    look_alikes: tuple[Lesion, ...]  # on CT like a lesion, but they take up nothing
    pet_step: float  # PET voxel against CT voxel, > 1
    pet_shift: tuple[float, float, float]  # of the PET grid, in parts of its voxel
    blur: float  # full width at half maximum of the PET's point spread, millimetres
    counts: float  # per SUV and millilitre: more is less noise
    seed: int  # of texture and noise


def draw(seed: int, index: int) -> Case:
    """The numbers of case `index`; cases are independent of how many there are."""
    random = np.random.default_rng([seed, index, 0])
    girth, height = random.uniform(0.86, 1.10), random.uniform(0.94, 1.04)
    uptake = UPTAKE | {
        Tissue.BRAIN: random.uniform(6, 12),
        Tissue.HEART: random.choice([random.uniform(1.6, 3), random.uniform(4, 11)]),
        Tissue.KIDNEY: random.uniform(2, 4),
        Tissue.RENAL_PELVIS: random.uniform(5, 14),
        Tissue.BLADDER: random.uniform(6, 25),
        Tissue.BOWEL: random.uniform(0.9, 3.5),
        Tissue.LIVER: random.uniform(1.8, 2.6),
        Tissue.MARROW: random.uniform(0.9, 1.7),
        Tissue.URETER: random.uniform(1, 7),
    }
    uptake[Tissue.WHITE_MATTER] = 0.45 * uptake[Tissue.BRAIN]
    return Case(
        scale=(girth * random.uniform(0.96, 1.04), girth * random.uniform(0.94, 1.04), height),
        bend=random.uniform(2, 5),
        body=_draw_body(random),
        uptake={tissue: float(value) for tissue, value in uptake.items()},
        brown_fat=_draw_brown_fat(random),
        lesions=draw_lesions(random),
        look_alikes=draw_lesions(random, harmless=True),
        pet_step=float(random.choice([1.25, 1.4])),
        pet_shift=(random.uniform(-0.5, 0.5), random.uniform(-0.5, 0.5), random.uniform(-0.5, 0.5)),
        blur=random.uniform(5, 7),
        counts=random.uniform(80, 200),
        seed=int(random.integers(2**31)),
    )


def _draw_brown_fat(random: np.random.Generator) -> tuple[HotFat, ...]:
    """None in some patients; in the others every station has it or not, by itself, so that no pattern gives it away."""
    shown = random.random() < SHARE_WITH_BROWN_FAT
    depots = []
    for station in BROWN_FAT_STATIONS:
        active = random.random() < 0.35
        x, y, z = np.add(station, random.uniform(-10, 10, 3))
        rx, ry, rz = random.uniform(14, 24) * random.uniform(0.8, 1.25, 3)
        suv = random.uniform(4.5, 10)
        if shown and active:
            centre, radii = (float(x), float(y), float(z)), (float(rx), float(ry), float(rz))
            depots.append(HotFat(centre=centre, radii=radii, suv=float(suv)))
    return tuple(depots)


def _draw_body(random: np.random.Generator) -> Body:
    loops = [
        (
            float(random.uniform(-95, 95)),
            float(random.uniform(10, 62)),
            float(random.uniform(-770, -625)),
            float(random.uniform(12, 22)),
            bool(random.random() < 0.3),
        )
        for _ in range(26)
    ]
    return Body(
        fat=random.uniform(7, 22),
        arm_angle=random.uniform(-0.02, 0.12),
        arms=bool(random.random() < 0.75),
        liver=random.uniform(0.9, 1.08),
        spleen=random.uniform(0.85, 1.2),
        kidney=random.uniform(0.88, 1.12),
        heart=random.uniform(0.9, 1.15),
        bladder=random.uniform(0.7, 1.2),
        lung=random.uniform(0.95, 1.06),
        kidney_shift=(random.uniform(0, 25), random.uniform(-10, 12)),
        bowel=tuple(loops),
        ureters=bool(random.random() < 0.5),
    )


def render(case: Case, size: tuple[int, int, int] = SIZE) -> Scans:
    """CT, PET and the lesions of `case`, with `size` CT voxels over the field of view."""
    spacing = (FIELD_OF_VIEW[0] / size[0], FIELD_OF_VIEW[1] / size[1], FIELD_OF_VIEW[2] / size[2])
    space = Space.bent(size, spacing, case.scale, MARGIN_ABOVE, case.bend, case.seed)
    tissue = draw_tissues(space, case.body)
    random = np.random.default_rng([case.seed, 1])
    texture = smooth_noise(random, size, (max(2, size[0] // 3), max(2, size[1] // 3), max(2, size[2] // 3)))
    hounsfield = _look_up(tissue, HOUNSFIELD)
    activity = _look_up(tissue, case.uptake) * (1 + np.float32(0.12) * texture)
    for depot in case.brown_fat:
        box, field = space.ellipsoid(depot.centre, depot.radii)
        activity[box][(field < 1) & (tissue[box] == Tissue.FAT)] = depot.suv
    place_lesions(case.look_alikes, space, tissue, hounsfield, activity)
    label = place_lesions(case.lesions, space, tissue, hounsfield, activity)
    ct_grid = centred_grid(size, spacing, (0, 0, 0))
    ct = _finish_ct(hounsfield, tissue, texture, random)
    pet_grid, pet = _acquire_pet(activity, ct_grid, case, random)
    return Scans(
        images={"ct": Volume(array=ct, geometry=ct_grid), "pet": Volume(array=pet, geometry=pet_grid)},
        label=Volume(array=label, geometry=ct_grid),
    )


def _look_up(tissue: TissueMap, values: dict[Tissue, float] | dict[Tissue, int]) -> Field:
    table = np.array([values[kind] for kind in Tissue], dtype=np.float32)
    return np.asarray(table[tissue])


def _finish_ct(
    hounsfield: Field, tissue: TissueMap, texture: Field, random: np.random.Generator
) -> npt.NDArray[np.int16]:
    """Partial volume, tissue texture, and noise that is stronger inside the body."""
    from scipy.ndimage import gaussian_filter

    ct = gaussian_filter(hounsfield, 0.45)
    inside = (tissue != Tissue.AIR).astype(np.float32)
    ct += inside * texture * np.where(tissue == Tissue.LUNG, np.float32(35), np.float32(7))
    noise = gaussian_filter(random.standard_normal(ct.shape, dtype=np.float32), 0.5)
    ct += noise * (18 + 22 * inside)
    return np.asarray(np.clip(np.rint(ct), -1024, 3071), dtype=np.int16)


def _acquire_pet(activity: Field, ct_grid: Geometry, case: Case, random: np.random.Generator) -> tuple[Geometry, Field]:
    """Point spread, sampling on the scanner's own grid, counting noise."""
    from scipy.ndimage import affine_transform, gaussian_filter

    fine = np.array(ct_grid.spacing)
    coarse = fine * case.pet_step
    shape = tuple(int(n // case.pet_step) for n in ct_grid.shape)
    grid = centred_grid((shape[0], shape[1], shape[2]), tuple(coarse), tuple(np.array(case.pet_shift) * coarse))
    sigma = case.blur / 2.355 / fine
    spread = gaussian_filter(activity, sigma)
    offset = (np.array(grid.origin) - np.array(ct_grid.origin)) / fine
    sampled = affine_transform(spread, np.full(3, case.pet_step), offset, shape, order=1, mode="nearest")
    per_voxel = case.counts * float(np.prod(coarse)) / 1000
    counted = random.poisson(np.clip(sampled, 0, None) * per_voxel + 0.02 * per_voxel) / per_voxel
    return grid, gaussian_filter(counted.astype(np.float32), 0.4)
