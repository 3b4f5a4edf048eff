"""Putting one modality onto another by Mattes mutual information (SimpleITK), rigid or affine.

The result becomes part of the moving scan's affine, so that it is still interpolated only once. A registration is a
search that may end anywhere, so it is seeded, and its result is taken only if the scans tell more about each other on
the very same voxels than before, and if a patient can have moved so.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from veloxseg.image.align import coarse_grid, outline
from veloxseg.image.itk import LPS_TO_RAS, quiet_simpleitk, to_simpleitk
from veloxseg.image.mutual_information import information, levels
from veloxseg.image.volume import Geometry, Volume
from veloxseg.types import Affine

__all__ = ["register"]

SEED = 20_240_917  # any fixed number; 0 would mean the time of day
MOST_DEGREES, MOST_SCALING, MOST_SHIFT_MM = 15.0, 0.15, 60.0


def register(fixed: Volume, moving: Volume, kind: str, kinds: tuple[str, str] = ("other", "other")) -> Volume:
    """`moving` with an affine that puts it onto `fixed`; unchanged, with a warning, where no motion can be trusted.

    `kind` is "rigid" or "affine"; `kinds` are those of the two scans (ct, pet, mr, other).
    """
    motion = _search(fixed, moving, kind)
    if motion is None:
        return _kept(moving, "the scans have no voxel in common")
    if problem := _implausible(motion, fixed.geometry):
        return _kept(moving, problem)
    affine = np.linalg.inv(motion) @ moving.geometry.affine
    moved = replace(moving, geometry=Geometry(shape=moving.geometry.shape, affine=affine))
    before, after = _information(fixed, (moving, moved), kinds)
    return moved if after > before else _kept(moving, "no motion found makes it fit better")


def _search(fixed: Volume, moving: Volume, kind: str) -> Affine | None:
    """The motion that maps points of `fixed` to `moving`, 4 × 4 in RAS+ millimetres; None where they do not meet."""
    sitk = quiet_simpleitk("registration")
    target, source = (to_simpleitk(np.asarray(v.array, np.float32), v.geometry) for v in (fixed, moving))
    transform = sitk.Euler3DTransform() if kind == "rigid" else sitk.AffineTransform(3)
    transform.SetCenter(target.TransformContinuousIndexToPhysicalPoint([(n - 1) / 2 for n in target.GetSize()]))
    method = sitk.ImageRegistrationMethod()
    method.SetMetricAsMattesMutualInformation(32)
    method.SetMetricSamplingStrategy(method.REGULAR)
    method.SetMetricSamplingPercentage(0.2, SEED)  # regular samples are jittered, by default with the time of day
    method.SetNumberOfThreads(1)
    method.SetNumberOfWorkUnits(1)  # the work is still cut in pieces otherwise, and a sum in another order differs
    method.SetInterpolator(sitk.sitkLinear)
    method.SetOptimizerAsRegularStepGradientDescent(learningRate=2.0, minStep=1e-3, numberOfIterations=100)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetShrinkFactorsPerLevel([4, 2])
    method.SetSmoothingSigmasPerLevel([4, 2])
    method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOn()
    method.SetInitialTransform(transform, inPlace=True)
    try:
        method.Execute(target, source)
    except RuntimeError:  # no overlap: nothing to register
        return None
    return LPS_TO_RAS @ _matrix(transform) @ LPS_TO_RAS


def _implausible(motion: Affine, geometry: Geometry) -> str:
    """Why a patient cannot have moved so; "" if one can."""
    left, scales, right = np.linalg.svd(motion[:3, :3])
    rotation = left @ right
    degrees = math.degrees(math.acos(np.clip((np.trace(rotation) - 1) / 2, -1, 1)))
    scaling = float(np.abs(scales - 1).max())
    low, high = geometry.bounds()
    centre = (low + high) / 2
    shift = float(np.linalg.norm(motion[:3, :3] @ centre + motion[:3, 3] - centre))
    for found, most, words in (
        (degrees, MOST_DEGREES, f"turns it by {degrees:.0f}°"),
        (scaling, MOST_SCALING, f"scales it by {scaling:.0%}"),
        (shift, MOST_SHIFT_MM, f"shifts it by {shift:.0f} mm"),
    ):
        if not found <= most:
            return f"the best motion found {words}, which no patient does between two scans"
    return ""


def _information(fixed: Volume, candidates: tuple[Volume, ...], kinds: tuple[str, str]) -> list[float]:
    """How much each candidate tells about `fixed`, on the voxels that all of them cover."""
    grid = coarse_grid(fixed.geometry)
    ours = outline(fixed, kinds[0], grid).image
    theirs = [outline(candidate, kinds[1], grid).image for candidate in candidates]
    inside = np.logical_and.reduce([np.isfinite(image) for image in (ours, *theirs)])
    if not inside.any():
        return [0.0] * len(candidates)
    fixed_levels = levels(ours, kinds[0], inside)[inside]
    return [information(fixed_levels, levels(image, kinds[1], inside)[inside]) for image in theirs]


def _kept(moving: Volume, problem: str) -> Volume:
    text = f"not registered, used as it lies: {problem}; look at the case"
    return replace(moving, warnings=(*moving.warnings, text))


def _matrix(transform: Any) -> Affine:
    """Any linear transform as 4 × 4, by what it does to four points."""
    origin = np.array(transform.TransformPoint((0.0, 0.0, 0.0)))
    matrix = np.eye(4)
    for axis in range(3):
        point = [0.0, 0.0, 0.0]
        point[axis] = 1.0
        matrix[:3, axis] = np.array(transform.TransformPoint(point)) - origin
    matrix[:3, 3] = origin
    return matrix
