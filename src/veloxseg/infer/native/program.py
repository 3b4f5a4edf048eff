"""The network as a list of kernel calls on fixed buffers, made once and replayed for every window.

The same computation as graph.py, from the same prepared weights, written for kernels.c: features are channels-last,
and those that a convolution reads sit inside a border of zeros. Every weight's shape is checked before an address
of it is given away.

Legend: M modality, N voxel, C channel, K output, XYZ space.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import byref
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ModelError
from veloxseg.infer.native.library import Pair, Product, kernels
from veloxseg.model.config import STAGES, STRIDES, NetworkConfig, PairedWindow, Size

__all__ = ["Program", "is_supported"]

Floats = npt.NDArray[np.float32]
LANES, PANEL = 8, 16  # numbers of a vector; outputs that are computed together
HEAD_CHANNELS = 128  # most that kernels.c holds
FLOAT = 4  # bytes


def is_supported(config: NetworkConfig) -> bool:
    """Whether kernels.c has what this network needs: all presets, not the paper's ablations."""
    return (
        config.attention == "paired"
        and config.head == "pixel_shuffle"
        and config.base_width % LANES == 0
        and config.transformer_width % LANES == 0
        and all(size % 4 == 0 and _value_width(config, k) <= HEAD_CHANNELS for k, size in enumerate(config.head_sizes))
        and all(len(config.pairs(k)) * config.heads[k] * config.head_sizes[k] % LANES == 0 for k in range(STAGES))
    )  # fmt: skip


