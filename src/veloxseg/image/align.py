"""Whether two modalities of a case lie on each other. Two questions are asked, both on a coarse copy of each scan.

Small shifts, by the outline. A scan blurs the patient's outline: the mask m of the reference's body, blurred as PET
blurs (7 mm), should look like the other modality cut off at its typical tissue value, q = min(x / median, 1): both
fall to a half at the skin. SSD(s) = sum (blur(m)(v + s) - q(v))² is computed for all shifts s within 16 mm at once by
FFT. The case is suspicious if some shift explains the outline well (R² ≥ 0.7, not at the border of the search) and
removes over 28 % of the error at rest. On the sarcoma PET/CT cases the misaligned STS_019 reaches 38 % and the next
such case 16 %. Where the skin is not in the picture nothing can be said, and nothing is: of 8 to 12 mm planted in
plane into these crops a third is found, along the limbs next to none.

Gross errors, by mutual information (`mutual_information.py`): a scan that lies wrong by centimetres, is mirrored or of
another patient tells less about the reference where it lies than shifted (the "moved" ratio), than mirrored, or than
two scans of one patient ever do. The three thresholds were chosen on 18 of the 35 sarcoma patients. On the other 17
none of the true pairs is warned of; of PET shifted by 60 mm 101 of 102 are (the last one by its coverage), of PET
mirrored left to right 17 of 17, of PET of another patient put in the same place 48 of 51. Of a symmetric whole body a
mirror image or another patient of the same size may pass.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from veloxseg.image.body import body_mask
from veloxseg.image.mutual_information import Likeness, likeness
from veloxseg.image.resample import resample_image
from veloxseg.image.volume import Geometry, Volume
from veloxseg.modality import KINDS
from veloxseg.types import Floats, Mask

__all__ = ["Alignment", "Outline", "alignment", "alignment_warnings", "coarse_grid", "compare", "outline"]

STEP_MM, REACH_MM, BLUR_MM = 4.0, 16.0, 7.0
MOST_VOXELS = 400_000  # of the coarse grid; a whole body gets a wider step
LEAST_FIT, LEAST_GAIN, LEAST_SHIFT_MM = 0.7, 0.28, 5.0
LEAST_RATIO_MOVED, LEAST_RATIO_MIRRORED, LEAST_LIKENESS = 0.8, 0.95, 0.08
LEAST_COVERAGE = 0.9

Wrong = Literal["", "moved", "mirrored", "unlike"]


@dataclass(frozen=True)
class Outline:
    """A scan on the coarse grid of the case: all that the comparison needs, in a few megabytes."""

    image: Floats  # NaN outside the scan's field of view
    kind: str
    grid: Geometry


@dataclass(frozen=True)
class Shift:
    """What the outlines say about a small shift."""

    fit: float  # R² of the outline where the scans lie now
    best_fit: float  # R² at the best shift
    gain: float  # share of the squared error that the best shift removes
    shift_mm: tuple[float, float, float]  # of the best shift, along RAS
    suspicious: bool


@dataclass(frozen=True)
class Alignment(Shift):
    """How one modality lies on the reference."""

    coverage: float  # share of the reference's body inside the other's field of view
    likeness: float | None  # mutual information where the scans lie; None where too little is in common
    likeness_moved: float | None
    likeness_mirrored: float | None
    wrong: Wrong  # which gross error it looks like; "" for none


UNSEEN = Shift(fit=0.0, best_fit=0.0, gain=0.0, shift_mm=(0.0, 0.0, 0.0), suspicious=False)


def alignment_warnings(
    volumes: Mapping[str, Volume], reference: str, kinds: Mapping[str, str]
) -> tuple[dict[str, Any], list[str]]:
    """Scores of every other modality against the reference, and what the user should know.

    Each scan is asked for once and let go, so a mapping that reads on demand needs one scan in memory at a time.
    """
    fixed = volumes[reference]
    grid = coarse_grid(fixed.geometry)
    ours = outline(fixed, kinds[reference], grid)
    del fixed
    scores, warnings = {}, []
    for name in volumes:
        if name == reference:
            continue
        score = compare(ours, outline(volumes[name], kinds[name], grid))
        if score is not None:
            scores[name] = asdict(score)
            warnings += _warnings(name, reference, score)
    return scores, warnings


def _warnings(name: str, reference: str, score: Alignment) -> list[str]:
    remedy = "look at the case, then leave it out or prepare with --register rigid"
    texts = []
    if score.suspicious:
        distance = float(np.linalg.norm(score.shift_mm))
        texts.append(f"{name} and {reference} look misaligned by about {distance:.0f} mm; {remedy}")
    elif score.wrong == "moved":
        texts.append(
            f"{name} does not fit onto {reference} where it lies, and fits better some centimetres away; "
            "look at the case: is it shifted, or of another examination?"
        )
    elif score.wrong == "mirrored":
        texts.append(
            f"{name} fits onto {reference} better when left and right are exchanged; "
            "look at the case: was one of them mirrored?"
        )
    elif score.wrong == "unlike":
        texts.append(
            f"{name} and {reference} have too little in common for two scans of one patient; "
            "look at the case: are they of the same examination?"
        )
    if score.coverage < LEAST_COVERAGE:
        texts.append(f"{name} covers only {score.coverage:.0%} of the body in {reference}; the rest becomes background")
    return texts


def alignment(fixed: Volume, moving: Volume, fixed_kind: str, moving_kind: str) -> Alignment | None:
    """How `moving` lies on `fixed`; None where nothing can be said."""
    grid = coarse_grid(fixed.geometry)
    return compare(outline(fixed, fixed_kind, grid), outline(moving, moving_kind, grid))


def outline(volume: Volume, kind: str, grid: Geometry) -> Outline:
    """A scan on the `coarse_grid` of the case's reference."""
    return Outline(image=resample_image(volume, grid, "linear", np.nan), kind=kind, grid=grid)


