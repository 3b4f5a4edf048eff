"""The plan from the fingerprint: spacing, patch, windows, normalisation. Every choice can be overridden.

Spacing: the reference's median; an axis more than three times coarser than the others takes the finest tenth of
the data set instead, since upsampling everything would invent slices. Patch: multiples of 32 (four stages and
the stem halve five times), in proportion to the median body in millimetres, within the paper's budget.
Normalisation: CT is clipped to the 0.5 and 99.5 percentiles of labelled voxels and z-scored with their numbers;
all else is z-scored by the case's own body.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from veloxseg.dataset.dataset import Dataset
from veloxseg.errors import ConfigError, ShapeError
from veloxseg.modality import kind_of
from veloxseg.prepare.plan import REGISTRATIONS, SCHEMES, ModalityPlan, Normalisation, Plan

__all__ = ["choose_patch", "choose_spacing", "make_plan"]

STRIDE = 32
BUDGET = 128 * 128 * 64  # voxels of HECKTOR's patch in the paper, its largest; 96³ fits too
ANISOTROPY = 3.0


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
    if spacing is None:
        spacing = choose_spacing(modalities[reference]["median_spacing"], modalities[reference]["fine_spacing"])
    elif min(spacing) <= 0:
        raise ConfigError(f"spacing {spacing} must be positive millimetres")
    if patch is None:
        patch = choose_patch(spacing, modalities[reference]["median_spacing"], modalities[reference]["median_shape"])
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


def choose_patch(
    spacing: tuple[float, float, float], median_spacing: list[float], median_shape: list[float]
) -> tuple[int, int, int]:
    """Multiples of 32 up to the median image, as near to a cube in millimetres as the budget allows."""
    size = np.asarray(median_shape) * median_spacing / spacing  # the median image on the target grid
    most = np.maximum(STRIDE, STRIDE * np.rint(size / STRIDE)).astype(int)
    # near a cube in mm, but a patch axis never gets less than the shortest stride
    ideal = (BUDGET * np.prod(spacing)) ** (1 / 3) / np.asarray(spacing)
    patch = np.minimum(most, np.maximum(STRIDE, STRIDE * np.floor(ideal / STRIDE + 0.5)).astype(int))
    while np.prod(patch) > BUDGET:
        patch[int(np.argmax(np.where(patch > STRIDE, patch * np.asarray(spacing), 0)))] -= STRIDE
    while True:  # what a short axis leaves over goes to the others
        grown = [
            axis
            for axis in range(3)
            if patch[axis] < most[axis] and np.prod(patch) / patch[axis] * (patch[axis] + STRIDE) <= BUDGET
        ]
        if not grown:
            break
        patch[min(grown, key=lambda axis: patch[axis] * spacing[axis])] += STRIDE
    x, y, z = (int(side) for side in patch)
    return x, y, z


def _normalisation(name: str, numbers: Mapping[str, Any], wanted: Mapping[str, str]) -> Normalisation:
    scheme = wanted.get(name, "clip_zscore" if numbers["kind"] == "ct" else "zscore_body")
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
