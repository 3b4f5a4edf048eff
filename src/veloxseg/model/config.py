"""The configuration of the network: one frozen dataclass, validated once, and the paper's presets.

Stage k = 1..4 works at 1/4, 1/8, 1/16, 1/32 of the patch with width `base_width · 2^(k-1)`.
A variant is `dataclasses.replace(preset("b"), kernel_sizes=(3,))`.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

from veloxseg.errors import ConfigError, ShapeError

__all__ = ["ATTENTIONS", "HEADS", "PRESETS", "NetworkConfig", "PairedWindow", "preset", "windows_for"]

Size = tuple[int, int, int]
PerStage = tuple[int, int, int, int]

STAGES = 4
STRIDES = (4, 8, 16, 32)  # of each stage against the patch
ATTENTIONS = ("paired", "window", "downsampled", "none")
HEADS = ("pixel_shuffle", "transposed")


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

    in_channels: tuple[int, ...] = (1, 1)  # channels of each modality; (2,) is early fusion of two
    classes: int = 2
    patch: Size = (96, 96, 96)
    base_width: int = 16  # convolution stream and decoders
    transformer_width: int = 16
    # convolution stream and decoders
    depths: PerStage = (1, 1, 1, 1)
    kernel_sizes: tuple[int, ...] = (1, 3, 5)
    group_sizes: PerStage = (4, 8, 8, 16)  # channels per group, by the JL bound: see jl.py
    expansions: PerStage = (3, 3, 2, 2)
    # transformer stream
    attention: str = "paired"  # or "window", "downsampled" (ablations), "none" (convolution stream only)
    transformer_depths: PerStage = (1, 1, 1, 1)
    transformer_expansions: PerStage = (3, 3, 2, 2)
    windows: tuple[Size, ...] = ()  # minimum big window per stage; empty: derived from the patch
    small_windows: tuple[Size, ...] = ((1, 1, 1),) * STAGES
    window_ratio: int = 2
    heads: PerStage = (1, 2, 2, 4)
    head_sizes: PerStage = (4, 8, 8, 16)  # of queries and keys, by the JL bound too
    # output and training
    head: str = "pixel_shuffle"  # or "transposed", the ablation's transposed convolution
    attention_dropout: float = 0.1
    projection_dropout: float = 0.1
    conv_dropout: float = 0.1
    drop_path: float = 0.0

    def __post_init__(self) -> None:
        for item in fields(self):  # JSON has lists where we have tuples
            object.__setattr__(self, item.name, _as_tuple(getattr(self, item.name)))
        _check_patch(self.patch)
        _check(self)

    @property
    def modalities(self) -> int:
        """M. A modality with several channels (early fusion) counts once."""
        return len(self.in_channels)

    @property
    def widths(self) -> PerStage:
        """C_k of the convolution stream."""
        w = self.base_width
        return w, 2 * w, 4 * w, 8 * w

    @property
    def transformer_widths(self) -> PerStage:
        w = self.transformer_width
        return w, 2 * w, 4 * w, 8 * w

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
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "NetworkConfig":
        known = {item.name for item in fields(cls)}
        if unknown := value.keys() - known:
            raise ConfigError(
                f"unknown setting {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}"
            )
        return cls(**value)


Pairs = tuple[PairedWindow, ...]
# the ablations keep one pair: the finest is plain window attention, the coarsest attends over the whole
# feature after down-sampling it
_ATTENTION_PAIRS: dict[str, Callable[[Pairs], Pairs]] = {
    "paired": lambda pairs: pairs,
    "window": lambda pairs: pairs[:1],
    "downsampled": lambda pairs: pairs[-1:],
    "none": lambda pairs: (),
}


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(item) for item in value) if isinstance(value, list | tuple) else value


def _check_patch(patch: Size) -> None:
    if len(patch) != 3 or any(not isinstance(side, int) or side <= 0 for side in patch):
        raise ShapeError(f"patch {patch} must be three positive integers, such as (96, 96, 96)")
    if any(side % STRIDES[-1] for side in patch):
        up = tuple(-(-side // STRIDES[-1]) * STRIDES[-1] for side in patch)
        raise ShapeError(f"patch {patch} is not divisible by {STRIDES[-1]}; use {up}")


def _check(config: NetworkConfig) -> None:
    """Each line is one way in which settings can be at odds, and what to do about it."""
    if not config.in_channels or any(channels < 1 for channels in config.in_channels):
        raise ConfigError(
            f"in_channels {config.in_channels} must name at least one channel for each modality"
        )
    if config.classes < 1:
        raise ConfigError(f"classes is {config.classes}; background counts, so two for one structure")
    if config.attention not in ATTENTIONS:
        raise ConfigError(f"unknown attention {config.attention!r}; choose from {', '.join(ATTENTIONS)}")
    if config.head not in HEADS:
        raise ConfigError(f"unknown head {config.head!r}; choose from {', '.join(HEADS)}")
    if not config.kernel_sizes or any(size < 1 or size % 2 == 0 for size in config.kernel_sizes):
        raise ConfigError(f"kernel_sizes {config.kernel_sizes} must be odd, such as (1, 3, 5)")
    for name in ("attention_dropout", "projection_dropout", "conv_dropout", "drop_path"):
        if not 0 <= getattr(config, name) < 1:
            raise ConfigError(f"{name} is {getattr(config, name)}; it must lie in [0, 1)")
    per_stage = (
        "depths",
        "group_sizes",
        "expansions",
        "transformer_depths",
        "transformer_expansions",
        "heads",
        "head_sizes",
    )
    for name in (*per_stage, "big_windows", "small_windows"):
        value = getattr(config, name)
        if len(value) != STAGES:
            raise ConfigError(f"{name} {value} must have {STAGES} entries, one per stage")
        if name in per_stage and any(not isinstance(entry, int) or entry < 1 for entry in value):
            raise ConfigError(f"{name} {value} must be positive integers")
    for stage in range(STAGES):
        width, group = config.widths[stage], config.group_sizes[stage]
        if width % group:
            divisors = [d for d in range(1, width + 1) if width % d == 0]
            raise ConfigError(
                f"group size {group} does not divide the width {width} of stage {stage + 1}; use one of {divisors}"
            )
        _check_windows(config, stage)


def _check_windows(config: NetworkConfig, stage: int) -> None:
    window, feature, where = config.big_windows[stage], config.feature(stage), f"stage {stage + 1}"
    if len(window) != 3 or any(side < 1 for side in window):
        raise ShapeError(f"window {window} of {where} must be three positive integers")
    hint = f"use {windows_for(config.patch, config.transformer_width)[stage]}"
    if any(b % s for b, s in zip(window, config.small_windows[stage], strict=True)):
        raise ShapeError(
            f"small window {config.small_windows[stage]} does not divide window {window} of {where}"
        )
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
