"""nnU-Net's plans.json and dataset.json, and the plan of ours that says the same (format 2, pipeline "nnunet").

Both files pass the gate: what is needed of them has its type checked, the rest is not looked at. What our pipeline
does not do (2-D, a cascade, a normalisation or a resampling of someone's own) is refused by its name.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from veloxseg.dataset.layouts.nnunet import read_labels
from veloxseg.dataset.naming import channel_names, read_description
from veloxseg.errors import DatasetError, ModelError, shown
from veloxseg.files import read_json
from veloxseg.modality import canonical_name, kind_of
from veloxseg.prepare.plan import ModalityPlan, NnunetSteps, Normalisation, Plan, Resampling
from veloxseg.schema import Count, Range, build

__all__ = ["Configuration", "Plans", "preparation", "read_configuration", "to_plan"]

READERS = ("SimpleITKIO", "NibabelIO")  # both give voxels as stored
RESAMPLING = "resample_data_or_seg_to_shape"
PREPROCESSOR = "DefaultPreprocessor"
NORMALISATIONS = {
    "CTNormalization": "clip_zscore",
    "ZScoreNormalization": "zscore_crop",
    "RescaleTo01Normalization": "range_01",
    "RGBTo01Normalization": "bytes_01",
    "NoNormalization": "none",
}
Few = Annotated[int, Range(1, 64)]
REMEDY = "is this nnU-Net's plans.json?"


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What we take of an entry of `configurations`; spacing and patch run along the transposed axes."""

    patch_size: tuple[Count, ...]
    spacing: tuple[Annotated[float, Range(1e-3, 1e3)], ...]
    normalization_schemes: tuple[str, ...]
    use_mask_for_norm: tuple[bool, ...]
    architecture: dict[str, Any] | None = None
    preprocessor_name: str = PREPROCESSOR
    previous_stage: str | None = None
    resampling_fn_data: str
    resampling_fn_data_kwargs: dict[str, Any]
    resampling_fn_probabilities: str
    resampling_fn_probabilities_kwargs: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class _OldNetwork:
    """How plans from before nnU-Net 2.5 tell their network."""

    UNet_class_name: str
    UNet_base_num_features: Annotated[int, Range(1, 4096)]
    unet_max_num_features: Annotated[int, Range(1, 4096)]
    n_conv_per_stage_encoder: tuple[Few, ...]
    n_conv_per_stage_decoder: tuple[Few, ...]
    pool_op_kernel_sizes: tuple[tuple[Few, ...], ...]
    conv_kernel_sizes: tuple[tuple[Few, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Plans:
    """What we take of plans.json itself."""

    dataset_name: str
    image_reader_writer: str
    transpose_forward: tuple[Annotated[int, Range(0, 2)], ...]
    configurations: dict[str, Any]
    foreground_intensity_properties_per_channel: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Intensities:
    """Of the labelled voxels of one channel."""

    mean: float
    std: float
    percentile_00_5: float
    percentile_99_5: float


@dataclass(frozen=True, kw_only=True)
class _ResamplingKwargs:
    is_seg: bool = False
    order: int = 3
    order_z: int = 0
    force_separate_z: bool | None = None


def read_configuration(path: Path, name: str) -> tuple[Plans, Configuration]:
    """Reads plans.json, and of it one configuration with what it inherits."""
    plans: Plans = _picked(Plans, read_json(path), path.name)
    chain: list[str] = []
    entry: dict[str, Any] = {}
    following: Any = name
    while following is not None:
        if following in chain or not isinstance(plans.configurations.get(following), dict):
            known = ", ".join(sorted(plans.configurations))
            raise ModelError(f"{path.name}: configuration {shown(following)} is none of {shown(known)}; {REMEDY}")
        chain.append(following)
        entry = {**plans.configurations[following], **entry}
        following = plans.configurations[following].get("inherits_from")
    configuration: Configuration = _picked(Configuration, entry, f"{path.name}: {name}")
    if configuration.architecture is None and "UNet_class_name" in entry:
        old: _OldNetwork = _picked(_OldNetwork, entry, f"{path.name}: {name}")
        configuration = dataclasses.replace(configuration, architecture=_architecture(old))
    return plans, configuration


def _architecture(old: _OldNetwork) -> dict[str, Any]:
    """The entry `architecture` that nnU-Net would write today for plans from before 2.5."""
    stages = len(old.n_conv_per_stage_encoder)
    blocks = "n_conv_per_stage" if old.UNet_class_name == "PlainConvUNet" else "n_blocks_per_stage"
    widths = [min(old.UNet_base_num_features << stage, old.unet_max_num_features) for stage in range(stages)]
    return {
        "network_class_name": old.UNet_class_name,
        "arch_kwargs": {
            "n_stages": stages,
            "features_per_stage": widths,
            "conv_op": "Conv3d",
            "kernel_sizes": old.conv_kernel_sizes,
            "strides": old.pool_op_kernel_sizes,
            blocks: old.n_conv_per_stage_encoder,
            "n_conv_per_stage_decoder": old.n_conv_per_stage_decoder,
            "conv_bias": True,
            "norm_op": "InstanceNorm3d",
            "norm_op_kwargs": {"eps": 1e-5, "affine": True},
            "nonlin": "LeakyReLU",
            "nonlin_kwargs": {"inplace": True},
        },
    }


def _picked(kind: Any, value: Any, where: str) -> Any:
    """The entries that `kind` names, through the gate."""
    known = {item.name for item in dataclasses.fields(kind)}
    picked = {key: item for key, item in value.items() if key in known} if isinstance(value, dict) else value
    return build(kind, picked, where, ModelError, REMEDY)


def to_plan(plans: Plans, configuration: Configuration, dataset: Path, mirror_axes: tuple[int, ...]) -> Plan:
    """Our plan of a configuration; `dataset` is the dataset.json beside plans.json."""
    _refuse_others(plans, configuration)
    description = read_description(dataset)
    try:
        labels, regions, ignore = read_labels(description, dataset)
        names = _names(description, dataset)
    except DatasetError as error:
        raise ModelError(str(error)) from error
    if len(names) != len(configuration.normalization_schemes):
        raise ModelError(
            f"{dataset.name} has {len(names)} channels, plans.json {len(configuration.normalization_schemes)} "
            "normalisations; were files mixed up?"
        )
    value = {
        "format": 2,
        "pipeline": "nnunet",
        "dataset": plans.dataset_name,
        "modalities": [
            ModalityPlan(name=name, kind=kind_of(name), normalisation=normalisation(plans, configuration, channel))
            for channel, name in enumerate(names)
        ],
        "reference": names[0],
        "spacing": configuration.spacing,
        "patch": configuration.patch_size,
        "windows": [],
        "labels": labels,
        "regions": regions,
        "ignore_label": ignore,
        "nnunet": NnunetSteps(
            axes=plans.transpose_forward,  # type: ignore[arg-type]  # the gate has seen that there are three
            image=_resampling(configuration.resampling_fn_data, configuration.resampling_fn_data_kwargs),
            scores=_resampling(
                configuration.resampling_fn_probabilities, configuration.resampling_fn_probabilities_kwargs
            ),
            mirror_axes=mirror_axes,
        ),
    }
    return build(Plan, value, "plans.json", ModelError, REMEDY)


def _refuse_others(plans: Plans, configuration: Configuration) -> None:
    """Says by name what our pipeline does not do."""
    if len(configuration.patch_size) != 3 or len(configuration.spacing) != 3 or len(plans.transpose_forward) != 3:
        raise ModelError("the configuration is 2d, and prediction here is 3-D; convert a 3d_fullres fold")
    if configuration.previous_stage is not None:
        raise ModelError(
            f"the configuration is a cascade after {shown(configuration.previous_stage)}, which needs two models in a "
            "row; convert a 3d_fullres fold"
        )
    for what, found, known in (
        ("image_reader_writer", plans.image_reader_writer, READERS),
        ("preprocessor_name", configuration.preprocessor_name, (PREPROCESSOR,)),
    ):
        if found not in known:
            raise ModelError(f"plans.json has {what} {shown(found)}, and {', '.join(known)} can be converted")


def _names(description: dict[str, Any], where: Path) -> tuple[str, ...]:
    """Modalities in channel order; where two have one name, as nnU-Net allows, their numbers tell them apart."""
    value = description.get("channel_names", description.get("modality", {}))
    given = [canonical_name(str(name)) for name in value.values()] if isinstance(value, dict) else []
    if len(set(given)) < len(given):
        return tuple(f"{name}_{number}" for number, name in enumerate(given))
    return tuple(channel_names(description, where).values())


def normalisation(plans: Plans, configuration: Configuration, channel: int) -> Normalisation:
    """How one channel is normalised, in our words."""
    name = configuration.normalization_schemes[channel]
    scheme = NORMALISATIONS.get(name)
    if scheme is None:
        raise ModelError(
            f"the normalisation of channel {channel} is {shown(name)}, and {', '.join(NORMALISATIONS)} can be converted"
        )
    if scheme == "clip_zscore":
        properties = plans.foreground_intensity_properties_per_channel.get(str(channel))
        found: Intensities = _picked(Intensities, properties, f"plans.json: intensities of channel {channel}")
        return Normalisation(
            scheme=scheme,
            low=found.percentile_00_5,
            high=found.percentile_99_5,
            mean=found.mean,
            std=max(found.std, 1e-8),
        )
    masked = channel < len(configuration.use_mask_for_norm) and configuration.use_mask_for_norm[channel]
    return Normalisation(scheme="zscore_nonzero" if scheme == "zscore_crop" and masked else scheme)


def _resampling(name: str, kwargs: dict[str, Any]) -> Resampling:
    if name != RESAMPLING:
        raise ModelError(f"the resampling is {shown(name)}, and {RESAMPLING} can be converted")
    found: _ResamplingKwargs = build(_ResamplingKwargs, kwargs, f"plans.json: {RESAMPLING}", ModelError, REMEDY)
    return build(
        Resampling,
        {"order": found.order, "slice_order": found.order_z, "by_slices": found.force_separate_z},
        f"plans.json: {RESAMPLING}",
        ModelError,
        REMEDY,
    )


def preparation(
    path: Path, configuration: str = "3d_fullres"
) -> tuple[tuple[float, float, float], list[Normalisation]]:
    """What `prepare` can take over: the spacing along (x, y, z) of the files, and the channels' normalisations.

    A z-score is ours, over the body; nnU-Net's is over the crop.
    """
    plans, entry = read_configuration(path, configuration)
    _refuse_others(plans, entry)
    spacing = dict(zip(plans.transpose_forward, entry.spacing, strict=True))
    schemes = [normalisation(plans, entry, channel) for channel in range(len(entry.normalization_schemes))]
    return (spacing[2], spacing[1], spacing[0]), [_ours(scheme) for scheme in schemes]


def _ours(given: Normalisation) -> Normalisation:
    ours = {"clip_zscore": given, "none": given, "zscore_crop": ZSCORE, "zscore_nonzero": ZSCORE}
    if given.scheme not in ours:
        raise ModelError("plans.json scales intensities to 0 to 1, which `prepare` does not do; leave --plans out")
    return ours[given.scheme]


ZSCORE = Normalisation(scheme="zscore_body")
