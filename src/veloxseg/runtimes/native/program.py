"""The network as a list of kernel calls on fixed buffers, made once and replayed for every window.

The same computation as graph.py, in the kernels of this folder, from weights that weights.py prepares.

Legend: M modality, N voxel, C channel, K output, XYZ space.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from veloxseg.errors import ModelError
from veloxseg.model.config import STAGES, STRIDES, NetworkConfig, PairedWindow
from veloxseg.runtimes.native.bounds import BLOCK, FILTERED, GROUPS, HEAD_CHANNELS, KERNELS
from veloxseg.runtimes.native.filtering import filtered_y, filtered_yz
from veloxseg.runtimes.native.library import Pair
from veloxseg.runtimes.native.memory import FLOAT, Feature, Floats, Grid, Results, Span, aligned, along_z, pack, rows
from veloxseg.runtimes.native.recorder import Recorder
from veloxseg.types import Size

__all__ = ["Program", "missing"]

NARROW = GROUPS[0]  # least channels per group that a kernel computes; narrower groups are merged


def missing(config: NetworkConfig) -> str | None:
    """What a network needs that the kernels lack, in words; None where they compute it."""
    for stage, size in enumerate(config.head_sizes if config.attention != "none" else ()):
        if size % 4:
            return f"head_sizes {config.head_sizes}: the kernels have multiples of 4"
        if (width := value_width(config, stage)) > HEAD_CHANNELS:
            return f"attention heads of {width} channels in stage {stage + 1}: the kernels have {HEAD_CHANNELS} at most"
    return None


def group_width(config: NetworkConfig, stage: int) -> int:
    """Channels of a group as it is computed: as few groups are merged as give a kernel enough channels."""
    width, group = config.widths[stage], config.group_sizes[stage]
    return next((w for w in range(group, width, group) if width % w == 0 and w >= NARROW), width)


def value_width(config: NetworkConfig, stage: int) -> int:
    """Channels of V in one head of one pair: as many times those of Q as it takes to reach the stage's width.

    The paper's ablations have as many as Q.
    """
    if config.attention != "paired":
        return config.head_sizes[stage]
    keys = len(config.pairs(stage)) * config.heads[stage] * config.head_sizes[stage]
    return config.head_sizes[stage] * -(-config.transformer_widths[stage] // keys)


class Program(Recorder):
    """(1, C, X, Y, Z) → (1, K, X, Y, Z), as `InferenceForm` of graph.py. Not for two threads at the same time.

    Programs of one network may share the buffers of their results.
    """

    def __init__(
        self,
        config: NetworkConfig,
        weights: Mapping[str, Floats],
        instructions: str | None = None,
        results: Results | None = None,
    ) -> None:
        super().__init__(weights, max(1, *(size // 2 for size in config.kernel_sizes)), instructions)
        self.config = config
        reach = STRIDES[0] - 1
        x, y, z = config.patch
        self.image = self.array(sum(config.in_channels), x + reach, y + reach, z + reach + 1)
        shape = (sum(config.in_channels), *config.patch)
        target = [step // FLOAT for step in self.image.strides[:3]]
        self.call("place", None, 0, 0, 0, self._inner(0), *target, *shape)  # a window fills in where it lies
        self._build()
        self._table, self.weights = self.table(), {}
        self.results = results or Results()
        self.results.add(self.output)

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        shape = (1, sum(self.config.in_channels), *self.config.patch)
        if window_1CXYZ.shape != shape:
            raise ModelError(f"the network takes {shape}, the plan gives {window_1CXYZ.shape}; were files mixed up?")
        window = np.asarray(window_1CXYZ, np.float32)[0]
        if window.strides[3] != FLOAT or any(step % FLOAT for step in window.strides):  # lines are copied whole
            window = np.ascontiguousarray(window)
        result = self.results.take(self.output.shape)
        self._table[0, 1:5] = window.ctypes.data, *(step // FLOAT for step in window.strides[:3])
        self._table[-1, 6] = result.ctypes.data  # the head comes last
        self.library.replay(self._table.ctypes.data, *self._table.shape)
        return result

    # ---- the network ----------------------------------------------------------------------------------------

    def _build(self) -> None:
        config = self.config
        tokens = self._embed() if config.attention != "none" else None
        encoded: list[Feature] = []
        for k in range(STAGES):
            name, width = f"encoder.{k}", config.widths[k]
            total = self.feature(config.feature(k), width)
            with self.scratch():
                self.normalise(self._down(name, encoded[-1], width) if encoded else self._stem(), total)
            if tokens is not None:
                tokens = self._token_stage(name, k, tokens, total)
            encoded.append(self._jlc_blocks(f"{name}.blocks", "encoder", k, total))
        decoded = encoded[-1]
        for k in reversed(range(STAGES - 1)):
            total = self.feature(config.feature(k), config.widths[k])
            with self.scratch():
                self.normalise(self._up(f"decoder.{k}.weight", decoded, config.widths[k]), total, add=encoded[k])
            decoded = self._jlc_blocks(f"decoder.{k}.blocks", "decoder", k, total)
        self._head(decoded)

    def _token_stage(self, name: str, stage: int, tokens: Floats, total: Feature) -> Floats | None:
        """Attends, joins the result to the convolution stream, and gives the tokens of the next stage."""
        config = self.config
        for block in range(config.transformer_depths[stage]):
            hidden = config.hidden_width("tokens", stage, block)
            tokens = self._token_block(f"{name}.tokens.{block}", stage, tokens, hidden)
        with self.scratch():
            self.normalise(self._join(f"{name}.join", tokens, total.size, total.channels), total, add=total)
        return self._merge(f"{name}.merges", tokens, config.feature(stage + 1)) if stage + 1 < STAGES else None

    def _jlc_blocks(self, name: str, part: str, stage: int, x: Feature) -> Feature:
        for block in range(self.config.depths[stage]):
            x = self._jlc(f"{name}.{block}", stage, x, self.config.hidden_width(part, stage, block))
        return x

    def _jlc(self, name: str, stage: int, x: Feature, wide: int) -> Feature:
        y, before = self.feature(x.size, x.channels), x
        several = len(self.config.kernel_sizes) > 1
        width = group_width(self.config, stage)
        for i, size in enumerate(self.config.kernel_sizes):
            with self.scratch():
                branch = self._group_convolution(f"{name}.branches.{i}", x, size, width)
                if several:
                    self.normalise(branch, y, add=before, activate=True)
                else:
                    self.add(branch, x, y)
            before = y
        with self.scratch():
            normal, hidden = (self.feature(x.size, channels, border=False) for channels in (x.channels, wide))
            self.normalise(y, normal)
            self._pointwise(f"{name}.expand", normal, hidden, activate=True)
            self._pointwise(f"{name}.reduce", hidden, y, residual=y.grid())
        return y

    def _pointwise(self, name: str, x: Feature, out: Feature, **options: Any) -> None:
        """A convolution of size 1."""
        weight = self.weight(f"{name}.weight", out.channels, x.channels, 1, 1, 1)
        bias = self.weight(f"{name}.bias", out.channels)
        self.multiply(weight[:, :, 0, 0, 0], x.grid(), out.grid(), x.size, bias=bias, **options)

    def _token_block(self, name: str, stage: int, tokens: Floats, wide: int) -> Floats:
        """The block's input is added twice, as in the paper's code."""
        y = self.array(*tokens.shape)
        with self.scratch():
            mixed = self._attention(f"{name}.attention", stage, tokens)
            for m, one in enumerate(tokens):
                self.linear(f"{name}.attention.mixers.{m}", mixed[m], y[m], residual=one, factor=2.0)
        for m, one in enumerate(y):
            with self.scratch():
                hidden = self.array(len(one), wide)
                self.linear(f"{name}.expand.{m}", self.layer_norm(one), hidden, activate=True)
                self.linear(f"{name}.reduce.{m}", hidden, one, residual=one)
        return y

    def _attention(self, name: str, stage: int, tokens: Floats) -> Floats:
        """(M, N, C) → (M, N, channels of V): the windows of all scales in one attention."""
        config, feature, pairs = self.config, self.config.feature(stage), self.config.pairs(stage)
        heads, size, values = config.heads[stage], config.head_sizes[stage], value_width(config, stage)
        width = heads * (2 * size + values)  # q, k and v of one pair
        own = math.prod(pairs[0].tokens)
        count = config.modalities * own
        windows = [math.prod(f // b for f, b in zip(feature, pair.big, strict=True)) for pair in pairs]
        first = [sum(windows[:i]) for i in range(len(pairs))]
        shapes = [self._pair(pair, feature) for pair in pairs]
        out = self.array(*tokens.shape[:2], len(pairs) * heads * values)

        projected = self.array(*tokens.shape[:2], len(pairs) * width)
        for m, one in enumerate(tokens):
            with self.scratch():
                self.linear(f"{name}.project.{m}", self.layer_norm(one), projected[m])
        gathered = self.array(sum(windows), count, width)
        for i, shape in enumerate(shapes):
            self.call("gather", shape, projected, len(pairs) * width, i * width, width, gathered[first[i] :])

        lanes = self.vectors.lanes
        table = self.weight(f"{name}.bias_1HLL", 1, heads, count, count)[0]  # head, query, key
        padded = np.pad(table * np.float32(math.log2(math.e)), ((0, 0), (0, -count % lanes), (0, 0)))  # 2^x, not e^x
        bias = aligned(padded.reshape(heads, -1, lanes, count).swapaxes(2, 3))
        attended = self.array(sum(windows), count, heads * values)
        scores = self.array(count, min(2 * lanes, self.vectors.whole(count)))
        self.call("attention", gathered, sum(windows), count, heads, size, values, bias, scores, attended)

        place = heads * values
        room = self.array(2 * own, place)  # a plane and a line of a window's tokens, at most
        for i, shape in enumerate(shapes):
            self.call("scatter", shape, attended[first[i] :], place, room, out, out.shape[2], i * place)
        return out

    def _pair(self, pair: PairedWindow, feature: Size) -> Pair:
        return Pair(self.config.modalities, *feature, *pair.big, *pair.small)

    # ---- layers ---------------------------------------------------------------------------------------------

    def _inner(self, channel: int) -> Span:
        """Where the first voxel of a window's channel lies in the bordered image."""
        sc, sx, sy = (step // FLOAT for step in self.image.strides[:3])
        return Span(self.image, channel * sc + (STRIDES[0] - 1) * (sx + sy + 1))

    def _embed(self) -> Floats:
        """The tokens (M, N, C) of every modality: kernel 4, stride 4."""
        config, first = self.config, 0
        tokens = self.array(config.modalities, math.prod(config.feature(0)), config.transformer_width)
        for m, channels in enumerate(config.in_channels):
            weight = self.weight(f"embeddings.{m}.weight", config.transformer_width, channels, 4, 4, 4)
            bias = self.weight(f"embeddings.{m}.bias", config.transformer_width)
            self._patches(weight, self._inner(first), Feature(tokens[m].reshape(*config.feature(0), -1)), bias)
            first += channels
        return tokens

    def _stem(self) -> Feature:
        """Kernel 7, stride 4."""
        out = self.feature(self.config.feature(0), self.config.widths[0], border=False)
        weight = self.weight("encoder.0.down.weight", out.channels, len(self.image), 7, 7, 7)
        self._patches(weight, Span(self.image), out)
        return out

    def _patches(self, weight_KCXYZ: Floats, x: Span, out: Feature, bias: Floats | None = None) -> None:
        """A convolution with stride 4 of the image, whose channels are volumes of their own."""
        sc, sx, sy = (step // FLOAT for step in self.image.strides[:3])
        outputs, channels, kx, ky, _ = weight_KCXYZ.shape
        offsets = [c * sc + i * sx + j * sy for c in range(channels) for i in range(kx) for j in range(ky)]
        stride = STRIDES[0]
        source = Grid(x, (stride * sx, stride * sy, stride))
        self.multiply(weight_KCXYZ.reshape(outputs, -1), source, out.grid(), out.size, offsets=offsets, bias=bias)

    def _down(self, name: str, x: Feature, outputs: int) -> Feature:
        """Kernel 3, stride 2."""
        nx, ny, nz = (side // 2 for side in x.size)
        out = self.feature((nx, ny, nz), outputs, border=False)
        weight = self.weight(f"{name}.down.weight", out.channels, x.channels, 3, 3, 3)
        self.multiply(along_z(weight), x.grid(1, stride=2), out.grid(), out.size, offsets=self._lines(x, 3))
        return out

    def _head(self, x: Feature) -> None:
        """Kernel 3, and 4 x 4 x 4 voxels for each; two classes may come as one, their difference."""
        cube = STRIDES[0] ** 3
        outputs = len(self.weights.get("head_bias", ()))
        if outputs not in (cube, self.config.classes * cube):
            raise ModelError(f"the native weights have {outputs} outputs; export the model again")
        weight_PKCX = filtered_yz(self.weight("head_weight", outputs, x.channels, 3, 3, 3))
        bias = aligned(self.weight("head_bias", outputs))
        self.output = self.array(1, outputs // cube, *self.config.patch)
        nx, _, nz = x.size
        points = len(weight_PKCX)
        panels = [
            pack(part.transpose(0, 2, 1).reshape(cube, -1), self.vectors)
            for first in range(0, outputs, cube)
            for part in weight_PKCX[:, first : first + cube]
        ]
        with self.scratch():
            room = self.array(nx + 2, points, nz // 2, x.channels), self.array(min(nx, BLOCK), points, nz // 2, cube)
            inputs = x.grid(1).place, *x.lines, aligned(np.concatenate(panels)), bias
            self.call("head", *inputs, self.output, *x.size, x.channels, outputs // cube, *room)

    def _lines(self, x: Feature, size: int) -> list[int]:
        """Where the lines of a kernel begin: along z its voxels lie side by side."""
        sx, sy = x.lines
        return [i * sx + j * sy for i in range(size) for j in range(size)]

    def _up(self, name: str, x: Feature, outputs: int) -> Feature:
        """Transposed convolution, kernel 2, stride 2: 8 voxels for each, then apart."""
        weight_CKXYZ = self.weight(name, x.channels, outputs, 2, 2, 2)
        cells = self.feature(x.size, 8 * outputs, border=False)
        matrix = weight_CKXYZ.transpose(2, 3, 4, 1, 0).reshape(8 * outputs, x.channels)
        self.multiply(matrix, x.grid(), cells.grid(), x.size)
        nx, ny, nz = x.size
        out = self.feature((2 * nx, 2 * ny, 2 * nz), outputs, border=False)
        self.call("cells", out.array, *out.lines, cells.array, *x.size, outputs, 1)
        return out

    def _merge(self, name: str, tokens: Floats, half: Size) -> Floats:
        """The 8 voxels of each cell side by side, for the next stage."""
        channels = tokens.shape[2]
        result = self.array(len(tokens), math.prod(half), 2 * channels)
        for m, one in enumerate(tokens):
            with self.scratch():
                cells = self.array(math.prod(half), 8 * channels)
                lines = 4 * half[1] * half[2] * channels, 2 * half[2] * channels
                self.call("cells", one, *lines, cells, *half, channels, 0)
                self.linear(f"{name}.{m}", self.layer_norm(cells), result[m])
        return result

    def _join(self, name: str, tokens: Floats, feature: Size, width: int) -> Feature:
        out = self.feature(feature, width, border=False)
        flat = rows(out.array.reshape(-1, width))
        weight = self.weight(name, width, len(tokens) * tokens.shape[2])
        for m, part in enumerate(np.split(weight, len(tokens), axis=1)):
            self.multiply(part, rows(tokens[m]), flat, (1, 1, tokens.shape[1]), residual=flat if m else None)
        return out

    def _group_convolution(self, name: str, x: Feature, size: int, width: int) -> Feature:
        weight = self.weight(f"{name}.weight", x.channels, width, size, size, size)
        bias = self.weight(f"{name}.bias", x.channels) if f"{name}.bias" in self.weights else None
        out = self.feature(x.size, x.channels, border=False)
        source = x.grid(size // 2)
        if width in GROUPS and width <= self.vectors.lanes and size in KERNELS:
            self._narrow_groups(weight, bias, x, out)
            return out
        offsets = [line + t * x.channels for line in self._lines(x, size) for t in range(size)]
        for first in range(0, x.channels, width):
            own = slice(first, first + width)
            self.multiply(
                along_z(weight[own]),
                source.further(first),
                out.grid().further(first),
                x.size,
                offsets=offsets,
                bias=None if bias is None else bias[own],
            )
        return out

    def _narrow_groups(self, weight: Floats, bias: Floats | None, x: Feature, out: Feature) -> None:
        """Several groups in a vector; two lines at a time where that saves products."""
        width, size = weight.shape[1], weight.shape[2]
        (nx, ny, nz), points = x.size, size + 1
        taps = weight.transpose(2, 3, 4, 0, 1)
        if few := size in FILTERED and ny % 2 == 0:
            taps = filtered_y(weight).transpose(0, 3, 4, 1, 2)
        more = size - 1
        with self.scratch():
            room = [self.array(points * ((nx + more) * (nz + more) + nz) * self.vectors.lanes)] if few else []
            inputs = x.grid(size // 2).place, *x.lines, self._in_vectors(taps), bias
            self.call(
                "filtered_group" if few else "group", *inputs, out.array, *x.size, x.channels, width, size, *room
            )  # fmt: skip

    def _in_vectors(self, taps_ABZKC: Floats) -> Floats:
        """A, B, Z, (vector, lane), c  →  vector, A, B, Z, c, lane: a vector has the outputs of several groups."""
        *kernel, outputs, width = taps_ABZKC.shape
        lanes = self.vectors.lanes
        padded = np.pad(taps_ABZKC, (*[(0, 0)] * 3, (0, -outputs % lanes), (0, 0)))
        return aligned(padded.reshape(*kernel, -1, lanes, width).transpose(3, 0, 1, 2, 5, 4))
