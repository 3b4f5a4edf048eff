"""Records calls of the kernels on fixed buffers: the layers that a network is put together from.

Every weight's shape is checked before its address is given away; kernels trust addresses.

Legend: N voxel, C channel, K output.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import byref
from typing import Any

import numpy as np

from veloxseg.errors import ModelError
from veloxseg.infer.native.library import Product, kernels
from veloxseg.infer.native.memory import PANEL, Feature, Floats, Grid, aligned, pack, rows
from veloxseg.model.config import Size

__all__ = ["Recorder"]


class Recorder:
    """`calls`, in order, are what to do for a window. Features have `border` zeros around them."""

    def __init__(self, weights: Mapping[str, Floats], border: int) -> None:
        found = kernels()
        assert found is not None, "runtime.py asks for a program only where the kernels are"
        self.library, self.weights, self.border = found, weights, border
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._kept: list[Any] = []  # what the calls point to
        self._taken: list[Floats] = []
        self._free: dict[int, list[Floats]] = {}  # by size

    # ---- layers ---------------------------------------------------------------------------------------------

    def normalise(
        self, x: Feature, out: Feature, *, add: Feature | None = None, activate: bool = False
    ) -> None:
        """out = add + act(IN(x))."""
        mean, scale = self.array(x.channels), self.array(x.channels)
        self.call("statistics", x.grid().address, *x.lines, *x.size, x.channels, mean, scale)
        self._scale(x, mean, scale, out, add, activate=activate)

    def add(self, x: Feature, y: Feature, out: Feature) -> None:
        """out = x + y."""
        zero, one = (aligned(np.full(x.channels, value, np.float32)) for value in (0, 1))
        self._scale(x, zero, one, out, y, activate=False)

    def _scale(
        self, x: Feature, mean: Floats, scale: Floats, out: Feature, add: Feature | None, *, activate: bool
    ) -> None:
        assert add is None or add.lines == out.lines
        more = None if add is None else add.grid().address
        inputs = x.grid().address, *x.lines, mean, scale, int(activate), more
        self.call("normalise", *inputs, out.grid().address, *out.lines, *x.size, x.channels)

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
        """A linear map or a dense convolution; options as of `product`."""
        self.call("product", self.product(weight_KC, x, out, size, **options))

    def product(
        self, weight_KC: Floats, x: Grid, out: Grid, size: Size, *, offsets: Sequence[int] = (0,),
        bias: Floats | None = None, residual: Grid | None = None, factor: float = 1.0, activate: bool = False,
    ) -> Any:  # fmt: skip
        """What to multiply, as products.h has it."""
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
        self.keep(packed, added, places, job)
        return byref(job)

    # ---- weights, buffers and calls -------------------------------------------------------------------------

    def weight(self, name: str, *shape: int) -> Floats:
        """A tensor of the file. Its shape is what the configuration says, or nothing is computed."""
        found = self.weights.get(name)
        if found is None or found.shape != shape or found.dtype != np.float32:
            what = "lack it" if found is None else f"have {found.dtype} {found.shape}"
            raise ModelError(
                f"{name} should be float32 {shape}, the native weights {what}; export the model again"
            )
        return found

    def feature(self, size: Size, channels: int, *, border: bool = True) -> Feature:
        """With the border that convolutions read, or without."""
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
        """Arrays become addresses."""
        plain = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                assert argument.flags.c_contiguous
                self.keep(argument)
                argument = argument.ctypes.data
            plain.append(argument)
        self.calls.append((getattr(self.library, name), tuple(plain)))
