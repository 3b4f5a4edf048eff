"""From scans to network input: the same few lines in training and prediction (predict/restore.py is the way back).

The network grid has the plan's spacing and the axes of the reference scan, reordered and flipped to the closest
RAS orientation, around the body. Every decision is made along these axes, so that it does not depend on how a scan is
stored. A data set whose slices lie in different directions is brought to one: its plan has the slices' axis last.
Every modality is interpolated once, from its own grid straight to this one. `Placement`
remembers where the grid lies, so that labels return to each voxel of the reference scan.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.console import warn
from veloxseg.errors import DatasetError, GeometryError, ModelError
from veloxseg.image.body import body_box, body_mask, coarse_steps, upsampled
from veloxseg.image.resample import SNAP, resample_image, resample_label
from veloxseg.image.validate import MAX_VOXELS
from veloxseg.image.volume import Geometry, Volume
from veloxseg.modality import KINDS
from veloxseg.prepare.plan import Normalisation, Plan
from veloxseg.schema import Count, build
from veloxseg.types import Affine, Floats

__all__ = ["Placement", "label_to_network", "network_shape", "place", "to_network", "working_bytes"]

SUPERIOR = 2  # of the patient's axes; holes of the body are filled in axial slices
LOG_FLOOR = 0.2  # of the usual uptake: below it, the logarithm of a PET flattens
SLICED = 1.01  # an axis coarser than the others by this factor is the one across slices
Shape = tuple[Count, Count, Count]
Row = tuple[float, float, float, float]
Matrix = tuple[Row, Row, Row, Row]
SAME_SPACING = 0.01  # a spacing within 1 % of the plan's is kept: resampling would only blur


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the network grid lies in the reference scan. Plain numbers only: it is stored as JSON."""

    reference_shape: Shape
    reference_affine: Matrix
    network_shape: Shape
    network_affine: Matrix

    @cached_property
    def reference(self) -> Geometry:
        return Geometry(shape=self.reference_shape, affine=np.array(self.reference_affine))

    @cached_property
    def network(self) -> Geometry:
        return Geometry(shape=self.network_shape, affine=np.array(self.network_affine))

    @property
    def network_to_reference(self) -> npt.NDArray[np.float64]:
        """4 × 4: voxel index of the network grid → voxel index of the reference scan (a scaled permutation)."""
        return np.asarray(np.linalg.inv(self.reference.affine) @ self.network.affine)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> "Placement":
        return build(cls, value, "placement", ModelError, "prepare the case anew")


def to_network(volumes: Mapping[str, Volume], plan: Plan) -> tuple[Floats, Placement]:
    """Network input (C, X, Y, Z) in the plan's channel order, and where it lies."""
    missing = [name for name in plan.names if name not in volumes]
    if missing:
        raise DatasetError(
            f"modality {', '.join(missing)} is missing, found {', '.join(volumes) or 'nothing'}; "
            f"give all of {', '.join(plan.names)}"
        )
    if plan.register != "none":
        volumes = registered(volumes, plan)
    placement = place(volumes, plan)
    image_CXYZ = np.empty((len(plan.modalities), *placement.network_shape), np.float32)
    for channel, modality in enumerate(plan.modalities):
        kind = KINDS[modality.kind]
        volume = volumes[modality.name].in_ras()
        image_CXYZ[channel] = resample_image(volume, placement.network, kind.kernel, kind.air)
    superior = int(np.abs(placement.network.direction[2]).argmax())
    _normalise(image_CXYZ, plan, superior)
    return image_CXYZ, placement


def label_to_network(label: Volume, placement: Placement) -> npt.NDArray[Any]:
    """A label map on the network grid (X, Y, Z); each voxel gets the label with the largest share in it."""
    return resample_label(label, placement.network)


