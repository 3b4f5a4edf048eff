"""The plan: every decision of preprocessing in one readable JSON, shared by training and prediction.

A plan of format 1 is ours (network_input.py). A plan of format 2 has `"pipeline": "nnunet"`: its model was trained in
nnU-Net, and prediction does to voxels what nnU-Net does (predict/nnunet.py).
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from veloxseg.errors import ModelError, shown
from veloxseg.modality import KINDS
from veloxseg.schema import OneOf, Range, build

__all__ = ["AXES", "REGISTRATIONS", "SCHEMES", "ModalityPlan", "NnunetSteps", "Normalisation", "Plan", "Resampling"]

FORMATS = {"veloxseg": 1, "nnunet": 2}  # pipeline → the plan's format
SCHEMES = ("clip_zscore", "zscore_body", "log_body", "none")
# of nnU-Net: z-score of the crop, z-score inside its non-zero mask, 0 to 1 by the scan's own range, 0 to 1 by 255
NNUNET_SCHEMES = ("clip_zscore", "zscore_crop", "zscore_nonzero", "range_01", "bytes_01", "none")
AXES = ("patient", "slices")
REGISTRATIONS = ("none", "rigid", "affine")
MOST_PATCH_VOXELS = 512**3
# bounds beyond any scan in use: a voxel of a metre, or of a micrometre, is a mistake in a file
Millimetres = Annotated[float, Range(0.01, 100)]
Side = Annotated[int, Range(0, 2048)]
LabelValue = Annotated[int, Range(0, 65535)]
Axis = Annotated[int, Range(0, 2)]


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """How intensities become network input.

    `clip_zscore`: clip to [low, high], then (x - mean) / std with the data set's own numbers (CT).
    `zscore_body`: (x - mean) / std of the case itself, over its body voxels (MR).
    `log_body`: log2(0.2 + 0.8 x / m), m the median of the case's positive body voxels (PET): 0 where the body takes up
    what is usual, -2.3 where it takes up nothing, 3 at ten times as much. A hot tumour changes neither m nor what is
    weak beside it, where it would stretch a standard deviation.
    `none`: as they are.

    A plan of nnU-Net has schemes of its own, NNUNET_SCHEMES.
    """

    scheme: Annotated[str, OneOf(*dict.fromkeys(SCHEMES + NNUNET_SCHEMES))]
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    std: float | None = None


@dataclass(frozen=True, kw_only=True)
class ModalityPlan:
    name: str  # "ct", "pet", "t1", "flair", ...: modalities are known by name, never by number
    kind: Annotated[str, OneOf(*KINDS)]  # decides resampling and normalisation
    normalisation: Normalisation


@dataclass(frozen=True, kw_only=True)
class Resampling:
    """How nnU-Net changes the spacing: by splines, and slice by slice where one axis is much coarser."""

    order: Annotated[int, Range(0, 5)]
    slice_order: Annotated[int, Range(0, 5)]  # across slices, where they are resampled one by one
    by_slices: bool | None = None  # None: where an axis is more than three times as coarse as another


@dataclass(frozen=True, kw_only=True)
class NnunetSteps:
    """What nnU-Net's pipeline needs beyond a plan. Spacing and patch of such a plan run along the network's axes."""

    axes: tuple[Axis, Axis, Axis]  # for each axis of the network, which of (z, y, x) of the file it is
    image: Resampling
    scores: Resampling
    mirror_axes: tuple[Axis, ...] = ()  # the network's axes along which its training mirrored


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What preprocessing does. The order of `modalities` is the order of the network's input channels."""

    dataset: str
    modalities: tuple[ModalityPlan, ...]
    reference: str  # the modality whose grid the others, and the labels, are brought to
    spacing: tuple[Millimetres, Millimetres, Millimetres]  # along the axes closest to RAS+
    patch: tuple[Side, Side, Side]
    windows: tuple[tuple[Side, Side, Side], ...]  # minimum big window of PWA per stage
    labels: dict[str, LabelValue]  # with "background": 0
    regions: dict[str, tuple[LabelValue, ...]] | None = None  # overlapping targets (BraTS WT/TC/ET), one sigmoid each
    ignore_label: LabelValue | None = None
    # labels that are several in the data set's own label maps: tumour -> {"GTVp": 1, "GTVn": 2}
    merged: dict[str, dict[str, LabelValue]] = field(default_factory=dict)
    # how the network's axes run: along the patient's (RAS+), or slices last, for data sets sliced in several directions
    axes: Annotated[str, OneOf(*AXES)] = "patient"
    register: Annotated[str, OneOf(*REGISTRATIONS)] = "none"  # modalities are first registered to the reference
    format: int = FORMATS["veloxseg"]
    pipeline: Annotated[str, OneOf(*FORMATS)] = "veloxseg"
    nnunet: NnunetSteps | None = None
    mirror: bool = False  # whether prediction takes the mean over mirror images unless it is told otherwise
    why: str = ""  # what the planner decided that a user may want otherwise, in words

    def __post_init__(self) -> None:
        _check(self)

    @property
    def names(self) -> tuple[str, ...]:
        """Modality names in channel order."""
        return tuple(modality.name for modality in self.modalities)

    @property
    def outputs(self) -> tuple[str, ...]:
        """What each output channel of the network stands for: regions, or all labels with background first."""
        if self.regions is not None:
            return tuple(self.regions)
        return tuple(sorted((n for n, v in self.labels.items() if v != self.ignore_label), key=self.labels.__getitem__))

    @property
    def two_classes(self) -> bool:
        """Whether one output would do: the difference of two logits decides labels and probabilities."""
        return len(self.outputs) == 2 and self.regions is None

    @property
    def structures(self) -> dict[str, tuple[int, ...]]:
        """What the network is to find, by the values of the data set's own label maps; these may overlap."""
        if self.regions is not None:
            return dict(self.regions)
        own = {name: self.labels[name] for name in self.outputs if self.labels[name]}
        return {name: tuple(self.merged[name].values()) if name in self.merged else (own[name],) for name in own}

    def to_json(self) -> dict[str, Any]:
        """What a plan does not have is left out, as before there was such a thing: the hash of an old plan stays."""
        value = asdict(self)
        unused = [name for name in ("merged", "nnunet", "mirror", "why") if not value[name]]
        unused += [] if self.nnunet else ["pipeline"]
        return {name: entry for name, entry in value.items() if name not in unused}

    @classmethod
    def from_json(cls, value: Any, where: str = "plan.json") -> "Plan":
        if isinstance(value, dict) and value.get("format") not in FORMATS.values():
            found = shown(value.get("format"), 40)
            raise ModelError(f"{where}: the plan has format {found}, this version reads 1 and 2; prepare the data anew")
        return build(cls, value, where, ModelError, "prepare the data anew")