def compare(fixed: Outline, moving: Outline) -> Alignment | None:
    """How one scan lies on another; None where the reference shows no body, or too little to compare."""
    grid = fixed.grid
    body = _body(np.nan_to_num(fixed.image, nan=_air(fixed.kind)), fixed.kind)
    if not body.any():
        return None
    inside = np.isfinite(moving.image)
    coverage = float((body & inside).sum() / body.sum())
    alike = likeness(fixed.image, moving.image, (fixed.kind, moving.kind), grid.spacing)
    shift = _shift(body, moving, inside)
    if alike is None and shift is None and coverage >= LEAST_COVERAGE:
        return None
    return Alignment(
        **asdict(shift or UNSEEN),
        coverage=round(coverage, 3),
        likeness=round(alike.here, 4) if alike else None,
        likeness_moved=round(alike.elsewhere, 4) if alike else None,
        likeness_mirrored=round(alike.mirrored, 4) if alike else None,
        wrong=_gross_error(alike) if alike else "",
    )


def _gross_error(alike: Likeness) -> Wrong:
    """The error that explains best why the scans tell so little about each other where they lie; "" if they do not."""
    here, moved, mirrored = alike.here, alike.elsewhere, alike.mirrored
    if max(here, moved, mirrored) < LEAST_LIKENESS:
        return "unlike"
    if here < LEAST_RATIO_MIRRORED * mirrored and (mirrored > moved or here >= LEAST_RATIO_MOVED * moved):
        return "mirrored"
    if here < LEAST_RATIO_MOVED * moved:
        return "moved"
    return "unlike" if here < LEAST_LIKENESS else ""


