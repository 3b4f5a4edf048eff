"""The authors' names: their configuration and their parameters, read into ours.

Our network stacks what the authors keep apart (Q, K, V of all modalities are one tensor), so each of their
parameters is a *view* of one of ours. `view_of` finds it; loading copies into it, and tests compare gradients
through it.
"""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from veloxseg.errors import ConfigError, ModelError
from veloxseg.model.config import NetworkConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["config", "load_weights", "view_of"]

# the authors' key -> ours
_KEYS = {
    "input_size": "patch",
    "in_ch": "in_channels",
    "n_classes": "classes",
    "base_ch": "base_width",
    "conv_depths": "depths",
    "kernel_sizes": "kernel_sizes",
    "min_dim_group": "group_sizes",
    "conv_expansion_factor": "expansions",
    "attn_base_ch": "transformer_width",
    "depths": "transformer_depths",
    "min_big_window_sizes": "windows",
    "min_small_window_sizes": "small_windows",
    "min_dim_head": "head_sizes",
    "ffn_expansion_ratio": "transformer_expansions",
    "num_heads": "heads",
    "proj_drop": "projection_dropout",
    "conv_drop": "conv_dropout",
    "attn_drop": "attention_dropout",
    "drop_path": "drop_path",
}
_FIXED = {"patch_size": 4, "spatial_dim": 3}  # settings of theirs that we only have one value for


def config(authors: Mapping[str, Any]) -> NetworkConfig:
    """Our configuration from the authors' JSON section "VeloxSeg".

    >>> veloxseg.reference.config({"input_size": [96, 96, 96], "in_ch": [1, 1], "n_classes": 2}).classes
    2
    """
    for key, value in _FIXED.items():
        if authors.get(key, value) != value:
            raise ConfigError(f"{key} is {authors[key]}; this network is built for {value} only")
    if unknown := authors.keys() - _KEYS.keys() - _FIXED.keys():
        raise ConfigError(
            f"unknown setting {', '.join(sorted(unknown))}; the authors' configuration has {', '.join(_KEYS)}"
        )
    return NetworkConfig(**{_KEYS[key]: value for key, value in authors.items() if key in _KEYS})


def load_weights(model: "nn.Module", weights: Mapping[str, "Tensor"]) -> None:
    """Copies the authors' parameters into an `SDKTModel`, or into a plain `VeloxSeg` (teachers are left out)."""
    import torch

    ours = dict(model.named_parameters())
    plain = not any(name.startswith("teachers.") for name in ours)
    settings: NetworkConfig = model.config  # type: ignore[assignment]
    filled = {name: 0 for name in ours}
    unknown, misfits = [], []
    for authors_name, value in weights.items():
        name = authors_name.removeprefix("module.")
        if "relative_position_index" in name or (plain and name.startswith("rc_decoders.")):
            continue
        try:
            target, view = view_of(name, settings)
        except KeyError:
            unknown.append(name)
            continue
        target = target.removeprefix("student.") if plain else target
        if target not in ours:
            unknown.append(name)
            continue
        with torch.no_grad():
            part = view(ours[target])
            if part.numel() != value.numel():
                misfits.append(f"{name} {tuple(value.shape)}")
                continue
            part.copy_(value.reshape(part.shape))
            filled[target] += part.numel()
    missing = [name for name, count in filled.items() if count != ours[name].numel()]
    for what, names in (("does not know", unknown), ("has another size for", misfits), ("gets no value for", missing)):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise ModelError(f"weights do not fit the configuration: the network {what} {', '.join(names[:5])}{more}")


View = Callable[["Tensor"], "Tensor"]


def view_of(name: str, settings: NetworkConfig) -> tuple[str, View]:
    """Our parameter, and the view of it, that is the authors' `name` in an `SDKTModel`. KeyError if there is none."""
    for pattern, target in _RULES:
        if found := re.fullmatch(pattern, name):
            return target(settings, *found.groups())
    raise KeyError(name)


def _same(tensor: "Tensor") -> "Tensor":
    return tensor


def _whole(template: str) -> Callable[..., tuple[str, View]]:
    """A parameter that is one of ours as it is."""

    def target(settings: NetworkConfig, *groups: str) -> tuple[str, View]:
        return template.format(*groups), _same

    return target


def _stage(template: str) -> Callable[..., tuple[str, View]]:
    """Like `_whole`, where the first group is a stage, counted from one by the authors."""

    def target(settings: NetworkConfig, stage: str, *groups: str) -> tuple[str, View]:
        return template.format(int(stage) - 1, *groups), _same

    return target


def _student(rule: Callable[..., tuple[str, View]]) -> Callable[..., tuple[str, View]]:
    """A rule of the decoder, for the student's decoder."""

    def target(settings: NetworkConfig, *groups: str) -> tuple[str, View]:
        name, view = rule(settings, *groups)
        return f"student.{name}", view

    return target


def _teacher(rule: Callable[..., tuple[str, View]]) -> Callable[..., tuple[str, View]]:
    """A rule of the decoder, for the decoder of teacher number `m`."""

    def target(settings: NetworkConfig, m: str, *groups: str) -> tuple[str, View]:
        name, view = rule(settings, *groups)
        return f"teachers.{m}.{name}", view

    return target


