"""The plan from the fingerprint: spacing, patch, windows, normalisation. Every choice can be overridden.

Spacing: the reference's median; an axis more than three times coarser than the others takes the finest tenth of
the data set instead, since upsampling everything would invent slices. Where the structures are large, the finest axes
are coarsened until a scan is a few patches: minutes on a CPU then show the network whole lesions, often. Where scans
are tiny and structures small, all axes are refined: the network's first layer takes steps of four voxels, so a
structure of a dozen voxels is three steps wide. Patch: multiples of 32 (four stages and the stem halve five times), in
proportion to the median scan in millimetres, within a budget.
Normalisation: CT is clipped to the 0.5 and 99.5 percentiles of labelled voxels and z-scored with their numbers;
PET is the logarithm of its ratio to what is usual in the body; all else is z-scored by the case's own body.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.dataset.dataset import Dataset
from veloxseg.errors import ConfigError, ShapeError
from veloxseg.modality import KINDS, kind_of
from veloxseg.prepare.plan import REGISTRATIONS, SCHEMES, ModalityPlan, Normalisation, Plan

__all__ = ["choose_patch", "choose_spacing", "coarsen", "make_plan", "refine"]

STRIDE = 32
BUDGET = 128 * 128 * 64  # voxels of HECKTOR's patch in the paper, its largest; 96³ fits too
SMALL = 300_000  # voxels of a patch where a scan is only a few of them: 64³ and 96×96×32 fit
ANISOTROPY = 3.0
ROOM = 64**3 * 3 // 2  # voxels of a median scan at which minutes of a CPU are well spent (experiments/recipe.md)
ACROSS = 12  # voxels that even a small structure has across after coarsening
WIDE = 32  # voxels that a small structure may have across after refining
FINEST = 2.0  # how many times finer than the scans a grid may be (experiments/recipe.md)


def make_plan(
    dataset: Dataset,
    fingerprint: Mapping[str, Any],
    *,
    spacing: tuple[float, float, float] | None = None,
    patch: tuple[int, int, int] | None = None,
    reference: str | None = None,
    register: str = "none",
    normalise: Mapping[str, str] | None = None,
) -> Plan:
    """Decides what the arguments leave open. `normalise` maps a modality to one of `SCHEMES`."""
    from veloxseg.model.config import windows_for  # plain Python, no torch

    modalities = fingerprint["modalities"]
    reference = reference or _reference(modalities)
    for name in (reference, *(normalise or {})):
        if name not in modalities:
            raise ConfigError(f"modality {name!r} is unknown; this data set has {', '.join(modalities)}")
    if register not in REGISTRATIONS:
        raise ConfigError(f"registration {register!r} is unknown; choose {', '.join(REGISTRATIONS)}")
    grid = modalities[reference]
    why = ""
    if spacing is None:
        own, diameter = choose_spacing(grid["median_spacing"], grid["fine_spacing"]), smallest(fingerprint["labels"])
        spacing = refine(coarsen(own, extent(grid), diameter), extent(grid), diameter)
        why = why_resampled(spacing, own, grid, diameter) if diameter and spacing != own else ""
    elif min(spacing) <= 0:
        raise ConfigError(f"spacing {spacing} must be positive millimetres")
    if patch is None:
        patch = choose_patch(spacing, grid["median_spacing"], grid["median_shape"])
    elif any(side < STRIDE or side % STRIDE for side in patch):
        better = tuple(max(STRIDE, STRIDE * round(side / STRIDE)) for side in patch)
        raise ShapeError(f"patch {patch} is not made of multiples of {STRIDE}; use {better}")
    return Plan(
        dataset=dataset.name,
        modalities=tuple(
            ModalityPlan(
                name=name, kind=kind_of(name), normalisation=_normalisation(name, modalities[name], normalise or {})
            )
            for name in dataset.modalities
        ),
        reference=reference,
        spacing=spacing,
        patch=patch,
        windows=windows_for(patch),
        labels=dataset.labels,
        regions=dataset.regions,
        ignore_label=dataset.ignore_label,
        merged=dataset.merged,
        axes=fingerprint.get("axes", "patient"),
        register=register,
        why=why,
    )


def _reference(modalities: Mapping[str, Any]) -> str:
    """The modality on whose grid most labels are drawn; among equals CT, else the first."""
    return max(modalities, key=lambda name: (modalities[name]["on_label_grid"], modalities[name]["kind"] == "ct"))


def choose_spacing(median: list[float], fine: list[float]) -> tuple[float, float, float]:
    """The median along each axis; the finest tenth along an axis far coarser than the others."""
    coarse = int(np.argmax(median))
    others = max(value for axis, value in enumerate(median) if axis != coarse)
    chosen = list(median)
    if median[coarse] > ANISOTROPY * others:
        chosen[coarse] = max(fine[coarse], others)
    x, y, z = (round(float(value), 4) for value in chosen)
    return x, y, z


def extent(grid: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """The median scan in millimetres."""
    return np.asarray(grid["median_shape"]) * np.asarray(grid["median_spacing"])


def smallest(labels: Mapping[str, Any]) -> float | None:
    """The diameter in mm of a ball as large as the smallest twentieth of the structures; None where none is known."""
    volumes = [entry["lesion_ml_percentiles"]["5"] for entry in labels.values() if entry["lesions"]]
    return float((6000 * min(volumes) / np.pi) ** (1 / 3)) if volumes else None


def coarsen(
    spacing: tuple[float, float, float], millimetres: npt.NDArray[np.float64], diameter: float | None
) -> tuple[float, float, float]:
    """No axis finer than the least step at which a median scan fits in ROOM, as far as small structures allow.

    Scans of up to twice that room stay as they are: resampling would cost more than it brings.
    """
    if np.prod(millimetres / spacing) <= 2 * ROOM:
        return spacing
    steps = np.geomspace(min(spacing), max(min(spacing), (diameter or 0.0) / ACROSS), 200)
    fits = [step for step in steps if np.prod(millimetres / np.maximum(spacing, step)) <= ROOM]
    x, y, z = (round(float(max(own, min(fits, default=steps[-1]))), 4) for own in spacing)
    return x, y, z


def refine(
    spacing: tuple[float, float, float], millimetres: npt.NDArray[np.float64], diameter: float | None
) -> tuple[float, float, float]:
    """Finer along all axes alike until small structures are WIDE across, where a scan then fits in twice the ROOM."""
    if diameter is None:
        return spacing
    across = diameter / float(np.prod(spacing)) ** (1 / 3)
    finer = min(FINEST, WIDE / across, float(2 * ROOM / np.prod(millimetres / spacing)) ** (1 / 3))
    if finer < 1 + (FINEST - 1) / 2:  # a little finer is not worth resampling
        return spacing
    x, y, z = (round(float(side / finer), 4) for side in spacing)
    return x, y, z


def choose_patch(
    spacing: tuple[float, float, float], median_spacing: list[float], median_shape: list[float]
) -> tuple[int, int, int]:
    """Multiples of 32 up to the median image, as near to a cube in millimetres as the budget allows."""
    size = np.asarray(median_shape) * median_spacing / spacing  # the median image on the target grid
    budget = SMALL if np.prod(size) <= 2 * ROOM else BUDGET
    most = np.maximum(STRIDE, STRIDE * np.rint(size / STRIDE)).astype(int)
    # near a cube in mm, but a patch axis never gets less than the shortest stride
    ideal = (budget * np.prod(spacing)) ** (1 / 3) / np.asarray(spacing)
    patch = np.minimum(most, np.maximum(STRIDE, STRIDE * np.floor(ideal / STRIDE + 0.5)).astype(int))
    while np.prod(patch) > budget:
        patch[int(np.argmax(np.where(patch > STRIDE, patch * np.asarray(spacing), 0)))] -= STRIDE
    while True:  # what a short axis leaves over goes to the others
        grown = [
            axis
            for axis in range(3)
            if patch[axis] < most[axis] and np.prod(patch) / patch[axis] * (patch[axis] + STRIDE) <= budget
        ]
        if not grown:
            break
        patch[min(grown, key=lambda axis: patch[axis] * spacing[axis])] += STRIDE
    x, y, z = (int(side) for side in patch)
    return x, y, z


def why_resampled(
    spacing: tuple[float, float, float], own: tuple[float, float, float], grid: Mapping[str, Any], diameter: float
) -> str:
    size = " × ".join(f"{side:.0f}" for side in extent(grid) / spacing)
    kept, across = " ".join(f"{value:g}" for value in own), diameter / np.prod(spacing) ** (1 / 3)
    if np.prod(spacing) < np.prod(own):
        return (
            f"finer than the scans, since small structures are {diameter / np.prod(own) ** (1 / 3):.0f} voxels across "
            f"in them and the network's first layer takes steps of four; --spacing {kept} keeps the scans' own"
        )
    return (
        f"coarser than the scans, so that minutes of a CPU suffice: a scan has about {size} voxels, and small "
        f"structures are {across:.0f} voxels across; --spacing {kept} keeps the scans' own"
    )


def _normalisation(name: str, numbers: Mapping[str, Any], wanted: Mapping[str, str]) -> Normalisation:
    scheme = wanted.get(name, KINDS[numbers["kind"]].scheme)
    if scheme not in SCHEMES:
        raise ConfigError(f"normalisation {scheme!r} of {name} is unknown; choose {', '.join(SCHEMES)}")
    if scheme != "clip_zscore":
        return Normalisation(scheme=scheme)
    statistics = numbers["intensity"]["foreground"] or numbers["intensity"]["body"]
    if statistics is None:
        raise ConfigError(
            f"{name} has neither labelled voxels nor a body to take intensities from; set its normalisation to none"
        )
    return Normalisation(
        scheme=scheme,
        low=statistics["percentile_0.5"],
        high=statistics["percentile_99.5"],
        mean=statistics["mean"],
        std=max(statistics["std"], 1e-6),
    )
