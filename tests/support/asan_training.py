"""Random shapes in the kernels of training under AddressSanitizer and UBSan, in each instruction set: `make asan`.

    python tests/support/asan_training.py [--shapes 1000] [--seed 0]
    python tests/support/asan_training.py --prove

Every operation is computed forward and backward. What a kernel takes for room has its exact size here, so that one
float too many is seen. Some shapes lie: a tensor is not what the others say. Such a call must be refused.

--prove switches the comparison of shapes off and lies: the sanitizer must then find it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from support import asan
from veloxseg.errors import ShapeError
from veloxseg.kernels import attention, calling, feed_forward, groups, library, mixing, voxels
from veloxseg.model import losses
from veloxseg.runtimes.native.library import SETS

Random = np.random.Generator
_kept: list[Tensor] = []


# ---- the process that computes ------------------------------------------------------------------------------


def tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, requires_grad=True)


def sides(random: Random, most: int = 9) -> list[int]:
    return [int(side) for side in random.integers(1, most, 3)]


def run_branches(random: Random, lie: bool) -> Tensor:
    group = int(random.choice([4, 8, 16]))
    width = max(group, calling.lanes()) * int(random.integers(1, 3))
    sizes = random.choice([1, 3, 5], int(random.integers(1, 4)), replace=False)
    narrower = max(group, calling.lanes())
    convs = [nn.Conv3d(width, width, int(size), groups=width // group) for size in sizes]
    if lie:
        convs[-1] = nn.Conv3d(narrower, narrower * 2, int(sizes[-1]), groups=narrower // group)
        convs[0] = nn.Conv3d(3 * width, 3 * width, 3, groups=3 * width // group)
    space = sides(random)
    space[2] = int(random.integers(1, 30))
    return groups.group_branches(tensor(int(random.integers(1, 3)), width, *space), convs)


def run_feed_forward(random: Random, lie: bool) -> Tensor:
    channels, hidden = (calling.lanes() * int(random.integers(1, 4)) for _ in range(2))
    y = tensor(int(random.integers(1, 3)), channels + lie * calling.lanes(), *sides(random))
    rate = float(random.choice([0.0, 0.3]))
    return feed_forward.feed_forward(y, nn.Conv3d(channels, hidden, 1), nn.Conv3d(hidden, channels, 1), rate)


def run_tokens(random: Random, lie: bool) -> Tensor:
    c, h = (calling.lanes() * int(random.integers(1, 4)) for _ in range(2))
    sets = int(random.integers(1, 4))
    parameters = (tensor(sets, c, h), tensor(sets, h), tensor(sets, h, c), tensor(sets, c + lie * calling.lanes()))
    y = tensor(sets, int(random.integers(1, 3)), *sides(random), c)
    return feed_forward.token_feed_forward(y, *parameters, 0.2, residual=bool(random.integers(2)))


def run_mixing(random: Random, lie: bool) -> Tensor:
    space, batch = sides(random), int(random.integers(1, 3))
    channels = [calling.lanes() * int(count) for count in random.integers(1, 4, int(random.integers(1, 5)))]
    parts = [tensor(batch, *space, c) for c in channels]
    if lie:
        parts.append(tensor(batch, space[0] + 1, *space[1:], channels[0]))
    return mixing.mix(parts, nn.Conv3d(sum(channels), calling.lanes() * int(random.integers(1, 4)), 1))


def run_norm(random: Random, lie: bool) -> Tensor:
    x = tensor(int(random.integers(1, 3)), calling.lanes() * int(random.integers(1, 4)), *sides(random))
    if lie:
        x = x.double()  # type: ignore[assignment]
    return mixing.instance_norm(x)


def run_attention(random: Random, lie: bool) -> Tensor:
    windows, tokens, heads = (int(random.integers(1, most)) for most in (7, 70, 4))
    dk, dv = (int(size) for size in random.integers(1, 65, 2))
    rows = tensor(windows, tokens, heads * (2 * dk + dv))
    bias = tensor(heads, tokens + lie, tokens + lie)
    return attention.window_attention(rows, bias, dk, dv, float(random.choice([0.0, 0.1])))


def run_cells(random: Random, lie: bool) -> Tensor:
    side = int(random.choice([2, 3, 4]))
    cells = tensor(int(random.integers(1, 3)), int(random.integers(1, 4)) * side**3 + lie, *sides(random))
    return voxels.voxels_of(cells, side)


def run_loss(random: Random, lie: bool) -> Tensor:
    batch, space = int(random.integers(1, 3)), sides(random, 30)
    label = torch.randint(0, 2, (batch, space[0] + lie, *space[1:]))
    return torch.stack(losses.two_class_loss(tensor(batch, 1, *space), label, batch_dice=bool(random.integers(2))))


OPERATIONS: tuple[Callable[[Random, bool], Tensor], ...] = (
    *(run_branches, run_feed_forward, run_tokens, run_mixing),
    *(run_norm, run_attention, run_cells, run_loss),
)


def exact_room(floats: int) -> int:
    _kept[:] = [torch.empty(floats)]
    return _kept[0].data_ptr()


def child(name: str, built: Path, shapes: int, seed: int, *, prove: bool) -> None:
    torch.set_num_threads(1)
    library.NAMES = (name,)  # type: ignore[assignment]
    library.library_path = lambda _: built
    for module in (groups, feed_forward, attention):
        module.room = exact_room  # type: ignore[attr-defined]
    assert library.training_kernels() is not None
    if prove:
        for module in (groups, feed_forward, attention, mixing, voxels):
            module.address = lambda tensor, *shape: tensor.data_ptr()  # type: ignore[attr-defined]
        for number in range(20):
            run_feed_forward(np.random.default_rng(number), True)
        return
    tally: Counter[str] = Counter()
    for number in range(shapes):
        random, lie = np.random.default_rng([seed, number]), number % 5 == 4
        operation = OPERATIONS[number // 5 % len(OPERATIONS)]
        torch.manual_seed(number)
        print(f"shape {number}: {operation.__name__}{' lies' if lie else ''}", file=sys.stderr, flush=True)
        tally[f"{'lying' if lie else 'honest'}, {compute(operation, random, lie)}"] += 1
    print(", ".join(f"{count} {what}" for what, count in sorted(tally.items())))
    if tally["lying, computed"] or tally["honest, refused"]:
        raise SystemExit("a lie was computed, or an honest shape refused")


def compute(operation: Callable[[Random, bool], Tensor], random: Random, lie: bool) -> str:
    try:
        out = operation(random, lie)
    except ShapeError:
        return "refused"
    out.sum().backward()  # type: ignore[no-untyped-call]
    return "computed"


# ---- the process that builds and looks on -------------------------------------------------------------------


def build(name: str, target: Path) -> None:
    """Compiles the kernels of an instruction set with sanitizers."""
    sources = [str(path) for path in sorted(library.FOLDER.glob("*.c"))]
    flags = [f'-DSOURCES="{library.source_hash()}"', *asan.FLAGS, *asan.SANITIZERS, *SETS[name].flags]
    subprocess.run(["gcc", *flags, *sources, "-o", str(target), "-lm"], check=True)


def run(name: str, built: Path, shapes: int, seed: int = 0, *, prove: bool = False) -> subprocess.CompletedProcess[str]:
    """Computes in a process that has the sanitizers loaded."""
    command = [sys.executable, __file__, "--child", name, str(built), "--shapes", str(shapes), "--seed", str(seed)]
    places = os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    preload = {"LD_PRELOAD": asan.sanitizer() or "", "ASAN_OPTIONS": asan.OPTIONS, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *(["--prove"] if prove else [])],
        env={**os.environ, **preload, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        timeout=asan.SECONDS,
        check=False,
    )


def look_at(name: str, shapes: int, seed: int, *, prove: bool) -> int:
    """Builds one instruction set and computes with it; an exit code."""
    with tempfile.TemporaryDirectory() as folder:
        build(name, built := Path(folder) / "training.so")
        done = run(name, built, shapes, seed, prove=prove)
    if prove:
        found = "ERROR: AddressSanitizer" in done.stderr
        print(f"{name}: without the comparison of shapes the sanitizer {'finds the lie' if found else 'found nothing'}")
        return 0 if found else 1
    print(f"{name}: {done.stdout}exit code {done.returncode}")
    if done.returncode:
        print("\n".join(done.stderr.splitlines()[-60:]), file=sys.stderr)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        name, built = arguments.child
        child(name, Path(built), arguments.shapes, arguments.seed, prove=arguments.prove)
        return 0
    if asan.sanitizer() is None:
        raise SystemExit("gcc with AddressSanitizer is needed, and not here")
    names = [name for name in library.NAMES if library.training_kernels(name) is not None]
    return max(look_at(name, arguments.shapes, arguments.seed, prove=arguments.prove) for name in names)


if __name__ == "__main__":
    sys.exit(main())
