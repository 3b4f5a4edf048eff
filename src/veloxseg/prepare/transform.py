"""From scans to network input, and from the network's labels back: the same few lines in training and prediction.

The network grid has the plan's spacing and the axes of the reference scan, reordered and flipped to the closest
RAS orientation, around the body. Every modality is interpolated once, from its own grid straight to this one.
`Placement` remembers where the grid lies, so that labels return to each voxel of the reference scan.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import DatasetError, ModelError
from veloxseg.io.volume import Geometry, Volume
from veloxseg.prepare.body import AIR, body_box, body_mask, coarse_steps, upsampled
from veloxseg.prepare.plan import Normalisation, Plan
from veloxseg.prepare.resample import resample_image
from veloxseg.prepare.resample_labels import resample_label

__all__ = ["Placement", "from_network", "label_to_network", "place", "to_network"]

Floats = npt.NDArray[np.float32]
KERNELS = {"pet": "linear"}  # a cubic kernel would undershoot beside hot spots; every other kind is cubic
SAME_SPACING = 0.01  # a spacing within 1 % of the plan's is kept: resampling would only blur


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the network grid lies in the reference scan. Plain numbers only: it is stored as JSON."""

    reference_shape: tuple[int, int, int]
    reference_affine: tuple[tuple[float, ...], ...]
    network_shape: tuple[int, int, int]
    network_affine: tuple[tuple[float, ...], ...]

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
    def from_json(cls, value: dict[str, Any]) -> "Placement":
        def shape(name: str) -> tuple[int, int, int]:
            x, y, z = value[name]
            return int(x), int(y), int(z)

        def affine(name: str) -> tuple[tuple[float, ...], ...]:
            return tuple(tuple(float(number) for number in row) for row in value[name])

        try:
            return cls(
                reference_shape=shape("reference_shape"),
                reference_affine=affine("reference_affine"),
                network_shape=shape("network_shape"),
                network_affine=affine("network_affine"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"placement is damaged ({error}); prepare the case anew") from error


def to_network(volumes: Mapping[str, Volume], plan: Plan) -> tuple[Floats, Placement]:
    """Network input (C, X, Y, Z) in the plan's channel order, and where it lies."""
    missing = [name for name in plan.names if name not in volumes]
    if missing:
        raise DatasetError(
            f"modality {', '.join(missing)} is missing, found {', '.join(volumes) or 'nothing'}; "
            f"give all of {', '.join(plan.names)}"
        )
    if plan.register != "none":
        from veloxseg.prepare.register import registered

        volumes = registered(volumes, plan)
    placement = place(volumes, plan)
    image_CXYZ = np.empty((len(plan.modalities), *placement.network_shape), np.float32)
    for channel, modality in enumerate(plan.modalities):
        image_CXYZ[channel] = resample_image(
            volumes[modality.name],
            placement.network,
            KERNELS.get(modality.kind, "cubic"),
            AIR.get(modality.kind, 0.0),
        )
    _normalise(image_CXYZ, plan)
    return image_CXYZ, placement


def label_to_network(label: Volume, placement: Placement) -> npt.NDArray[Any]:
    """A label map on the network grid (X, Y, Z); each voxel gets the label with the largest share in it."""
    return resample_label(label, placement.network)


def from_network(labels_XYZ: npt.NDArray[Any], placement: Placement) -> npt.NDArray[Any]:
    """The network's labels on the reference scan's own grid; voxels outside the network grid are 0."""
    return resample_label(Volume(array=labels_XYZ, geometry=placement.network), placement.reference, "point")


def place(volumes: Mapping[str, Volume], plan: Plan) -> Placement:
    """The network grid of a case: axes closest to RAS, cropped to the body, with the plan's spacing."""
    reference = volumes[plan.reference].geometry
    to_reference, size = _closest_ras(reference)
    start, stop = _crop(volumes, plan, to_reference, size)
    spacing = np.linalg.norm((reference.affine @ to_reference)[:3, :3], axis=0)
    target = np.where(np.abs(np.asarray(plan.spacing) / spacing - 1) < SAME_SPACING, spacing, plan.spacing)
    scale = target / spacing  # reference voxels per network voxel
    extent = stop - start
    shape = np.maximum(1, np.ceil(extent / scale - 0.01)).astype(int)
    to_oriented = np.diag([*scale, 1.0])
    to_oriented[:3, 3] = (start + stop - 1) / 2 - scale * (shape - 1) / 2  # both grids have the same centre
    affine = reference.affine @ to_reference @ to_oriented
    x, y, z = (int(n) for n in shape)
    return Placement(
        reference_shape=reference.shape,
        reference_affine=tuple(tuple(row) for row in reference.affine.tolist()),
        network_shape=(x, y, z),
        network_affine=tuple(tuple(row) for row in affine.tolist()),
    )


def _closest_ras(geometry: Geometry) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int_]]:
    """Index map from the closest RAS orientation to the scan's own axes, and the size along the RAS axes."""
    from nibabel.orientations import inv_ornt_aff, io_orientation

    orientation = io_orientation(geometry.affine)
    to_own = np.asarray(inv_ornt_aff(orientation, geometry.shape), np.float64)
    size = np.empty(3, int)
    size[orientation[:, 0].astype(int)] = geometry.shape
    return to_own, size


