"""The weights of a network in the form that program.py takes, by numpy alone.

What graph.py does in torch for other runtimes is done here from the tensors of model.safetensors, so that a trained
folder computes on a machine without torch:
- the affine part of a layer norm is multiplied into the linear map behind it, and 1/√C into Q;
- the position bias of every pair of tokens is made once;
- biases in front of an instance norm do nothing and are dropped;
- groups narrower than 4 channels are merged, with zeros between them;
- a transposed convolution at the end becomes a convolution that only has its centre;
- with two classes the head gives the difference of their logits.

Every tensor's shape is what the configuration says, or nothing is made of it.

Legend: M modality, H head, L token of a window, S voxel of a window, C channel, K output, XYZ space.
"""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from veloxseg.errors import ModelError, some
from veloxseg.model.config import STAGES, STRIDES, NetworkConfig, PairedWindow
from veloxseg.runtimes.native.program import group_width, value_width
from veloxseg.types import Array, Floats

__all__ = ["native_weights", "read_weights"]

MOST_NUMBERS = 1 << 28  # of a constant that is made here (1 GB): far beyond any preset, and no lie can ask for more
TRAINING_ONLY = "deep_heads."  # deep supervision, kept with the weights as the authors do


def read_weights(path: Path) -> dict[str, Array]:
    """The tensors of a MODEL folder."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:  # KeyError: types that numpy lacks
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"{path} is damaged ({reason}); export the model again") from error


def native_weights(config: NetworkConfig, weights: Mapping[str, Array], *, difference: bool) -> dict[str, Floats]:
    """Names and tensors for `Program`, from the network's own; `difference`: two classes give one output."""
    source = Source(config, weights)
    made: dict[str, Floats] = {}
    for m, channels in enumerate(config.in_channels if config.attention != "none" else ()):
        source.copy(
            made, f"embeddings.{m}", f"encoder.embedding.convs.{m}", (config.transformer_width, channels, 4, 4, 4)
        )
    for k in range(STAGES):
        _encoder_stage(source, made, k)
    for k in range(STAGES - 1):
        wide, narrow = config.widths[k + 1], config.widths[k]
        made[f"decoder.{k}.weight"] = source.take(f"decoder.ups.{k}.0.weight", wide, narrow, 2, 2, 2)
        source.take(f"decoder.ups.{k}.0.bias", narrow)
        _blocks(source, made, f"decoder.{k}.blocks", f"decoder.blocks.{k}", "decoder", k)
    head = _transposed_head(source) if config.head == "transposed" else _head(source)
    outputs = len(head[1])
    for name, parameter in zip(("head_weight", "head_bias"), head, strict=True):
        made[name] = parameter[outputs // 2 :] - parameter[: outputs // 2] if difference else parameter
    source.refuse_unknown()
    return {name: np.ascontiguousarray(tensor, np.float32) for name, tensor in made.items()}


def _head(source: "Source") -> tuple[Floats, Floats]:
    outputs = source.config.classes * STRIDES[0] ** 3
    weight = source.take("head.0.weight", outputs, source.config.widths[0], 3, 3, 3)
    return weight, source.take("head.0.bias", outputs)


def _transposed_head(source: "Source") -> tuple[Floats, Floats]:
    """A transposed convolution, kernel 4 and stride 4, is the head with a kernel of zeros around its centre."""
    config, stride = source.config, STRIDES[0]
    weight_CKXYZ = source.take("head.weight", config.widths[0], config.classes, stride, stride, stride)
    centre_KC = weight_CKXYZ.reshape(config.widths[0], -1).T
    weight = np.pad(centre_KC[..., None, None, None], ((0, 0), (0, 0), *[(1, 1)] * 3))
    return weight, np.repeat(source.take("head.bias", config.classes), stride**3)


class Source:
    """The network's own tensors, each taken with the shape that it must have."""

    def __init__(self, config: NetworkConfig, weights: Mapping[str, Array]) -> None:
        self.config, self.weights = config, weights
        self.taken: set[str] = set()

    def take(self, name: str, *shape: int) -> Floats:
        found = self.weights.get(name)
        if found is None or found.shape != shape or found.dtype.kind != "f":
            what = "lack it" if found is None else f"have {found.dtype} {found.shape}"
            raise ModelError(f"{name} should be float32 {shape}, the weights {what}; were files mixed up?")
        self.taken.add(name)
        return found.astype(np.float32, copy=False)

    def copy(self, made: dict[str, Floats], to: str, name: str, shape: tuple[int, ...]) -> None:
        """Weight and bias as they are."""
        made[f"{to}.weight"] = self.take(f"{name}.weight", *shape)
        made[f"{to}.bias"] = self.take(f"{name}.bias", shape[0])

    def refuse_unknown(self) -> None:
        unknown = sorted(n for n in self.weights if n not in self.taken and not n.startswith(TRAINING_ONLY))
        if unknown:
            raise ModelError(f"the weights do not fit model.json in {some(unknown)}; were files mixed up?")


def _encoder_stage(source: Source, made: dict[str, Floats], k: int) -> None:
    """One stage of both streams."""
    config, name, to = source.config, f"encoder.stages.{k}", f"encoder.{k}"
    width = config.widths[k]
    inputs, side = (sum(config.in_channels), 7) if k == 0 else (config.widths[k - 1], 3)
    made[f"{to}.down.weight"] = source.take(f"{name}.down.0.weight", width, inputs, side, side, side)
    source.take(f"{name}.down.0.bias", width)
    if config.attention != "none":
        _tokens(source, made, k)
    _blocks(source, made, f"{to}.blocks", f"{name}.blocks", "encoder", k)


def _tokens(source: Source, made: dict[str, Floats], k: int) -> None:
    """The transformer stream of a stage, and how it joins the convolutions."""
    config, name, to = source.config, f"encoder.stages.{k}", f"encoder.{k}"
    width, tokens = config.widths[k], config.transformer_widths[k]
    for block in range(config.transformer_depths[k]):
        _token_block(source, made, f"{to}.tokens.{block}", f"{name}.transformer.blocks.{block}", k, block)
    join = source.take(f"{name}.join.0.weight", width, config.modalities * tokens, 1, 1, 1)
    made[f"{to}.join"] = join.reshape(width, -1)
    source.take(f"{name}.join.0.bias", width)
    if k + 1 < STAGES:
        merge = f"{name}.transformer.merge.reduce"
        _linears(source, made, f"{to}.merges", merge, 8 * tokens, 2 * tokens, norm=True, bias=False)


def _token_block(source: Source, made: dict[str, Floats], to: str, name: str, k: int, block: int) -> None:
    """A transformer block: attention over paired windows, then two linear maps."""
    config = source.config
    width, heads, size = config.transformer_widths[k], config.heads[k], config.head_sizes[k]
    hidden, pairs, values = config.hidden_width("tokens", k, block), config.pairs(k), value_width(config, k)
    scale = np.ones(heads * (2 * size + values), np.float32)  # of Q, K and V of one pair
    scale[: heads * size] = size**-0.5
    scale = np.tile(scale, len(pairs))
    project, mixer = f"{name}.attention.qkv", f"{name}.attention.mixer"
    shared = config.attention != "paired"
    _linears(source, made, f"{to}.attention.project", project, width, len(scale), norm=True, scale=scale, shared=shared)
    _linears(source, made, f"{to}.attention.mixers", mixer, len(pairs) * heads * values, width, shared=shared)
    table = source.take(f"{name}.attention.bias.table", math.prod(2 * side - 1 for side in pairs[0].tokens), heads)
    made[f"{to}.attention.bias_1HLL"] = position_bias(table, pairs[0], config.modalities)
    _linears(source, made, f"{to}.expand", f"{name}.expand", width, hidden, norm=True)
    _linears(source, made, f"{to}.reduce", f"{name}.reduce", hidden, width)


def _linears(
    source: Source, made: dict[str, Floats], to: str, name: str, inputs: int, outputs: int, *, norm: bool = False,
    bias: bool = True, scale: Floats | None = None, shared: bool = False,
) -> None:  # fmt: skip
    """One linear map per modality, outputs times `scale`: W (w ⊙ x̂ + b) + c = (W ⊙ w) x̂ + (W b + c).

    W and c may be shared by all modalities.
    """
    count = source.config.modalities
    sets = 1 if shared else count
    weight_MKC = np.repeat(source.take(f"{name}.weight", sets, outputs, inputs), count // sets, axis=0)
    bias_MK = np.zeros((count, outputs), np.float32)
    if bias:
        bias_MK = np.repeat(source.take(f"{name}.bias", sets, outputs), count // sets, axis=0)
    if norm:
        factor_MC = source.take(f"{name}.norm_weight", count, inputs)
        shift_MC = source.take(f"{name}.norm_bias", count, inputs)
        # summed in double precision, so that the result does not depend on the machine's BLAS
        shift_MK = np.einsum("mkc,mc->mk", weight_MKC, shift_MC, dtype=np.float64)
        bias_MK = bias_MK + shift_MK.astype(np.float32)
        weight_MKC = weight_MKC * factor_MC[:, None]
    if scale is not None:
        weight_MKC, bias_MK = weight_MKC * scale[:, None], bias_MK * scale
    for m in range(count):
        made[f"{to}.{m}.weight"], made[f"{to}.{m}.bias"] = weight_MKC[m], bias_MK[m]


def _blocks(source: Source, made: dict[str, Floats], to: str, name: str, part: str, k: int) -> None:
    """The JLC blocks of a stage of "encoder" or "decoder"."""
    config = source.config
    width, group = config.widths[k], config.group_sizes[k]
    for block, (i, size) in itertools.product(range(config.depths[k]), enumerate(config.kernel_sizes)):
        branch = source.take(f"{name}.{block}.convs.{i}.weight", width, group, size, size, size)
        made[f"{to}.{block}.branches.{i}.weight"] = merge_groups(
            branch, width // group, group_width(config, k) // group
        )
        bias = source.take(f"{name}.{block}.convs.{i}.bias", width)
        if len(config.kernel_sizes) == 1:  # several branches have an instance norm behind them each
            made[f"{to}.{block}.branches.{i}.bias"] = bias
    for block in range(config.depths[k]):
        hidden = config.hidden_width(part, k, block)
        source.copy(made, f"{to}.{block}.expand", f"{name}.{block}.expand", (hidden, width, 1, 1, 1))
        source.copy(made, f"{to}.{block}.reduce", f"{name}.{block}.reduce", (width, hidden, 1, 1, 1))


def merge_groups(weight_KCXYZ: Floats, groups: int, factor: int) -> Floats:
    """The same convolution with `factor` groups in one, zeros between what does not belong together."""
    outputs, inputs = weight_KCXYZ.shape[:2]
    if factor == 1:
        return weight_KCXYZ
    merged = np.zeros((outputs, inputs * factor, *weight_KCXYZ.shape[2:]), np.float32)
    for output in range(outputs):
        place = output * groups // outputs % factor * inputs
        merged[output, place : place + inputs] = weight_KCXYZ[output]
    return merged


def position_bias(table: Floats, pair: PairedWindow, modalities: int) -> Floats:
    """(1, H, M·L, M·L): the table's row for the offset between two tokens, the same for every pair of modalities."""
    tokens = pair.tokens
    count = math.prod(tokens)
    _check_size(table.shape[1] * (modalities * count) ** 2)
    position_L3 = np.indices(tokens).reshape(3, count).T
    offset_LL3 = position_L3[:, None] - position_L3[None] + np.array(tokens) - 1
    strides = np.array([(2 * tokens[1] - 1) * (2 * tokens[2] - 1), 2 * tokens[2] - 1, 1])
    bias_HLL = np.moveaxis(table[offset_LL3 @ strides], -1, 0)
    return np.tile(bias_HLL, (1, modalities, modalities))[None]


def _check_size(numbers: int) -> None:
    if numbers > MOST_NUMBERS:
        raise ModelError(
            f"the attention windows of model.json need a table of {numbers} numbers, above {MOST_NUMBERS}; "
            "use --runtime openvino"
        )
