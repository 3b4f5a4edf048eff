"""ℓ2 magnitude pruning that really shrinks tensors: which channels a network can do without, and the smaller network.

A network's tensors are indexed by a few spaces: the channels of a stage of the convolution stream, and the hidden units
of each feed-forward layer. A unit's weight is the ℓ2 norm of all numbers that it indexes, in every tensor of its space,
divided by the mean of its space, so that spaces can be compared (as torch-pruning's group norm does). The lightest
units of all spaces go first, until as many parameters are left as were asked for.

    ffn         hidden units of both streams
    channels    channels of the convolution stream's stages, and its hidden units

Kept widths are multiples of 8, the vectors of our kernels; where convolutions are grouped, whole groups go. A modality
of the transformer stream keeps its own units, but as many as the others, since they share one tensor.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from veloxseg.errors import ConfigError
from veloxseg.model.config import STAGES, NetworkConfig
from veloxseg.model.count import parameters
from veloxseg.model.network import VeloxSeg

__all__ = ["WHAT", "Pruned", "kept_ratios", "prune"]

WHAT = ("ffn", "channels")
STEP = 8  # kept widths are multiples of it
HALVINGS = 40  # of the search for the threshold: far below the distance of two units


class Space(NamedTuple):
    """What an axis of a tensor counts."""

    kind: str  # stage, encoder, decoder or tokens (hidden units of the last three)
    stage: int
    block: int = 0


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """A smaller network: its settings, its weights, and what of each space is kept."""

    config: NetworkConfig
    weights: dict[str, Tensor]
    kept: dict[Space, Tensor]  # the units, in their order; of tokens (M, units)
    wished: dict[Space, tuple[int, ...]]  # how many the threshold alone would keep, of tokens for each modality


def prune(network: VeloxSeg, what: str, target: int) -> Pruned:
    """The network with at most `target` parameters; with as many as it has, it is left as it is."""
    config, weights = network.config, network.state_dict()
    if what not in WHAT:
        raise ConfigError(f"what is {what!r}; choose from {', '.join(WHAT)}")
    everything = {space: torch.arange(size) for space, size in _sizes(config).items()}
    if target >= parameters(network):
        times = {"tokens": config.modalities}
        whole = {space: (len(kept),) * times.get(space.kind, 1) for space, kept in everything.items()}
        return Pruned(config=config, weights=dict(weights), kept=everything, wished=whole)
    scores = {space: score for space, score in _scores(config, weights).items() if _takes_part(space, what)}
    threshold = _threshold(config, scores, target)
    kept = {space: _kept(config, space, score, threshold) for space, score in scores.items()}
    wished = {space: tuple((score >= threshold).sum(-1).reshape(-1).tolist()) for space, score in scores.items()}
    return Pruned(
        config=_smaller(config, {space: index.shape[-1] for space, index in kept.items()}),
        weights=_cut(config, weights, kept),
        kept={**everything, **kept},
        wished=wished,
    )


def kept_ratios(pruned: Pruned, before: NetworkConfig, modalities: tuple[str, ...]) -> list[dict[str, float | int]]:
    """The paper's table: hidden units by stage, divided by the block's width, for each stream; means over blocks.

    Of the modalities it is what the threshold asked for, since each keeps as many as the others in the end.
    """
    rows: list[dict[str, float | int]] = []
    for stage in range(STAGES):
        row: dict[str, float | int] = {"depth": stage + 1}
        tokens = [space for space in pruned.wished if space.kind == "tokens" and space.stage == stage]
        for number, name in enumerate(modalities if tokens else ()):
            wished = [pruned.wished[space][number] for space in tokens]
            row[name] = sum(wished) / len(wished) / before.transformer_widths[stage]
        for kind, width in (("tokens", before.transformer_widths[stage]), ("encoder", 0), ("decoder", 0)):
            found = [len_of(index) for s, index in pruned.kept.items() if s.kind == kind and s.stage == stage]
            if found:
                row[kind] = sum(found) / len(found) / (width or pruned.config.widths[stage])
        row["channels"] = pruned.config.widths[stage]
        rows.append(row)
    return rows


def len_of(index: Tensor) -> int:
    return index.shape[-1]


# -- spaces ------------------------------------------------------------------------------------------------------------


def _takes_part(space: Space, what: str) -> bool:
    return space.kind != "stage" if what == "ffn" else space.kind != "tokens"


def _sizes(config: NetworkConfig) -> dict[Space, int]:
    sizes = {Space("stage", stage): config.widths[stage] for stage in range(STAGES)}
    for kind in ("encoder", "decoder", "tokens"):
        for stage, block, hidden in config.hidden_widths(kind):
            sizes[Space(kind, stage, block)] = hidden
    return sizes


def _axes(config: NetworkConfig) -> Iterator[tuple[str, tuple[Space | None, ...]]]:
    """Every tensor that a space indexes, and what its first axes count; further axes count nothing that is pruned."""
    for k in range(STAGES):
        here, name = Space("stage", k), f"encoder.stages.{k}"
        yield f"{name}.down.0.weight", (here, Space("stage", k - 1) if k else None)
        yield f"{name}.down.0.bias", (here,)
        if config.attention != "none":
            yield f"{name}.join.0.weight", (here,)
            yield f"{name}.join.0.bias", (here,)
            for block in range(config.transformer_depths[k]):
                hidden, part = Space("tokens", k, block), f"{name}.transformer.blocks.{block}"
                yield f"{part}.expand.weight", (None, hidden)
                yield f"{part}.expand.bias", (None, hidden)
                yield f"{part}.reduce.weight", (None, None, hidden)
        yield from _blocks(config, f"{name}.blocks", "encoder", k)
        if k < STAGES - 1:
            yield f"decoder.ups.{k}.0.weight", (Space("stage", k + 1), here)
            yield f"decoder.ups.{k}.0.bias", (here,)
            yield from _blocks(config, f"decoder.blocks.{k}", "decoder", k)
        if k:
            yield f"deep_heads.{k - 1}.weight", (None, here)
    head = Space("stage", 0)
    yield ("head.weight", (head,)) if config.head == "transposed" else ("head.0.weight", (None, head))


def _blocks(config: NetworkConfig, name: str, kind: str, stage: int) -> Iterator[tuple[str, tuple[Space | None, ...]]]:
    here = Space("stage", stage)
    for block in range(config.depths[stage]):
        part, hidden = f"{name}.{block}", Space(kind, stage, block)
        for i in range(len(config.kernel_sizes)):
            # a grouped convolution loses whole groups, whose inputs are no axis of their own
            yield f"{part}.convs.{i}.weight", (here, here if _ungrouped(config, stage) else None)
            yield f"{part}.convs.{i}.bias", (here,)
        yield f"{part}.expand.weight", (hidden, here)
        yield f"{part}.expand.bias", (hidden,)
        yield f"{part}.reduce.weight", (here, hidden)
        yield f"{part}.reduce.bias", (here,)


def _ungrouped(config: NetworkConfig, stage: int) -> bool:
    return config.group_sizes[stage] == config.widths[stage]


# -- which units -----------------------------------------------------------------------------------------------------


def _scores(config: NetworkConfig, weights: Mapping[str, Tensor]) -> dict[Space, Tensor]:
    """Space → the ℓ2 norm of each unit (of tokens: of each modality's), divided by the mean of the space."""
    squares: dict[Space, Tensor] = {}
    for name, axes in _axes(config):
        tensor = weights.get(name)
        if tensor is None:  # a convolution without a bias
            continue
        for axis, space in enumerate(axes):
            if space is None:
                continue
            keep = (0, axis) if space.kind == "tokens" else (axis,)
            others = [dimension for dimension in range(tensor.ndim) if dimension not in keep]
            found = tensor.double().square().sum(others) if others else tensor.double().square()
            squares[space] = squares.get(space, 0) + found
    return {space: _relative(config, space, square.sqrt()) for space, square in squares.items()}


def _relative(config: NetworkConfig, space: Space, norms: Tensor) -> Tensor:
    """Units compared with the mean of their space; channels of one group stand and fall together."""
    if space.kind == "stage" and not _ungrouped(config, space.stage):
        size = config.group_sizes[space.stage]
        norms = norms.square().unflatten(0, (-1, size)).mean(-1).sqrt().repeat_interleave(size)
    return norms / norms.mean(-1, keepdim=True).clamp_min(1e-30)


def _count(config: NetworkConfig, space: Space, score: Tensor, threshold: float) -> int:
    """How many units are kept: those above the threshold (the mean over modalities), up to a whole vector or group."""
    size = score.shape[-1]
    step = STEP
    if space.kind == "stage" and not _ungrouped(config, space.stage):
        step = math.lcm(STEP, config.group_sizes[space.stage])
    above = float((score >= threshold).sum(-1).double().mean())
    return min(size, max(step, math.ceil(above / step) * step))


def _kept(config: NetworkConfig, space: Space, score: Tensor, threshold: float) -> Tensor:
    """The heaviest units in their order. With equal scores the first ones are kept, so that groups stay whole."""
    count = _count(config, space, score, threshold)
    order = torch.argsort(score, dim=-1, descending=True, stable=True)
    return order[..., :count].sort(-1).values


def _threshold(config: NetworkConfig, scores: Mapping[Space, Tensor], target: int) -> float:
    """The least threshold that leaves at most `target` parameters."""

    def left(threshold: float) -> int:
        counts = {space: _count(config, space, score, threshold) for space, score in scores.items()}
        with torch.device("meta"):
            return parameters(VeloxSeg(_smaller(config, counts)))

    low, high = 0.0, 1.0 + max(float(score.max()) for score in scores.values())
    if (least := left(high)) > target:
        raise ConfigError(
            f"pruning leaves at least {least / 1e6:.3f} M parameters, {target / 1e6:.3f} M were asked for; ask for "
            "more, or prune something else (ffn, channels)"
        )
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if left(middle) <= target else (middle, high)
    return high


# -- the smaller network ---------------------------------------------------------------------------------------------


def _smaller(config: NetworkConfig, counts: Mapping[Space, int]) -> NetworkConfig:
    """The settings of a network with so many units in these spaces."""
    sizes = {**_sizes(config), **counts}
    widths = tuple(sizes[Space("stage", stage)] for stage in range(STAGES))
    groups = tuple(
        width if _ungrouped(config, stage) else config.group_sizes[stage] for stage, width in enumerate(widths)
    )
    hidden = {
        kind: tuple(sizes[Space(kind, stage, block)] for stage, block, _ in config.hidden_widths(kind))
        for kind in ("encoder", "decoder", "tokens")
    }
    return replace(
        config,
        channels=() if widths == config.widths and not config.channels else widths,
        group_sizes=groups,  # type: ignore[arg-type]
        hidden=(*hidden["encoder"], *hidden["decoder"]),
        transformer_hidden=hidden["tokens"],
    )


def _cut(config: NetworkConfig, weights: Mapping[str, Tensor], kept: Mapping[Space, Tensor]) -> dict[str, Tensor]:
    """The weights with the kept units alone."""
    result = dict(weights)
    for name, axes in _axes(config):
        if name not in result:
            continue
        tensor = result[name]
        for axis, space in enumerate(axes):
            if space is not None and space in kept:
                tensor = _select(tensor, axis, kept[space])
        result[name] = tensor.contiguous()
    return result


def _select(tensor: Tensor, axis: int, index: Tensor) -> Tensor:
    if index.ndim == 1:
        return tensor.index_select(axis, index)
    return torch.stack([one.index_select(axis - 1, units) for one, units in zip(tensor, index, strict=True)])