def _shift(body: Mask, moving: Outline, inside: Mask) -> Shift | None:
    """The small shift that makes the outlines agree best; None where the outline cannot be seen."""
    grid, floor = moving.grid, _air(moving.kind)
    typical = _typical(moving.image, body, inside, floor)
    if typical is None:
        return None
    cut_off = np.clip((np.nan_to_num(moving.image, nan=floor) - floor) / (typical - floor), 0, 1)
    errors, variance = _errors(_blurred(body, grid), cut_off.astype(np.float32), inside, grid)
    if errors is None or variance < 1e-6:
        return None
    rest = float(errors[tuple(n // 2 for n in errors.shape)])
    place = np.unravel_index(int(errors.argmin()), errors.shape)
    best = float(errors[place])
    at_border = any(n > 1 and p in (0, n - 1) for p, n in zip(place, errors.shape, strict=True))
    voxels = np.array([_peak(errors, place, axis) for axis in range(3)])
    # `voxels` moves the reference onto the other; seen from the reference, the other lies the opposite way
    shift = -(grid.affine[:3, :3] @ voxels)
    gain = 1 - best / rest if rest > 0 else 0.0
    clear = 1 - best / variance >= LEAST_FIT and gain >= LEAST_GAIN
    x, y, z = (round(float(v), 1) for v in shift)
    return Shift(
        fit=round(1 - rest / variance, 3),
        best_fit=round(1 - best / variance, 3),
        gain=round(gain, 3),
        shift_mm=(x, y, z),
        suspicious=not at_border and clear and float(np.linalg.norm(shift)) >= LEAST_SHIFT_MM,
    )


def _typical(image: Floats, body: Mask, inside: Mask, floor: float) -> float | None:
    """The median value of tissue, away from the skin where that is possible; None where there is only air."""
    for part in (_eroded(body, 2) & inside, body & inside):
        if part.any() and (value := float(np.median(image[part]))) > floor:
            return value
    return None


def _air(kind: str) -> float:
    return KINDS.get(kind, KINDS["other"]).air


def coarse_grid(geometry: Geometry) -> Geometry:
    """A grid of a few millimetres over the reference, along the patient's axes however the scan is stored."""
    geometry = geometry.in_ras()
    extent = np.asarray(geometry.shape) * geometry.spacing
    step = max(STEP_MM, float((np.prod(extent) / MOST_VOXELS) ** (1 / 3)))
    scale = step / np.asarray(geometry.spacing)
    shape = np.maximum(1, np.floor(np.asarray(geometry.shape) / scale)).astype(int)
    index = np.diag([*scale, 1.0])
    index[:3, 3] = (scale - 1) / 2
    x, y, z = (int(n) for n in shape)
    return Geometry(shape=(x, y, z), affine=geometry.affine @ index)


def _body(image: Floats, kind: str) -> Mask:
    """The body without the couch, which is thin: opening removes it."""
    from scipy.ndimage import binary_opening

    return binary_opening(body_mask(image, kind, 2))


def _eroded(mask: Mask, steps: int) -> Mask:
    from scipy.ndimage import binary_erosion

    return binary_erosion(mask, iterations=steps)


def _blurred(mask: Mask, grid: Geometry) -> Floats:
    from scipy.ndimage import gaussian_filter

    sigma = BLUR_MM / 2.355 / grid.spacing[0]  # full width at half maximum to standard deviation
    return gaussian_filter(mask.astype(np.float32), sigma, mode="nearest")


def _errors(
    outline: Floats, cut_off: Floats, inside: Mask, grid: Geometry
) -> tuple[npt.NDArray[np.float64] | None, float]:
    """Mean squared difference for every shift of the outline, rest in the middle, and the variance of `cut_off`."""
    reach = max(2, round(REACH_MM / grid.spacing[0]))
    reaches = [reach if n > 4 * reach else 0 for n in outline.shape]
    if not any(reaches):
        return None, 0.0
    middle = tuple(slice(r, n - r) for r, n in zip(reaches, outline.shape, strict=True))
    weight = inside[middle].astype(np.float32)
    total = float(weight.sum(dtype=np.float64))
    if total < 100:
        return None, 0.0
    weighted = weight * cut_off[middle]
    energy = float((weighted * cut_off[middle]).sum(dtype=np.float64))
    mean = float(weighted.sum(dtype=np.float64)) / total
    error = _correlations(outline**2, weight) - 2 * _correlations(outline, weighted) + energy
    return np.maximum(error, 0) / total, energy / total - mean**2


def _correlations(image: Floats, window: Floats) -> npt.NDArray[np.float64]:
    """sum_v window(v) image(v + s) for every s at which the window lies inside the image."""
    from scipy.fft import irfftn, next_fast_len, rfftn

    size = [next_fast_len(n, real=True) for n in image.shape]
    full = irfftn(rfftn(image, size) * np.conj(rfftn(window, size)), size)
    # a cyclic correlation is right wherever the window did not wrap around, which is all that is asked for
    part = tuple(slice(0, n - w + 1) for n, w in zip(image.shape, window.shape, strict=True))
    return full[part].astype(np.float64)


def _peak(errors: npt.NDArray[np.float64], place: tuple[Any, ...], axis: int) -> float:
    """The minimum along an axis between voxels, by a parabola; in voxels from rest."""
    size = errors.shape[axis]
    position = float(place[axis] - size // 2)
    if 0 < place[axis] < size - 1:
        low, middle, high = (float(errors[(*place[:axis], place[axis] + d, *place[axis + 1 :])]) for d in (-1, 0, 1))
        if low + high - 2 * middle > 1e-12:
            position += 0.5 * (low - high) / (low + high - 2 * middle)
    return position
