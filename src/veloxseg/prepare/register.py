"""Putting one modality onto another by Mattes mutual information (SimpleITK), rigid or affine.

The result becomes part of the moving scan's affine, so that it is still interpolated only once.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.io.volume import Geometry, Volume
from veloxseg.prepare.plan import Plan

__all__ = ["register", "registered"]

LPS = np.diag([-1.0, -1.0, 1.0, 1.0])  # SimpleITK's patient axes against ours


def registered(volumes: Mapping[str, Volume], plan: Plan) -> dict[str, Volume]:
    """Every modality moved onto the reference, as the plan asks."""
    reference = volumes[plan.reference]
    return {
        name: volume if name == plan.reference else register(reference, volume, plan.register)
        for name, volume in volumes.items()
    }


def register(fixed: Volume, moving: Volume, kind: str) -> Volume:
    """`moving` with an affine that puts it onto `fixed`; unchanged if mutual information does not improve."""
    import SimpleITK as sitk

    target, source = _as_sitk(fixed), _as_sitk(moving)
    centre = target.TransformContinuousIndexToPhysicalPoint([(n - 1) / 2 for n in target.GetSize()])
    transform = sitk.Euler3DTransform() if kind == "rigid" else sitk.AffineTransform(3)
    transform.SetCenter(centre)
    method = sitk.ImageRegistrationMethod()
    method.SetMetricAsMattesMutualInformation(32)
    method.SetMetricSamplingStrategy(method.REGULAR)
    method.SetMetricSamplingPercentage(0.2)
    method.SetNumberOfThreads(1)  # a sum in another order is another result
    method.SetInterpolator(sitk.sitkLinear)
    method.SetOptimizerAsRegularStepGradientDescent(learningRate=2.0, minStep=1e-3, numberOfIterations=100)
    method.SetOptimizerScalesFromPhysicalShift()
    method.SetShrinkFactorsPerLevel([4, 2])
    method.SetSmoothingSigmasPerLevel([4, 2])
    method.SmoothingSigmasAreSpecifiedInPhysicalUnitsOn()
    method.SetInitialTransform(transform, inPlace=True)
    try:
        before = method.MetricEvaluate(target, source)
        method.Execute(target, source)
        transform = sitk.Transform(transform)
        after = method.GetMetricValue()
    except RuntimeError:  # no overlap: nothing to register
        return moving
    if not after < before:
        return moving
    matrix = _matrix(transform)
    affine = np.linalg.inv(LPS @ matrix @ LPS) @ moving.geometry.affine
    return replace(moving, geometry=Geometry(shape=moving.geometry.shape, affine=affine))


def _matrix(transform: Any) -> npt.NDArray[np.float64]:
    """Any linear transform as 4 × 4, by what it does to four points."""
    origin = np.array(transform.TransformPoint((0.0, 0.0, 0.0)))
    matrix = np.eye(4)
    for axis in range(3):
        point = [0.0, 0.0, 0.0]
        point[axis] = 1.0
        matrix[:3, axis] = np.array(transform.TransformPoint(point)) - origin
    matrix[:3, 3] = origin
    return matrix


def _as_sitk(volume: Volume) -> Any:
    import SimpleITK as sitk

    image = sitk.GetImageFromArray(np.ascontiguousarray(volume.array.transpose(2, 1, 0), np.float32))
    image.SetSpacing(volume.geometry.spacing)
    image.SetOrigin((LPS[:3, :3] @ volume.geometry.origin).tolist())
    image.SetDirection((LPS[:3, :3] @ volume.geometry.direction).ravel().tolist())
    return image