def place(volumes: Mapping[str, Volume], plan: Plan) -> Placement:
    """The network grid of a case: axes closest to RAS, cropped to the body, with the plan's spacing."""
    own = volumes[plan.reference].geometry
    reference = own.in_ras()
    order = axis_order(reference.spacing, plan.axes)
    to_reference = np.eye(4)[:, [*order, 3]]
    size, spacing = np.asarray(reference.shape)[order], np.asarray(reference.spacing)[order]
    start, stop = _crop(volumes, plan, np.asarray(np.linalg.inv(reference.affine @ to_reference), np.float64), size)
    target = np.where(np.abs(np.asarray(plan.spacing) / spacing - 1) < SAME_SPACING, spacing, plan.spacing)
    scale = target / spacing  # reference voxels per network voxel
    shape = np.maximum(1, np.ceil((stop - start) / scale - 0.01)).astype(int)
    if float(np.prod(shape, dtype=np.float64)) > MAX_VOXELS:
        raise GeometryError(
            f"{plan.reference} covers {_sizes(size * spacing)} mm, which makes {_sizes(shape)} voxels of the model's "
            f"{_sizes(plan.spacing)} mm, more than the limit of {MAX_VOXELS}; is its spacing right? Else crop the scan"
        )
    to_oriented = np.diag([*scale, 1.0])
    to_oriented[:3, 3] = (start + stop - 1) / 2 - scale * (shape - 1) / 2  # both grids have the same centre
    affine = reference.affine @ to_reference @ to_oriented
    x, y, z = (int(n) for n in shape)
    return Placement(
        reference_shape=own.shape,
        reference_affine=_rows(own.affine),
        network_shape=(x, y, z),
        network_affine=_rows(affine),
    )


def network_shape(scan: Geometry, plan: Plan) -> Shape:
    """The network's grid of a whole scan at the plan's spacing; the body, to which it is cropped, is smaller."""
    turned = scan.in_ras()
    order = axis_order(turned.spacing, plan.axes)
    extent = np.asarray(turned.shape)[order] * np.asarray(turned.spacing)[order]
    x, y, z = np.maximum(1, np.ceil(extent / np.asarray(plan.spacing) - 0.01)).astype(int)
    return int(x), int(y), int(z)


def working_bytes(scan: Geometry, shape: Shape, plan: Plan) -> float:
    """What making one modality's input takes besides scan and input.

    A scan that is resampled along all axes has its own number of slices until the last step.
    """
    turned = scan.in_ras()
    slices = turned.shape[axis_order(turned.spacing, plan.axes)[2]]
    halfway = 0 if slices == shape[2] else shape[0] * shape[1] * slices
    return 4.0 * (float(np.prod(shape)) + halfway)


def axis_order(spacing: Sequence[float], axes: str) -> list[int]:
    """The patient axis that each axis of the network runs along; with "slices" the coarsest one comes last."""
    coarsest = int(np.argmax(spacing))
    finer = max(value for axis, value in enumerate(spacing) if axis != coarsest)
    if axes == "patient" or spacing[coarsest] < SLICED * finer:
        return [0, 1, 2]
    return [*(axis for axis in range(3) if axis != coarsest), coarsest]


def _sizes(values: Iterable[float]) -> str:
    return " × ".join(f"{value:g}" for value in values)


def _rows(affine: Affine) -> Matrix:
    a, b, c, d = ((w, x, y, z) for w, x, y, z in affine.tolist())
    return a, b, c, d


def _crop(
    volumes: Mapping[str, Volume], plan: Plan, to_oriented: Affine, size: npt.NDArray[np.int_]
) -> tuple[npt.NDArray[np.int_], npt.NDArray[np.int_]]:
    """First and last + 1 voxel of the body along the network's axes: by CT if there is one, else by all modalities."""
    modalities = [m for m in plan.modalities if KINDS[m.kind].outlines_body] or list(plan.modalities)
    lows, highs = [], []
    for modality in modalities:
        volume = volumes[modality.name].in_ras()
        box = body_box(volume.array, modality.kind, SUPERIOR)
        if box is None:
            continue
        corners = np.array(np.meshgrid(*[(part.start - 0.5, part.stop - 0.5) for part in box])).reshape(3, -1)
        affine = to_oriented @ volume.geometry.affine
        index = np.round(SNAP * (affine[:3, :3] @ corners + affine[:3, 3:])) / SNAP
        lows.append(index.min(axis=1))
        highs.append(index.max(axis=1))
    if not lows:
        return np.zeros(3, int), size
    start = np.clip(np.floor(np.min(lows, axis=0) + 0.5 + 1e-3).astype(int), 0, size - 1)
    stop = np.clip(np.ceil(np.max(highs, axis=0) + 0.5 - 1e-3).astype(int), start + 1, size)
    return start, stop


