"""Records calls of the kernels on fixed buffers: the layers that a network is put together from.

Kernels trust addresses: every weight's shape is checked before it is used, and every call's buffers when it is recorded
(bounds.py). What is recorded is rows of numbers, which one function in C runs (replay.c).

Legend: N voxel, C channel, K output.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import Structure, addressof
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import MissingDependencyError, ModelError
from veloxseg.runtimes.native.bounds import check
from veloxseg.runtimes.native.library import Product, kernels
from veloxseg.runtimes.native.memory import Feature, Floats, Grid, Job, Span, Vectors, aligned, pack, rows
from veloxseg.types import Size

__all__ = ["Recorder"]


class Recorder:
    """`calls`, in order, are what to do for a window. Features have `border` zeros around them."""

    def __init__(self, weights: Mapping[str, Floats], border: int, instructions: str | None = None) -> None:
        found = kernels(instructions)
        if found is None:
            raise MissingDependencyError("the native kernels were not built; use --runtime openvino")
        self.library, self.weights, self.border = found, weights, border
        self.vectors = Vectors(found.lanes(), found.panel())
        self.numbers = {name: number for number, name in enumerate(found.kernel_names().decode().split())}
        self.calls: list[list[int]] = []  # a kernel's number and its arguments
        self._kept: list[Any] = []  # what the calls point to
        self._taken: list[Floats] = []
        self._free: dict[int, list[Floats]] = {}  # by size

    # ---- layers ---------------------------------------------------------------------------------------------

    def normalise(self, x: Feature, out: Feature, *, add: Feature | None = None, activate: bool = False) -> None:
        """out = add + act(IN(x))."""
        mean, scale = self.array(x.channels), self.array(x.channels)
        self.call("statistics", x.grid().place, *x.lines, *x.size, x.channels, mean, scale)
        self._scale(x, mean, scale, out, add, activate=activate)

    def add(self, x: Feature, y: Feature, out: Feature) -> None:
        """out = x + y."""
        zero, one = (aligned(np.full(x.channels, value, np.float32)) for value in (0, 1))
        self._scale(x, zero, one, out, y, activate=False)

    def _scale(
        self, x: Feature, mean: Floats, scale: Floats, out: Feature, add: Feature | None, *, activate: bool
    ) -> None:
        if add is not None and add.lines != out.lines:
            raise ModelError("the native kernels add features with the same lines only; use --runtime openvino")
        more = None if add is None else add.grid().place
        inputs = x.grid().place, *x.lines, mean, scale, int(activate), more
        self.call("normalise", *inputs, out.grid().place, *out.lines, *x.size, x.channels)

    def layer_norm(self, x_NC: Floats) -> Floats:
        out = self.array(*x_NC.shape)
        self.call("layer_norm", x_NC, out, *x_NC.shape)
        return out

    def linear(
        self, name: str, x_NC: Floats, out_NK: Floats, *, residual: Floats | None = None, factor: float = 1.0,
        activate: bool = False,
    ) -> None:  # fmt: skip
        """out = act(W x + b) + factor residual."""
        outputs, channels = out_NK.shape[1], x_NC.shape[1]
        self.multiply(
            self.weight(f"{name}.weight", outputs, channels),
            rows(x_NC),
            rows(out_NK),
            (1, 1, len(x_NC)),
            bias=self.weight(f"{name}.bias", outputs),
            residual=None if residual is None else rows(residual),
            factor=factor,
            activate=activate,
        )

    def multiply(self, weight_KC: Floats, x: Grid, out: Grid, size: Size, **options: Any) -> None:
        """Records a linear map or a dense convolution; the options are those of `product`."""
        self.call("product", self.product(weight_KC, x, out, size, **options))

    def product(
        self, weight_KC: Floats, x: Grid, out: Grid, size: Size, *, offsets: Sequence[int] = (0,),
        bias: Floats | None = None, residual: Grid | None = None, factor: float = 1.0, activate: bool = False,
    ) -> Job:  # fmt: skip
        """What to multiply, with the weights in panels."""
        outputs, inputs = weight_KC.shape
        return Job(
            x=x,
            weight=pack(weight_KC, self.vectors),
            bias=None if bias is None else aligned(np.pad(bias, (0, self.vectors.whole(outputs) - outputs))),
            residual=residual,
            out=out,
            offsets=np.array(offsets, np.int64),
            run=inputs // len(offsets),
            outputs=outputs,
            size=size,
            factor=factor,
            activate=activate,
        )

    # ---- weights, buffers and calls -------------------------------------------------------------------------

    def weight(self, name: str, *shape: int) -> Floats:
        """A tensor of the file. Its shape is what the configuration says, or nothing is computed."""
        found = self.weights.get(name)
        if found is None or found.shape != shape or found.dtype != np.float32:
            what = "lack it" if found is None else f"have {found.dtype} {found.shape}"
            raise ModelError(f"{name} should be float32 {shape}, the native weights {what}; export the model again")
        return found

    def feature(self, size: Size, channels: int, *, border: bool = True) -> Feature:
        """A feature with the border that convolutions read, or without."""
        if not border:
            return Feature(self.array(*size, channels))
        x, y, z = (side + 2 * self.border for side in size)
        self.keep(array := aligned(np.zeros((x, y, z, channels), np.float32)))
        return Feature(array, self.border)

    def array(self, *shape: int) -> Floats:
        """A new buffer, or one of this size that is free again."""
        free = self._free.get(math.prod(shape))
        array = free.pop().reshape(shape) if free else aligned(np.zeros(shape, np.float32))
        self._taken.append(array)
        self.keep(array)
        return array

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """What is taken inside serves again afterwards: fewer bytes stay warmer in the caches."""
        before = len(self._taken)
        yield
        for array in self._taken[before:]:
            self._free.setdefault(array.size, []).append(array)
        del self._taken[before:]

    def keep(self, *things: Any) -> None:
        """Calls hold addresses only; what lies there must not go."""
        self._kept += things

    def call(self, name: str, *arguments: Any) -> None:
        """Records a call whose reads and writes lie in its buffers; arrays and places become addresses."""
        spans = tuple(Span(argument) if isinstance(argument, np.ndarray) else argument for argument in arguments)
        if any(isinstance(span, Span) and not span.array.flags.c_contiguous for span in spans):
            raise ModelError(f"the native kernel `{name}` would use a buffer with gaps; use --runtime openvino")
        check(name, spans, self.vectors)
        self.keep(spans)
        self.calls.append([self.numbers[name], *map(self._word, spans)])

    def _word(self, argument: Any) -> int:
        """An argument as a number: an address, 0 where there is nothing, or the number that it is."""
        if isinstance(argument, Span):
            return argument.address
        if isinstance(argument, Job):
            argument = _product(argument)
        if isinstance(argument, Structure):
            self.keep(argument)
            return addressof(argument)
        return 0 if argument is None else int(argument)

    def table(self) -> npt.NDArray[np.int64]:
        """All calls, in rows of one length as replay.c takes them."""
        row = max(map(len, self.calls))
        return np.array([[*call, *[0] * (row - len(call))] for call in self.calls], np.int64)


def _product(job: Job) -> Product:
    return Product(
        x=job.x.place.address,
        weight=job.weight.ctypes.data,
        bias=None if job.bias is None else job.bias.ctypes.data,
        residual=None if job.residual is None else job.residual.place.address,
        out=job.out.place.address,
        offsets=job.offsets.ctypes.data,
        segments=len(job.offsets),
        run=job.run,
        outputs=job.outputs,
        **dict(zip(("nx", "ny", "nz"), job.size, strict=True)),
        **dict(zip(("sx", "sy", "sz"), job.x.steps, strict=True)),
        **dict(zip(("ox", "oy", "oz"), job.out.steps, strict=True)),
        factor=job.factor,
        activate=int(job.activate),
    )
