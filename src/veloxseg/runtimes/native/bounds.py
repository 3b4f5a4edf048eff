"""What each kernel reads and writes, computed from its arguments as its loops in C do, and compared with its buffers.

Kernels trust addresses and sizes. A configuration that lies (a negative window, widths that do not divide) must end
here, in a ModelError, and not in memory that belongs to somebody else. Channels count as they are, because kernels
load and store a part of their last vector; packed weights, biases of products, and queries count in whole vectors.

For each kernel there is one function here, with the arguments of the C function behind the vectors that the library
computes with. It yields one `Use` per buffer.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from veloxseg.errors import ModelError
from veloxseg.runtimes.native.library import Pair
from veloxseg.runtimes.native.memory import Job, Span, Vectors

__all__ = ["check"]

HEAD_CHANNELS = 128  # MOST of attention.c
CUBE, POINTS, BLOCK = 64, 16, 4  # of head.c: outputs for one class and voxel; transformed inputs; planes at a time
KERNELS = (1, 3, 5, 7)  # sizes that groups.c has, for groups of so many channels:
GROUPS = (4, 8)
FILTERED = (3, 5)  # sizes that filtered_group has

Loop = tuple[int, int]  # how often it runs, and by how many floats it moves on


class Use(NamedTuple):
    """A kernel touches the floats [low, stop) of a buffer, counted from `place` on."""

    what: str
    place: Span | None
    low: int
    stop: int


def check(kernel: str, arguments: tuple[Any, ...], vectors: Vectors) -> None:
    """Raises unless everything that the kernel will touch lies in its buffers."""
    for use in USES[kernel](vectors, *arguments):
        if use.place is None:
            continue
        first, size = use.place.first, use.place.array.size
        if first + use.low < 0 or first + use.stop > size:
            _refuse(kernel, f"{use.what} from {first + use.low} to {first + use.stop} of {size} numbers")


def _refuse(kernel: str, what: str) -> None:
    raise ModelError(
        f"the native kernel `{kernel}` would use {what}; model.json describes no network that it computes, so export "
        "the model again or use --runtime openvino"
    )


def _require(kernel: str, *, least: int = 1, **counts: int) -> None:
    for name, count in counts.items():
        if count < least:
            _refuse(kernel, f"{name} = {count}, below {least}")


def _use(what: str, place: Span | None, loops: Iterable[Loop], width: int) -> Use:
    """Nested loops, of which the innermost touches `width` floats."""
    moves = [(count - 1) * step for count, step in loops]
    return Use(what, place, sum(min(0, move) for move in moves), sum(max(0, move) for move in moves) + width)


# ---- products.c ---------------------------------------------------------------------------------------------


def product(vectors: Vectors, job: Job) -> Iterator[Use]:
    nx, ny, nz = job.size
    _require("product", nx=nx, ny=ny, nz=nz, segments=len(job.offsets), run=job.run, outputs=job.outputs)
    lanes = vectors.whole(job.outputs)
    x = _use("x", job.x.place, zip(job.size, job.x.steps, strict=True), job.run)
    yield x._replace(low=x.low + int(job.offsets.min()), stop=x.stop + int(job.offsets.max()))
    yield Use("weight", Span(job.weight), 0, len(job.offsets) * job.run * lanes)
    yield Use("bias", None if job.bias is None else Span(job.bias), 0, lanes)
    loops = list(zip(job.size, job.out.steps, strict=True))
    yield _use("out", job.out.place, loops, job.outputs)
    if job.residual is not None:
        if job.residual.steps != job.out.steps:
            _refuse("product", f"a residual with steps {job.residual.steps}, not {job.out.steps}")
        yield _use("residual", job.residual.place, loops, job.outputs)


# ---- head.c -------------------------------------------------------------------------------------------------


def head(
    _: Vectors, x: Span, sx: int, sy: int, weight: Span, bias: Span, out: Span, nx: int, ny: int, nz: int,
    channels: int, classes: int, transformed: Span, products: Span,
) -> Iterator[Use]:  # fmt: skip
    _require("head", nx=nx, ny=ny, nz=nz, channels=channels, classes=classes)
    if ny % 2 or nz % 2:
        _refuse("head", f"lines of {ny} x {nz} voxels, which 2 x 2 do not tile")
    yield _use("x", x, [(nx + 2, sx), (ny + 2, sy), (nz + 2, channels)], channels)
    yield Use("weight", weight, 0, classes * POINTS * 3 * channels * CUBE)
    yield Use("bias", bias, 0, classes * CUBE)
    yield Use("out", out, 0, classes * CUBE * nx * ny * nz)
    yield Use("transformed", transformed, 0, (nx + 2) * POINTS * (nz // 2) * channels)
    yield Use("products", products, 0, min(nx, BLOCK) * POINTS * (nz // 2) * CUBE)


# ---- groups.c, norms.c, voxels.c ----------------------------------------------------------------------------


def group(
    vectors: Vectors, x: Span, sx: int, sy: int, weight: Span, bias: Span | None, out: Span, nx: int, ny: int, nz: int,
    channels: int, width: int, size: int,
) -> Iterator[Use]:  # fmt: skip
    _require("group", nx=nx, ny=ny, nz=nz, channels=channels)
    if size not in KERNELS:
        _refuse("group", f"a kernel of size {size}, not one of {KERNELS}")
    if width not in GROUPS or channels % width or width > vectors.lanes:
        _refuse("group", f"groups of {width} among {channels} channels")
    more = size - 1
    yield _use("x", x, [(nx + more, sx), (ny + more, sy), (nz + more, channels)], channels)
    yield Use("weight", weight, 0, vectors.whole(channels) * size**3 * width)
    yield Use("bias", bias, 0, channels)
    yield _use("out", out, [(nx * ny * nz, channels)], channels)


def filtered_group(
    vectors: Vectors, x: Span, sx: int, sy: int, weight: Span, bias: Span | None, out: Span, nx: int, ny: int, nz: int,
    channels: int, width: int, size: int, room: Span,
) -> Iterator[Use]:  # fmt: skip
    if size not in FILTERED or ny % 2:
        _refuse("filtered_group", f"a kernel of size {size}, not one of {FILTERED}, or {ny} lines, an odd number")
    yield from group(vectors, x, sx, sy, weight, bias, out, nx, ny, nz, channels, width, size)
    points, more = size + 1, size - 1
    yield Use("weight", weight, 0, vectors.whole(channels) * points * size**2 * width)
    yield Use("room", room, 0, points * ((nx + more) * (nz + more) + nz) * vectors.lanes)


def statistics(
    _: Vectors, x: Span, sx: int, sy: int, nx: int, ny: int, nz: int, channels: int, mean: Span, scale: Span
) -> Iterator[Use]:
    _require("statistics", nx=nx, ny=ny, nz=nz, channels=channels)
    yield _use("x", x, [(nx, sx), (ny, sy), (nz, channels)], channels)
    yield Use("mean", mean, 0, channels)
    yield Use("scale", scale, 0, channels)


def normalise(
    vectors: Vectors, x: Span, sx: int, sy: int, mean: Span, scale: Span, activate: int, other: Span | None, out: Span,
    ox: int, oy: int, nx: int, ny: int, nz: int, channels: int,
) -> Iterator[Use]:  # fmt: skip
    yield from statistics(vectors, x, sx, sy, nx, ny, nz, channels, mean, scale)
    to = [(nx, ox), (ny, oy), (nz, channels)]
    yield _use("other", other, to, channels)
    yield _use("out", out, to, channels)


def layer_norm(_: Vectors, x: Span, out: Span, rows: int, channels: int) -> Iterator[Use]:
    _require("layer_norm", rows=rows, channels=channels)
    yield _use("x", x, [(rows, channels)], channels)
    yield _use("out", out, [(rows, channels)], channels)


def cells(
    _: Vectors, feature: Span, sx: int, sy: int, cell: Span, nx: int, ny: int, nz: int, channels: int, spread: int
) -> Iterator[Use]:
    _require("cells", nx=nx, ny=ny, nz=nz, channels=channels)
    yield _use("feature", feature, [(2 * nx, sx), (2 * ny, sy)], 2 * nz * channels)
    yield Use("cell", cell, 0, 8 * nx * ny * nz * channels)


def place(
    _: Vectors, image: Span | None, ic: int, ix: int, iy: int, out: Span, oc: int, ox: int, oy: int, channels: int,
    nx: int, ny: int, nz: int,
) -> Iterator[Use]:  # fmt: skip
    """The image is the caller's array, whose shape the program compares with its own for every window."""
    _require("place", channels=channels, nx=nx, ny=ny, nz=nz)
    yield _use("image", image, [(channels, ic), (nx, ix), (ny, iy)], nz)
    yield _use("out", out, [(channels, oc), (nx, ox), (ny, oy)], nz)