def _normalise(image_CXYZ: Floats, plan: Plan, superior: int) -> None:
    """In place, as the plan says; the body is found before any channel changes."""
    schemes = [modality.normalisation for modality in plan.modalities]
    by_body = any(s.scheme in ("zscore_body", "log_body") for s in schemes)
    body = _network_body(image_CXYZ, plan, superior) if by_body else None
    for channel, scheme in zip(image_CXYZ, schemes, strict=True):
        normalise(channel, scheme, body)


def normalise(channel: Floats, scheme: Normalisation, body: npt.NDArray[np.bool_] | None) -> None:
    """One modality, in place."""
    if scheme.scheme == "none":
        return
    inside = body if body is not None and body.any() else None
    if scheme.scheme == "log_body":
        channel *= np.float32((1 - LOG_FLOOR) / _usual(channel, inside))
        np.maximum(channel, 0, out=channel)  # reconstructions of PET undershoot
        channel += np.float32(LOG_FLOOR)
        np.log2(channel, out=channel)
        return
    if scheme.scheme == "clip_zscore":
        assert scheme.mean is not None
        assert scheme.std is not None
        np.clip(channel, scheme.low, scheme.high, out=channel)
        mean, std = scheme.mean, scheme.std
    else:
        mean, std = _moments(channel, inside)
    channel -= np.float32(mean)
    channel /= np.float32(max(std, 1e-6))


def _usual(channel: Floats, body: npt.NDArray[np.bool_] | None) -> float:
    """The median of positive values in the body, on a coarse grid that any scan has room for; 1 where there is none."""
    coarse = tuple(slice(None, None, step) for step in coarse_steps(channel.shape))
    values = channel[coarse] if body is None else channel[coarse][body[coarse]]
    values = values[values > 0]
    return max(float(np.median(values)), 1e-30) if values.size else 1.0


def _moments(channel: Floats, body: npt.NDArray[np.bool_] | None) -> tuple[float, float]:
    """Mean and standard deviation over the body, plane by plane: a large scan has no room for copies in float64."""

    def total(function: Callable[[Floats], npt.NDArray[Any]]) -> float:
        return sum(
            float(function(plane if body is None else plane[body[x]]).sum(dtype=np.float64))
            for x, plane in enumerate(channel)
        )

    count = channel.size if body is None else int(np.count_nonzero(body))
    mean = total(lambda values: values) / count
    variance = total(lambda values: np.square(values.astype(np.float64) - mean)) / count
    return mean, float(np.sqrt(variance))


def _network_body(image_CXYZ: Floats, plan: Plan, superior: int) -> npt.NDArray[np.bool_]:
    """The body on the network grid: by CT if there is one, else what any modality shows."""
    steps = coarse_steps(image_CXYZ.shape[1:])
    kinds = [modality.kind for modality in plan.modalities]
    wanted = [c for c, kind in enumerate(kinds) if KINDS[kind].outlines_body] or range(len(kinds))
    coarse = image_CXYZ[:, :: steps[0], :: steps[1], :: steps[2]]
    masks = [body_mask(coarse[channel], kinds[channel], superior) for channel in wanted]
    mask = np.logical_or.reduce(masks)
    return upsampled(mask, steps, image_CXYZ.shape[1:])


def registered(volumes: Mapping[str, Volume], plan: Plan) -> dict[str, Volume]:
    """Every modality moved onto the reference, as the plan asks; one that is not moved is told."""
    from veloxseg.image.register import register

    kinds = {modality.name: modality.kind for modality in plan.modalities}
    reference = volumes[plan.reference]
    moved = {}
    for name, volume in volumes.items():
        if name != plan.reference:
            before = len(volume.warnings)
            volume = register(reference, volume, plan.register, (kinds[plan.reference], kinds[name]))
            for text in volume.warnings[before:]:
                warn(f"{name}: {text}")
        moved[name] = volume
    return moved