def _check(plan: Plan) -> None:
    """How the entries of a plan must go together."""
    _check_pipeline(plan)
    if not plan.modalities or len(set(plan.names)) < len(plan.names):
        raise ModelError(f"the modalities are {shown(plan.names)}, expected different names; prepare the data anew")
    if plan.reference not in plan.names:
        raise ModelError(
            f"the reference {shown(plan.reference)!r} is none of the modalities {', '.join(plan.names)}; "
            "prepare the data anew"
        )
    values = list(plan.labels.values())
    if plan.labels.get("background") != 0 or len(set(values)) < len(values) or len(values) < 2:
        raise ModelError(
            f"the labels are {shown(plan.labels)}, expected background 0 and others with values of their own; "
            "prepare the data anew"
        )
    if math.prod(plan.patch) > MOST_PATCH_VOXELS:
        raise ModelError(f"the patch {plan.patch} has more than {MOST_PATCH_VOXELS} voxels; prepare the data anew")
    used = {value for region in (plan.regions or {}).values() for value in region}
    if plan.regions is not None and (not plan.regions or not all(plan.regions.values())):
        raise ModelError(
            f"the regions are {shown(plan.regions)}, expected label values for each; prepare the data anew"
        )
    if unlisted := sorted((used | {plan.ignore_label} - {None}) - set(values)):  # type: ignore[type-var]
        raise ModelError(
            f"label value {unlisted[0]} is used by a region or as ignore and not listed among the labels; "
            "prepare the data anew"
        )
    for name, parts in plan.merged.items():
        if plan.labels.get(name) != min(parts.values(), default=None) or plan.regions is not None:
            raise ModelError(
                f"{shown(name)} is merged of {shown(parts)}, expected a label with the lowest of these values, and no "
                "regions; prepare the data anew"
            )
    for modality in plan.modalities:
        scheme = modality.normalisation
        numbers = (scheme.low, scheme.high, scheme.mean, scheme.std)
        if scheme.scheme == "clip_zscore" and (None in numbers or scheme.low > scheme.high or scheme.std <= 0):  # type: ignore[operator]
            raise ModelError(
                f"the normalisation of {modality.name} has low, high, mean, std {numbers}, expected four numbers in "
                "order, std above 0; prepare the data anew"
            )


def _check_pipeline(plan: Plan) -> None:
    """A plan is of one pipeline as a whole."""
    if plan.format != FORMATS[plan.pipeline] or (plan.nnunet is not None) != (plan.pipeline == "nnunet"):
        raise ModelError(
            f"the plan has format {plan.format}, pipeline {plan.pipeline} and "
            f"{'steps' if plan.nnunet else 'no steps'} of nnU-Net, which do not go together; convert the model anew"
        )
    known = SCHEMES if plan.nnunet is None else NNUNET_SCHEMES
    if odd := [m for m in plan.modalities if m.normalisation.scheme not in known]:
        raise ModelError(
            f"the normalisation of {odd[0].name} is {odd[0].normalisation.scheme}, expected one of "
            f"{', '.join(known)} with the pipeline {plan.pipeline}; prepare the data anew"
        )
    if plan.nnunet is not None and sorted(plan.nnunet.axes) != [0, 1, 2]:
        raise ModelError(f"the axes of nnU-Net are {plan.nnunet.axes}, expected 0, 1, 2 in some order; convert anew")