# ---- attention.c --------------------------------------------------------------------------------------------


def _windows(kernel: str, pair: Pair) -> tuple[int, int]:
    """How many windows there are, all modalities together, and how many tokens each has; windows tile the feature."""
    windows, tokens = pair.modalities, 1
    _require(kernel, modalities=pair.modalities)
    for axis in "xyz":
        side, big, small = (getattr(pair, name + axis) for name in ("n", "b", "small_"))
        _require(kernel, side=side, window=big, small_window=small)
        if side % big or big % small:
            _refuse(kernel, f"windows of {big} by {small} in a feature of {side}, which they do not tile")
        windows *= side // big
        tokens *= big // small
    return windows, tokens


def gather(_: Vectors, pair: Pair, x: Span, width: int, first: int, count: int, out: Span) -> Iterator[Use]:
    windows, tokens = _windows("gather", pair)
    _require("gather", width=width, count=count)
    _require("gather", least=0, first=first)
    wide = -(-count // 4) * 4
    yield _use("x", x, [(pair.modalities * pair.nx * pair.ny * pair.nz, width)], first + wide)
    yield _use("out", out, [(windows * tokens, count)], wide)


def attention(
    vectors: Vectors, tokens: Span, windows: int, count: int, heads: int, dk: int, dv: int, bias: Span, scores: Span,
    out: Span,
) -> Iterator[Use]:  # fmt: skip
    _require("attention", windows=windows, count=count, heads=heads, dk=dk, dv=dv)
    if max(dk, dv) > HEAD_CHANNELS:
        _refuse("attention", f"heads of {dk} and {dv} channels, above {HEAD_CHANNELS}")
    yield Use("tokens", tokens, 0, windows * count * heads * (2 * dk + dv))
    yield Use("bias", bias, 0, heads * count * vectors.whole(count))
    yield Use("scores", scores, 0, min(2 * vectors.lanes, vectors.whole(count)) * count)
    yield Use("out", out, 0, windows * count * heads * dv)


def scatter(
    _: Vectors, pair: Pair, tokens: Span, channels: int, room: Span, out: Span, width: int, first: int
) -> Iterator[Use]:
    windows, count = _windows("scatter", pair)
    _require("scatter", channels=channels, width=width)
    _require("scatter", least=0, first=first)
    if channels % 4:
        _refuse("scatter", f"{channels} channels, no multiple of 4")
    y, z = pair.by // pair.small_y, pair.bz // pair.small_z
    yield Use("tokens", tokens, 0, windows * count * channels)
    yield Use("room", room, 0, (y + 1) * z * channels)
    yield _use("out", out, [(pair.modalities * pair.nx * pair.ny * pair.nz, width)], first + channels)


USES: dict[str, Callable[..., Iterator[Use]]] = {
    function.__name__: function
    for function in (
        product, head, group, filtered_group, statistics, normalise, layer_norm, cells, place, gather, attention,
        scatter,
    )
}  # fmt: skip