def _crop(
    volumes: Mapping[str, Volume],
    plan: Plan,
    to_reference: npt.NDArray[np.float64],
    size: npt.NDArray[np.int_],
) -> tuple[npt.NDArray[np.int_], npt.NDArray[np.int_]]:
    """First and last + 1 voxel of the body along the RAS axes: by CT if there is one, else by all modalities."""
    modalities = [m for m in plan.modalities if m.kind == "ct"] or list(plan.modalities)
    to_oriented = np.linalg.inv(volumes[plan.reference].geometry.affine @ to_reference)
    lows, highs = [], []
    for modality in modalities:
        volume = volumes[modality.name]
        superior = int(np.abs(volume.geometry.direction[2]).argmax())  # holes are filled in axial slices
        box = body_box(volume.array, modality.kind, superior)
        if box is None:
            continue
        corners = np.array(np.meshgrid(*[(part.start - 0.5, part.stop - 0.5) for part in box])).reshape(3, -1)
        affine = to_oriented @ volume.geometry.affine
        index = affine[:3, :3] @ corners + affine[:3, 3:]
        lows.append(index.min(axis=1))
        highs.append(index.max(axis=1))
    if not lows:
        return np.zeros(3, int), size
    start = np.clip(np.floor(np.min(lows, axis=0) + 0.5 + 1e-3).astype(int), 0, size - 1)
    stop = np.clip(np.ceil(np.max(highs, axis=0) + 0.5 - 1e-3).astype(int), start + 1, size)
    return start, stop


def _normalise(image_CXYZ: Floats, plan: Plan) -> None:
    """In place, as the plan says; the body is found before any channel changes."""
    schemes = [modality.normalisation for modality in plan.modalities]
    body = _network_body(image_CXYZ, plan) if any(s.scheme == "zscore_body" for s in schemes) else None
    for channel, scheme in zip(image_CXYZ, schemes, strict=True):
        normalise(channel, scheme, body)


def normalise(channel: Floats, scheme: Normalisation, body: npt.NDArray[np.bool_] | None) -> None:
    """One modality, in place."""
    if scheme.scheme == "none":
        return
    if scheme.scheme == "clip_zscore":
        assert scheme.mean is not None
        assert scheme.std is not None
        np.clip(channel, scheme.low, scheme.high, out=channel)
        mean, std = scheme.mean, scheme.std
    else:
        mean, std = _moments(channel, body if body is not None and body.any() else None)
    channel -= np.float32(mean)
    channel /= np.float32(max(std, 1e-6))


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


def _network_body(image_CXYZ: Floats, plan: Plan) -> npt.NDArray[np.bool_]:
    """The body on the network grid: by CT if there is one, else what any modality shows."""
    steps = coarse_steps(image_CXYZ.shape[1:])
    kinds = [modality.kind for modality in plan.modalities]
    wanted = [c for c, kind in enumerate(kinds) if kind == "ct"] or range(len(kinds))
    coarse = image_CXYZ[:, :: steps[0], :: steps[1], :: steps[2]]
    masks = [body_mask(coarse[channel], kinds[channel]) for channel in wanted]
    mask = np.logical_or.reduce(masks)
    return upsampled(mask, steps, image_CXYZ.shape[1:])
