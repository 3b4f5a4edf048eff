"""The configuration of the network: one frozen dataclass, validated once, and the paper's presets.

Stage k = 1..4 works at 1/4, 1/8, 1/16, 1/32 of the patch with width `base_width · 2^(k-1)`.
A variant is `dataclasses.replace(preset("b"), kernel_sizes=(3,))`.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from veloxseg.errors import ConfigError, ShapeError
from veloxseg.schema import OneOf, Range, Share, build, settle
from veloxseg.types import Size

__all__ = ["PRESETS", "NetworkConfig", "PairedWindow", "preset", "windows_for"]

# Bounds are far beyond any network in use: they keep a lie in a file from becoming a loop or an allocation without end.
Few = Annotated[int, Range(1, 64)]
Width = Annotated[int, Range(1, 1024)]
Side = Annotated[int, Range(1, 2048)]
Hidden = Annotated[int, Range(1, 8192)]
PerStage = tuple[Width, Width, Width, Width]
DepthPerStage = tuple[Few, Few, Few, Few]
Window = tuple[Side, Side, Side]

STAGES = 4
STRIDES = (4, 8, 16, 32)  # of each stage against the patch
MOST_VOXELS = 512**3  # of a patch


@dataclass(frozen=True, kw_only=True)
class PairedWindow:
    """One pair: attention runs inside `big`, over one token per `small`."""

    big: Size
    small: Size

    @property
    def tokens(self) -> Size:
        """Tokens along each axis of a big window, the same for all pairs of a stage."""
        x, y, z = (b // s for b, s in zip(self.big, self.small, strict=True))
        return x, y, z


def windows_for(patch: Size, base_width: int = 16) -> tuple[Size, ...]:
    """The minimum big windows for a patch that the paper does not list.

    Start from the size of the last stage's feature (96³: 3³; 128×128×64: 4×4×2), which tiles every stage and
    grows by doubling to the whole feature; double it until the number of pairs divides the stage's width, so
    that projecting wastes no channels (Appendix "Details of PWA"). This gives 3, 6, 3, 3 and
    (4,4,2), (8,8,4), (4,4,2), (4,4,2), the paper's choices.
    """
    last = [side // STRIDES[-1] for side in patch]
    windows = []
    for stage in range(STAGES):
        pairs, scale = STAGES - stage, 1
        while (base_width * 2**stage) % pairs:
            pairs, scale = pairs - 1, scale * 2
        x, y, z = (side * scale for side in last)
        windows.append((x, y, z))
    return tuple(windows)


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """All that defines a VeloxSeg network. The defaults are VeloxSeg-B for AutoPET-II."""

    in_channels: tuple[Few, ...] = (1, 1)
    """Channels of each modality; `2` is early fusion of two. Their sum is the number of the data's modalities."""
    classes: Width = 2
    """Outputs of the network. The prepared labels decide, so training refuses another number."""
    patch: tuple[Side, Side, Side] = (96, 96, 96)
    """Voxels that the network sees at a time, multiples of 32. Training takes that of PREPARED unless it is set."""
    base_width: Width = 16
    """Channels of stage 1 of the convolution stream and the decoders; each stage has twice those of the one before."""
    transformer_width: Width = 16
    """Channels of stage 1 of the transformer stream."""
    depths: DepthPerStage = (1, 1, 1, 1)
    """JLC blocks in each stage, in the encoder and in every decoder."""
    kernel_sizes: tuple[Few, ...] = (1, 3, 5)
    """Kernels of the parallel group convolutions of a JLC block; odd."""
    group_sizes: PerStage = (4, 8, 8, 16)
    """Channels per group of these convolutions in each stage, by the JL bound (Eq. 2); divisors of its width."""
    expansions: PerStage = (3, 3, 2, 2)
    """Hidden width of a JLC block's feed-forward layer, as a multiple of the stage's width."""
    attention: Annotated[str, OneOf("paired", "window", "downsampled", "none")] = "paired"
    """Paired windows; or, for ablations, the finest pair alone, the coarsest alone, or no transformer stream."""
    transformer_depths: DepthPerStage = (1, 1, 1, 1)
    """Transformer blocks in each stage."""
    transformer_expansions: PerStage = (3, 3, 2, 2)
    """Hidden width of a transformer block's feed-forward layer, as a multiple of the stage's width."""
    windows: tuple[Window, ...] = ()
    """Smallest big window of each stage, such as `3x3x3,6x6x6,3x3x3,3x3x3`; empty: derived from the patch."""
    small_windows: tuple[Window, ...] = ((1, 1, 1),) * STAGES
    """Smallest small window of each stage: each gives one token, by max-pooling."""
    window_ratio: Annotated[int, Range(2, 64)] = 2
    """How much both windows grow from one pair to the next."""
    heads: PerStage = (1, 2, 2, 4)
    """Attention heads in each stage."""
    head_sizes: PerStage = (4, 8, 8, 16)
    """Channels of queries and keys per head, by the JL bound too."""
    head: Annotated[str, OneOf("pixel_shuffle", "transposed")] = "pixel_shuffle"
    """How the last feature becomes voxels; the paper's ablation has a transposed convolution."""
    attention_dropout: Share = 0.1
    """Dropout of attention weights. `dropout` sets this one and the next two."""
    projection_dropout: Share = 0.1
    """Dropout after patch embedding, mixer and the transformer's feed-forward layers."""
    conv_dropout: Share = 0.1
    """Dropout of the JLC blocks' feed-forward layers."""
    drop_path: Share = 0.0
    """Probability that a transformer block's branch is left out for a sample."""
    channels: tuple[Width, ...] = ()
    """Channels of the convolution stream's four stages after pruning; empty: by `base_width`."""
    hidden: tuple[Hidden, ...] = ()
    """Hidden widths after pruning, of each JLC block of encoder, then decoder; empty: by `expansions`."""
    transformer_hidden: tuple[Hidden, ...] = ()
    """Hidden widths after pruning, of each transformer block; empty: by `transformer_expansions`."""

    def __post_init__(self) -> None:
        settle(self)
        _check(self)

    @property
    def modalities(self) -> int:
        """M. A modality with several channels (early fusion) counts once."""
        return len(self.in_channels)

    @property
    def widths(self) -> PerStage:
        """C_k of the convolution stream."""
        if self.channels:
            return self.channels  # type: ignore[return-value]
        w = self.base_width
        return w, 2 * w, 4 * w, 8 * w

    @property
    def transformer_widths(self) -> PerStage:
        w = self.transformer_width
        return w, 2 * w, 4 * w, 8 * w

    def hidden_widths(self, part: str) -> Iterator[tuple[int, int, int]]:
        """(stage, block, hidden width) of the feed-forward layers of "encoder", "decoder" or "tokens", in order."""
        if part == "tokens":
            depths: tuple[int, ...] = self.transformer_depths if self.attention != "none" else ()
            widths, expansions, pruned = self.transformer_widths, self.transformer_expansions, self.transformer_hidden
        else:
            depths = self.depths if part == "encoder" else self.depths[:-1]
            widths, expansions = self.widths, self.expansions
            pruned = self.hidden[: sum(self.depths)] if part == "encoder" else self.hidden[sum(self.depths) :]
        blocks = [(stage, block) for stage, depth in enumerate(depths) for block in range(depth)]
        for number, (stage, block) in enumerate(blocks):
            fits = number < len(pruned)  # a wrong number of them is refused by `_check_pruned`
            yield stage, block, pruned[number] if fits else expansions[stage] * widths[stage]

    def hidden_width(self, part: str, stage: int, block: int) -> int:
        return next(hidden for s, b, hidden in self.hidden_widths(part) if (s, b) == (stage, block))

    @property
    def big_windows(self) -> tuple[Size, ...]:
        """Minimum big window of each stage, as set or as derived from the patch."""
        return self.windows or windows_for(self.patch, self.transformer_width)

    def feature(self, stage: int) -> Size:
        """Spatial size of the features of stage 0..3."""
        x, y, z = (side // STRIDES[stage] for side in self.patch)
        return x, y, z

    def pairs(self, stage: int) -> tuple[PairedWindow, ...]:
        """The paired windows of a stage: both double for as long as any axis of the big one still fits."""
        big, small, feature = self.big_windows[stage], self.small_windows[stage], self.feature(stage)
        found = []
        while any(b <= f for b, f in zip(big, feature, strict=True)):
            found.append(PairedWindow(big=big, small=small))
            big = tuple(b * self.window_ratio for b in big)  # type: ignore[assignment]
            small = tuple(s * self.window_ratio for s in small)  # type: ignore[assignment]
        return _ATTENTION_PAIRS[self.attention](tuple(found))

    def to_json(self) -> dict[str, Any]:
        """All settings; those of pruning only where something was pruned."""
        return {name: value for name, value in asdict(self).items() if name not in PRUNED or value}

    @classmethod
    def from_json(cls, value: Any) -> "NetworkConfig":
        return build(cls, value, "network settings")


PRUNED = ("channels", "hidden", "transformer_hidden")
Pairs = tuple[PairedWindow, ...]
# the ablations keep one pair: the finest is plain window attention, the coarsest attends over the whole
# feature after down-sampling it
_ATTENTION_PAIRS: dict[str, Callable[[Pairs], Pairs]] = {
    "paired": lambda pairs: pairs,
    "window": lambda pairs: pairs[:1],
    "downsampled": lambda pairs: pairs[-1:],
    "none": lambda pairs: (),
}


def _check(config: NetworkConfig) -> None:
    """Each line is one way in which settings can be at odds, and what to do about it."""
    if any(side % STRIDES[-1] for side in config.patch):
        up = tuple(-(-side // STRIDES[-1]) * STRIDES[-1] for side in config.patch)
        raise ShapeError(f"patch {config.patch} is not divisible by {STRIDES[-1]}; use {up}")
    if math.prod(config.patch) > MOST_VOXELS:
        raise ShapeError(f"patch {config.patch} has more than {MOST_VOXELS} voxels; use a smaller one")
    if not config.in_channels:
        raise ConfigError(f"in_channels {config.in_channels} must name at least one channel for each modality")
    if not config.kernel_sizes or any(size % 2 == 0 for size in config.kernel_sizes):
        raise ConfigError(f"kernel_sizes {config.kernel_sizes} must be odd, such as (1, 3, 5)")
    _check_pruned(config)
    for name in ("big_windows", "small_windows"):
        if len(getattr(config, name)) != STAGES:
            raise ConfigError(f"{name} {getattr(config, name)} must have {STAGES} entries, one per stage")
    for stage in range(STAGES):
        width, group = config.widths[stage], config.group_sizes[stage]
        if width % group:
            divisors = [d for d in range(1, width + 1) if width % d == 0]
            raise ConfigError(
                f"group size {group} does not divide the width {width} of stage {stage + 1}; use one of {divisors}"
            )
        _check_windows(config, stage)


def _check_pruned(config: NetworkConfig) -> None:
    blocks = sum(config.depths) + sum(config.depths[:-1])
    for name, expected, of in (
        ("channels", STAGES, "stage"),
        ("hidden", blocks, "JLC block of encoder and decoder"),
        (
            "transformer_hidden",
            0 if config.attention == "none" else sum(config.transformer_depths),
            "transformer block",
        ),
    ):
        found = getattr(config, name)
        if found and len(found) != expected:
            raise ConfigError(f"{name} {found} must have {expected} entries, one for each {of}")


def _check_windows(config: NetworkConfig, stage: int) -> None:
    window, feature, where = config.big_windows[stage], config.feature(stage), f"stage {stage + 1}"
    hint = f"use {windows_for(config.patch, config.transformer_width)[stage]}"
    if any(b % s for b, s in zip(window, config.small_windows[stage], strict=True)):
        raise ShapeError(f"small window {config.small_windows[stage]} does not divide window {window} of {where}")
    if config.attention != "none" and not config.pairs(stage):
        raise ShapeError(f"window {window} is larger than the feature {feature} of {where}; {hint}")
    for pair in config.pairs(stage):
        if any(f % b for f, b in zip(feature, pair.big, strict=True)):
            raise ShapeError(f"window {pair.big} does not tile the feature {feature} of {where}; {hint}")


PRESETS: dict[str, NetworkConfig] = {
    "b": NetworkConfig(),
    "s": NetworkConfig(kernel_sizes=(3,)),
    "l": NetworkConfig(depths=(2, 2, 2, 2), transformer_depths=(2, 2, 2, 2)),
    "b+": NetworkConfig(base_width=32, transformer_width=32),
    "c": NetworkConfig(in_channels=(4,), classes=4),
    "b-hecktor": NetworkConfig(patch=(128, 128, 64), classes=2),
}


def preset(name: str) -> NetworkConfig:
    """A configuration of the paper by name.

    >>> preset("b").widths
    (16, 32, 64, 128)
    """
    found = PRESETS.get(name.lower())
    if found is None:
        raise ConfigError(f"unknown preset {name!r}; choose from {', '.join(PRESETS)}")
    return found