def _modality(template: str) -> Callable[..., tuple[str, View]]:
    """A parameter per modality, of which ours is the stack. Groups: layer, [block,] modality, weight or bias."""

    def target(settings: NetworkConfig, *groups: str) -> tuple[str, View]:
        *where, modality, kind = groups
        return template.format(*where, kind), lambda tensor: tensor[int(modality)]

    return target


def _projection(
    settings: NetworkConfig, layer: str, block: str, modality: str, which: str, kind: str
) -> tuple[str, View]:
    """Q, K or V, whose channels are (pair, head, c) with the authors and (pair, [Q, K, V], head, c) with us."""
    stage, part = int(layer), int(which)
    pairs = len(settings.pairs(stage))
    narrow = settings.heads[stage] * settings.head_sizes[stage]

    def view(tensor: "Tensor") -> "Tensor":
        blocks = tensor[int(modality)].unflatten(0, (pairs, -1))
        end = (part + 1) * narrow if part < 2 else blocks.shape[1]
        return blocks[:, part * narrow : end]

    return f"student.encoder.stages.{layer}.transformer.blocks.{block}.attention.qkv.{kind}", view


_KIND = r"(weight|bias)"
_JLC = {
    rf"spatial_convs\.(\d+)(?:\.0)?\.{_KIND}": "convs.{}.{}",
    rf"channel_conv\.1\.{_KIND}": "expand.{}",
    rf"channel_conv\.3\.{_KIND}": "reduce.{}",
}
_DECODER = [(rf"layer(\d)\.(\d+)\.{part}", _stage("decoder.blocks.{}.{}." + ours)) for part, ours in _JLC.items()]
_DECODER += [(rf"layer_up(\d)\.up\.{_KIND}", _stage("decoder.ups.{}.0.{}"))]
_LAYER = r"encoder\.encoder_attn\.layers\.(\d)"
_LAYER_BLOCK = _LAYER + r"\.blocks\.(\d+)"
_STAGE = "student.encoder.stages.{}.transformer."
_BLOCK = _STAGE + "blocks.{}."


_RULES: list[tuple[str, Callable[..., tuple[str, View]]]] = [
    *((r"decoder\." + pattern, _student(rule)) for pattern, rule in _DECODER),
    *((r"rc_decoders\.(\d+)\." + pattern, _teacher(rule)) for pattern, rule in _DECODER),
    (rf"decoder\.out_conv1\.0\.{_KIND}", _whole("student.head.0.{}")),
    (rf"decoder\.out_conv1\.{_KIND}", _whole("student.head.{}")),
    (rf"decoder\.out_conv(\d)\.{_KIND}", lambda c, k, kind: (f"student.deep_heads.{int(k) - 2}.{kind}", _same)),
    (rf"rc_decoders\.(\d+)\.out_conv\.0\.{_KIND}", _whole("teachers.{}.head.0.{}")),
    (rf"rc_decoders\.(\d+)\.enc2rc_(\d)\.0\.{_KIND}", _teacher(_stage("inputs.{}.0.{}"))),
    (rf"encoder\.attn2conv_(\d)\.0\.{_KIND}", _stage("student.encoder.stages.{}.join.0.{}")),
    (rf"encoder\.encoder_conv\.down(\d)\.down\.{_KIND}", _stage("student.encoder.stages.{}.down.0.{}")),
    *(
        (rf"encoder\.encoder_conv\.layer(\d)\.(\d+)\.{part}", _stage("student.encoder.stages.{}.blocks.{}." + ours))
        for part, ours in _JLC.items()
    ),
    (rf"encoder\.encoder_attn\.patch_embeds\.(\d+)\.proj\.{_KIND}", _whole("student.encoder.embedding.convs.{}.{}")),
    (rf"{_LAYER}\.downs\.(\d+)\.norm\.{_KIND}", _modality(_STAGE + "merge.reduce.norm_{}")),
    (rf"{_LAYER}\.downs\.(\d+)\.reduction\.{_KIND}", _modality(_STAGE + "merge.reduce.{}")),
    (rf"{_LAYER_BLOCK}\.attn\.qkv_proj\.(\d+)\.([012])\.{_KIND}", _projection),
    (rf"{_LAYER_BLOCK}\.attn\.input_norms\.(\d+)\.{_KIND}", _modality(_BLOCK + "attention.qkv.norm_{}")),
    (rf"{_LAYER_BLOCK}\.attn\.mix_channels\.(\d+)\.{_KIND}", _modality(_BLOCK + "attention.mixer.{}")),
    (
        rf"{_LAYER_BLOCK}\.attn\.position_embedding\.relative_position_bias_table",
        _whole(_BLOCK + "attention.bias.table"),
    ),
    (rf"{_LAYER_BLOCK}\.norms\.(\d+)\.{_KIND}", _modality(_BLOCK + "expand.norm_{}")),
    (rf"{_LAYER_BLOCK}\.ffns\.(\d+)\.linear1\.{_KIND}", _modality(_BLOCK + "expand.{}")),
    (rf"{_LAYER_BLOCK}\.ffns\.(\d+)\.linear2\.{_KIND}", _modality(_BLOCK + "reduce.{}")),
]