def _value_width(config: NetworkConfig, stage: int) -> int:
    """Channels of V in one head of one pair: as many times those of Q as it takes to reach the stage's width."""
    keys = len(config.pairs(stage)) * config.heads[stage] * config.head_sizes[stage]
    return config.head_sizes[stage] * -(-config.transformer_widths[stage] // keys)


class Grid(NamedTuple):
    """Voxels in memory: where the first is, and how many floats further the next is along x, y and z."""

    address: int
    steps: Size


@dataclass(frozen=True)
class Feature:
    """(X, Y, Z, C) inside a border of zeros."""

    array: Floats
    border: int = 0

    @property
    def size(self) -> Size:
        x, y, z = (side - 2 * self.border for side in self.array.shape[:3])
        return x, y, z

    @property
    def channels(self) -> int:
        return int(self.array.shape[3])

    @property
    def lines(self) -> tuple[int, int]:
        """Steps from one line of voxels to the next, along x and y."""
        return self.array.strides[0] // FLOAT, self.array.strides[1] // FLOAT

    def grid(self, before: int = 0, stride: int = 1) -> Grid:
        """From the voxel that lies `before` the first along each axis, every `stride`-th voxel."""
        first = self.border - before
        sx, sy = self.lines
        address = self.array[first:, first:, first:].ctypes.data
        return Grid(address, (stride * sx, stride * sy, stride * self.channels))


def rows(x_NC: Floats) -> Grid:
    return Grid(x_NC.ctypes.data, (0, 0, x_NC.shape[1]))


class Program:
    """(1, C, X, Y, Z) → (1, K, X, Y, Z), as `InferenceForm` of graph.py. Not for two threads at the same time."""

    def __init__(self, config: NetworkConfig, weights: Mapping[str, Floats]) -> None:
        found = kernels()
        assert found is not None, "runtime.py asks for a program only where the kernels are"
        self.library, self.config, self.weights = found, config, weights
        self.border = max(1, *(size // 2 for size in config.kernel_sizes))
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._kept: list[Any] = []  # what the calls point to
        self._taken: list[Floats] = []
        self._free: dict[int, list[Floats]] = {}  # by size
        reach = STRIDES[0] - 1
        x, y, z = config.patch
        self.image = self._array(sum(config.in_channels), x + reach, y + reach, z + reach + 1)
        self._build()
        self.weights = {}

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        """The result is the program's own buffer, which the next call overwrites."""
        shape = (1, sum(self.config.in_channels), *self.config.patch)
        assert window_1CXYZ.shape == shape, f"a window is {shape}"
        window = np.ascontiguousarray(window_1CXYZ, np.float32)
        sc, sx, sy = (step // FLOAT for step in self.image.strides[:3])
        self.library.place(window.ctypes.data, self._inner(0), sc, sx, sy, *shape[1:])
        for function, arguments in self.calls:
            function(*arguments)
        return self.output

    # ---- the network ----------------------------------------------------------------------------------------

    def _build(self) -> None:
        config = self.config
        tokens, fused = self._embed(), None
        encoded: list[Feature] = []
        for k in range(STAGES):
            name, size = f"encoder.{k}", config.feature(k)
            for block in range(config.transformer_depths[k]):
                tokens = self._token_block(f"{name}.tokens.{block}", k, tokens)
            total = self._feature(size, config.widths[k])
            with self._scratch():
                self._normalise(self._stem() if fused is None else self._down(name, fused), total)
            with self._scratch():
                self._normalise(self._join(f"{name}.join", tokens, size, config.widths[k]), total, add=total)
            fused = self._jlc_blocks(f"{name}.blocks", k, total)
            encoded.append(fused)
            if k + 1 < STAGES:
                tokens = self._merge(f"{name}.merges", tokens, config.feature(k + 1))
        decoded = encoded[-1]
        for k in reversed(range(STAGES - 1)):
            total = self._feature(config.feature(k), config.widths[k])
            with self._scratch():
                self._normalise(self._up(f"decoder.{k}.weight", decoded), total, add=encoded[k])
            decoded = self._jlc_blocks(f"decoder.{k}.blocks", k, total)
        self._head(decoded)

    def _jlc_blocks(self, name: str, stage: int, x: Feature) -> Feature:
        for block in range(self.config.depths[stage]):
            x = self._jlc(f"{name}.{block}", stage, x)
        return x

    def _jlc(self, name: str, stage: int, x: Feature) -> Feature:
        y, before = self._feature(x.size, x.channels), x
        several = len(self.config.kernel_sizes) > 1
        for i, size in enumerate(self.config.kernel_sizes):
            with self._scratch():
                branch = self._group_convolution(
                    f"{name}.branches.{i}", x, size, self.config.group_sizes[stage]
                )
                self._normalise(branch, y, add=before, activate=several, identity=not several)
            before = y
        wide = self.config.expansions[stage] * x.channels
        with self._scratch():
            normal = self._normalise(y, self._feature(x.size, x.channels, border=False)).array
            hidden = self._array(*x.size, wide)
            flat = normal.reshape(-1, x.channels), hidden.reshape(-1, wide)
            self._linear(f"{name}.expand", *flat, activate=True, convolution=True)
            weight = self._weight(f"{name}.reduce.weight", x.channels, wide, 1, 1, 1)
            bias = self._weight(f"{name}.reduce.bias", x.channels)
            source = Feature(hidden).grid()
            self._multiply(
                weight.reshape(x.channels, wide), source, y.grid(), x.size, bias=bias, residual=y.grid()
            )
        return y

    def _token_block(self, name: str, stage: int, tokens: Floats) -> Floats:
        """The block's input is added twice, as in the paper's code."""
        y = self._array(*tokens.shape)
        with self._scratch():
            mixed = self._attention(f"{name}.attention", stage, tokens)
            for m, one in enumerate(tokens):
                self._linear(f"{name}.attention.mixers.{m}", mixed[m], y[m], residual=one, factor=2.0)
        for m, one in enumerate(y):
            with self._scratch():
                hidden = self._array(len(one), self.config.transformer_expansions[stage] * one.shape[1])
                self._linear(f"{name}.expand.{m}", self._layer_norm(one), hidden, activate=True)
                self._linear(f"{name}.reduce.{m}", hidden, one, residual=one)
        return y

    def _attention(self, name: str, stage: int, tokens: Floats) -> Floats:
        """(M, N, C) → (M, N, channels of V): the windows of all scales in one attention."""
        config, feature, pairs = self.config, self.config.feature(stage), self.config.pairs(stage)
        heads, size, values = config.heads[stage], config.head_sizes[stage], _value_width(config, stage)
        width = heads * (2 * size + values)  # q, k and v of one pair
        own = math.prod(pairs[0].tokens)
        count = config.modalities * own
        windows = [math.prod(f // b for f, b in zip(feature, pair.big, strict=True)) for pair in pairs]
        first = [sum(windows[:i]) for i in range(len(pairs))]
        shapes = [self._pair(pair, feature) for pair in pairs]
        out = self._array(*tokens.shape[:2], len(pairs) * heads * values)

        projected = self._array(*tokens.shape[:2], len(pairs) * width)
        for m, one in enumerate(tokens):
            with self._scratch():
                self._linear(f"{name}.project.{m}", self._layer_norm(one), projected[m])
        gathered = self._array(sum(windows), count, width)
        for i, shape in enumerate(shapes):
            self._call("gather", shape, projected, len(pairs) * width, i * width, width, gathered[first[i] :])

        padded = -(-count // LANES) * LANES
        table = self._weight(f"{name}.bias_1HLL", 1, heads, count, count)[0].swapaxes(
            1, 2
        )  # head, key, query
        bias = aligned(np.pad(table, ((0, 0), (0, 0), (0, padded - count))))
        attended, scores = self._array(sum(windows), count, heads * values), self._array(count, LANES)
        self._call(
            "attention", gathered, sum(windows), count, heads, size, values, bias, padded, scores, attended
        )  # fmt: skip

        panel = self._array(own, -(-heads * values // PANEL) * PANEL)
        for i, (pair, shape) in enumerate(zip(pairs, shapes, strict=True)):
            spread = None
            if max(pair.small) > 1:
                spread = aligned(self._weight(f"{name}.upsampling_{i}", own, math.prod(pair.big)).T)
            place = heads * values
            self._call(
                "scatter", shape, attended[first[i] :], own, place, spread, panel, out, out.shape[2], i * place
            )  # fmt: skip
        return out

    def _pair(self, pair: PairedWindow, feature: Size) -> Any:
        self._kept.append(shape := Pair(self.config.modalities, *feature, *pair.big, *pair.small))
        return byref(shape)

    # ---- layers ---------------------------------------------------------------------------------------------

    def _inner(self, channel: int) -> int:
        """Where the first voxel of a window's channel lies in the bordered image."""
        reach = STRIDES[0] - 1
        return int(self.image[channel:, reach:, reach:, reach:].ctypes.data)

    def _embed(self) -> Floats:
        """The tokens (M, N, C) of every modality: kernel 4, stride 4."""
        config, first = self.config, 0
        tokens = self._array(config.modalities, math.prod(config.feature(0)), config.transformer_width)
        for m, channels in enumerate(config.in_channels):
            weight = self._weight(f"embeddings.{m}.weight", config.transformer_width, channels, 4, 4, 4)
            bias = self._weight(f"embeddings.{m}.bias", config.transformer_width)
            self._patches(
                weight, self._inner(first), Feature(tokens[m].reshape(*config.feature(0), -1)), bias
            )
            first += channels
        return tokens

    def _stem(self) -> Feature:
        """Kernel 7, stride 4."""
        out = self._feature(self.config.feature(0), self.config.base_width, border=False)
        weight = self._weight("encoder.0.down.weight", out.channels, len(self.image), 7, 7, 7)
        self._patches(weight, self.image.ctypes.data, out)
        return out

    def _patches(self, weight_KCXYZ: Floats, x: int, out: Feature, bias: Floats | None = None) -> None:
        """A convolution with stride 4 of the image, whose channels are volumes of their own."""
        sc, sx, sy = (step // FLOAT for step in self.image.strides[:3])
        outputs, channels, kx, ky, _ = weight_KCXYZ.shape
        offsets = [c * sc + i * sx + j * sy for c in range(channels) for i in range(kx) for j in range(ky)]
        stride = STRIDES[0]
        source = Grid(x, (stride * sx, stride * sy, stride))
        self._multiply(
            weight_KCXYZ.reshape(outputs, -1), source, out.grid(), out.size, offsets=offsets, bias=bias
        )

    def _down(self, name: str, x: Feature) -> Feature:
        """Kernel 3, stride 2."""
        nx, ny, nz = (side // 2 for side in x.size)
        out = self._feature((nx, ny, nz), 2 * x.channels, border=False)
        weight = self._weight(f"{name}.down.weight", out.channels, x.channels, 3, 3, 3)
        self._multiply(along_z(weight), x.grid(1, stride=2), out.grid(), out.size, offsets=self._lines(x, 3))
        return out

    def _head(self, x: Feature) -> None:
        """Kernel 3, and 4 x 4 x 4 voxels for each; two classes may come as one, their difference."""
        cube = STRIDES[0] ** 3
        outputs = len(self.weights.get("head_bias", ()))
        if outputs not in (cube, self.config.classes * cube):
            raise ModelError(f"the native weights have {outputs} outputs; export the model again")
        weight = self._weight("head_weight", outputs, x.channels, 3, 3, 3)
        bias = self._weight("head_bias", outputs)
        self.output = self._array(1, outputs // cube, *self.config.patch)
        line = self._array(x.size[2], outputs)
        out = Grid(self.output.ctypes.data, (0, 0, outputs))
        self._multiply(
            along_z(weight), x.grid(1), out, x.size, offsets=self._lines(x, 3), bias=bias, head_line=line
        )  # fmt: skip

    def _lines(self, x: Feature, size: int) -> list[int]:
        """Where the lines of a kernel begin: along z its voxels lie side by side."""
        sx, sy = x.lines
        return [i * sx + j * sy for i in range(size) for j in range(size)]

    def _up(self, name: str, x: Feature) -> Feature:
        """Transposed convolution, kernel 2, stride 2: 8 voxels for each, then apart."""
        outputs = x.channels // 2
        weight_CKXYZ = self._weight(name, x.channels, outputs, 2, 2, 2)
        cells = self._feature(x.size, 8 * outputs, border=False)
        matrix = weight_CKXYZ.transpose(2, 3, 4, 1, 0).reshape(8 * outputs, x.channels)
        self._multiply(matrix, x.grid(), cells.grid(), x.size)
        nx, ny, nz = x.size
        out = self._feature((2 * nx, 2 * ny, 2 * nz), outputs, border=False)
        self._call("cells", out.array, *out.lines, cells.array, *x.size, outputs, 1)
        return out

    def _merge(self, name: str, tokens: Floats, half: Size) -> Floats:
        """The 8 voxels of each cell side by side, for the next stage."""
        channels = tokens.shape[2]
        result = self._array(len(tokens), math.prod(half), 2 * channels)
        for m, one in enumerate(tokens):
            with self._scratch():
                cells = self._array(math.prod(half), 8 * channels)
                lines = 4 * half[1] * half[2] * channels, 2 * half[2] * channels
                self._call("cells", one, *lines, cells, *half, channels, 0)
                self._linear(f"{name}.{m}", self._layer_norm(cells), result[m])
        return result

    def _join(self, name: str, tokens: Floats, feature: Size, width: int) -> Feature:
        out = self._feature(feature, width, border=False)
        flat = rows(out.array.reshape(-1, width))
        weight = self._weight(name, width, len(tokens) * tokens.shape[2])
        for m, part in enumerate(np.split(weight, len(tokens), axis=1)):
            self._multiply(part, rows(tokens[m]), flat, (1, 1, tokens.shape[1]), residual=flat if m else None)
        return out

    def _group_convolution(self, name: str, x: Feature, size: int, width: int) -> Feature:
        weight = self._weight(f"{name}.weight", x.channels, width, size, size, size)
        bias = self._weight(f"{name}.bias", x.channels) if f"{name}.bias" in self.weights else None
        out = self._feature(x.size, x.channels, border=False)
        source = x.grid(size // 2)
        if width == 4 and size in (1, 3, 5):
            #   (pair of groups, half, output), c, kx, ky, kz  →  pair, kx, ky, kz, c, (half, output)
            packed = weight.reshape(-1, LANES, 4, size, size, size).transpose(0, 3, 4, 5, 2, 1)
            arguments = (
                source.address,
                *x.lines,
                aligned(packed),
                bias,
                out.array,
                *x.size,
                x.channels,
                size,
            )
            self._call("group4", *arguments)
            return out
        if width < LANES:
            weight, width = merge_groups(weight, LANES // width), LANES
        offsets = [line + t * x.channels for line in self._lines(x, size) for t in range(size)]
        for first in range(0, x.channels, width):
            own = slice(first, first + width)
            self._multiply(
                along_z(weight[own]),
                Grid(source.address + FLOAT * first, source.steps),
                Grid(out.grid().address + FLOAT * first, out.grid().steps),
                x.size,
                offsets=offsets,
                bias=None if bias is None else bias[own],
            )
        return out

    def _normalise(
        self, x: Feature, out: Feature, *, add: Feature | None = None, activate: bool = False, identity: bool = False
    ) -> Feature:  # fmt: skip
        """out = add + act(IN(x)); with `identity`, out = add + x."""
        mean, scale = (aligned(np.full(x.channels, value, np.float32)) for value in (0, 1))
        if not identity:
            self._call("statistics", x.grid().address, *x.lines, *x.size, x.channels, mean, scale)
        assert add is None or add.lines == out.lines
        more = None if add is None else add.grid().address
        inputs = x.grid().address, *x.lines, mean, scale, int(activate), more
        self._call("normalise", *inputs, out.grid().address, *out.lines, *x.size, x.channels)
        return out

    def _layer_norm(self, x_NC: Floats) -> Floats:
        out = self._array(*x_NC.shape)
        self._call("layer_norm", x_NC, out, *x_NC.shape)
        return out

    def _linear(
        self, name: str, x_NC: Floats, out_NK: Floats, *, residual: Floats | None = None, factor: float = 1.0,
        activate: bool = False, convolution: bool = False,
    ) -> None:  # fmt: skip
        """out = act(W x + b) + factor residual; a `convolution` of size 1 has three axes more."""
        outputs, channels = out_NK.shape[1], x_NC.shape[1]
        weight = self._weight(f"{name}.weight", outputs, channels, *((1, 1, 1) if convolution else ()))
        self._multiply(
            weight.reshape(outputs, channels),
            rows(x_NC),
            rows(out_NK),
            (1, 1, len(x_NC)),
            bias=self._weight(f"{name}.bias", outputs),
            residual=None if residual is None else rows(residual),
            factor=factor,
            activate=activate,
        )

    def _multiply(
        self, weight_KC: Floats, x: Grid, out: Grid, size: Size, *, offsets: Sequence[int] = (0,),
        bias: Floats | None = None, residual: Grid | None = None, factor: float = 1.0, activate: bool = False,
        head_line: Floats | None = None,
    ) -> None:  # fmt: skip
        """See `product` of kernels.c; with `head_line` its `head`."""
        outputs, inputs = weight_KC.shape
        packed, places = pack(weight_KC), np.array(offsets, np.int64)
        added = None if bias is None else aligned(np.pad(bias, (0, -len(bias) % PANEL)))
        job = Product(
            x=x.address,
            weight=packed.ctypes.data,
            bias=None if added is None else added.ctypes.data,
            residual=None if residual is None else residual.address,
            out=out.address,
            offsets=places.ctypes.data,
            segments=len(places),
            run=inputs // len(places),
            outputs=outputs,
            **dict(zip(("nx", "ny", "nz"), size, strict=True)),
            **dict(zip(("sx", "sy", "sz"), x.steps, strict=True)),
            **dict(zip(("ox", "oy", "oz"), out.steps, strict=True)),
            factor=factor,
            activate=int(activate),
        )
        self._kept += [packed, added, places, job]
        self._call(*(("product", byref(job)) if head_line is None else ("head", byref(job), head_line)))

    # ---- weights, buffers and calls -------------------------------------------------------------------------

    def _weight(self, name: str, *shape: int) -> Floats:
        """A tensor of the file. Its shape is what the configuration says, or nothing is computed."""
        found = self.weights.get(name)
        if found is None or found.shape != shape or found.dtype != np.float32:
            what = "lack it" if found is None else f"have {found.dtype} {found.shape}"
            raise ModelError(
                f"{name} should be float32 {shape}, the native weights {what}; export the model again"
            )
        return found

    def _feature(self, size: Size, channels: int, *, border: bool = True) -> Feature:
        """With the border that convolutions read, or without."""
        if not border:
            return Feature(self._array(*size, channels))
        x, y, z = (side + 2 * self.border for side in size)
        self._kept.append(array := aligned(np.zeros((x, y, z, channels), np.float32)))
        return Feature(array, self.border)

    def _array(self, *shape: int) -> Floats:
        """A new buffer, or one of this size that is free again."""
        free = self._free.get(math.prod(shape))
        array = free.pop().reshape(shape) if free else aligned(np.zeros(shape, np.float32))
        self._taken.append(array)
        self._kept.append(array)
        return array

    @contextmanager
    def _scratch(self) -> Iterator[None]:
        """What is taken inside serves again afterwards: fewer bytes stay warmer in the caches."""
        before = len(self._taken)
        yield
        for array in self._taken[before:]:
            self._free.setdefault(array.size, []).append(array)
        del self._taken[before:]

    def _call(self, name: str, *arguments: Any) -> None:
        """Arrays become addresses; what they point to is kept."""
        plain = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                assert argument.flags.c_contiguous
                self._kept.append(argument)
                argument = argument.ctypes.data
            plain.append(argument)
        self.calls.append((getattr(self.library, name), tuple(plain)))


def along_z(weight_KCXYZ: Floats) -> Floats:
    """Rows in the order in which a channels-last feature has them: kx, ky, kz, C."""
    return weight_KCXYZ.transpose(0, 2, 3, 4, 1).reshape(len(weight_KCXYZ), -1)


def pack(weight_KC: Floats) -> Floats:
    """Panels of 16 outputs, each (C, 16); a last panel of up to 8 outputs has 8."""
    panels = []
    for first in range(0, len(weight_KC), PANEL):
        part = weight_KC[first : first + PANEL]
        lanes = PANEL if len(part) > LANES else LANES
        panels.append(np.pad(part.T, ((0, 0), (0, lanes - len(part)))).ravel())
    return aligned(np.concatenate(panels))


def merge_groups(weight_KCXYZ: Floats, factor: int) -> Floats:
    """`factor` groups in one, zeros between what does not belong together."""
    outputs, width = weight_KCXYZ.shape[:2]
    merged = np.zeros((outputs, width * factor, *weight_KCXYZ.shape[2:]), np.float32)
    for output in range(outputs):
        place = output // width % factor * width
        merged[output, place : place + width] = weight_KCXYZ[output]
    return merged


def aligned(array: Floats) -> Floats:
    """A copy that starts at a multiple of 64 bytes, so that no vector crosses a line of the cache."""
    room = np.zeros(array.size + 16, np.float32)
    first = -room.ctypes.data // FLOAT % 16
    copy = room[first : first + array.size].reshape(array.shape)
    copy[...] = array
    return copy
