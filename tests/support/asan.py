"""Random networks in the native kernels under AddressSanitizer and UBSan, in each instruction set: `make asan`.

    python tests/support/asan.py [--networks 500] [--seed 0]
    python tests/support/asan.py --prove

Half of the networks are honest. The other half lie: numbers of their configuration are exchanged after it was checked,
and their weights have whatever shape the lie asks for, as if the gate in front of the kernels were open. Each must be
computed within its buffers or be refused. Buffers have their exact size here, so that one float too many is seen.

--prove switches the recorder's own bounds off and gives it a negative window (F3): the sanitizer must then find it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.errors import VeloxSegError
from veloxseg.model.config import STAGES, NetworkConfig, PairedWindow
from veloxseg.runtimes.native import library, memory, program, recorder

FLAGS = ["-std=gnu11", "-O1", "-g", "-fno-omit-frame-pointer", "-fvisibility=hidden", "-fPIC", "-shared"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
OPTIONS = "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=2000"
NUMBERS = (-8, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 31, 33, 64, 127, 129, 200)
SECONDS = 900


# ---- the process that computes ------------------------------------------------------------------------------


class Liar(NetworkConfig):
    """A configuration that nobody checked."""

    lies: dict[str, Any]

    def pairs(self, stage: int) -> tuple[PairedWindow, ...]:
        honest = self.lies["honest"].pairs(stage)
        return tuple(
            PairedWindow(
                big=self.lies.get("big", pair.big),
                small=tuple(2**i * side for side in self.lies["small"]) if "small" in self.lies else pair.small,
            )
            for i, pair in enumerate(honest)
        )

    def feature(self, stage: int) -> Any:
        sides = tuple(side // 2 ** (stage + 2) for side in self.patch)
        return tuple(np.add(sides, self.lies.get("feature", (0, 0, 0))).tolist())


class Fitting(dict[str, Any]):
    """Weights of whatever shape is asked for."""

    def __contains__(self, name: object) -> bool:
        return str(name).endswith(".bias")


class Program(program.Program):
    def weight(self, name: str, *shape: int) -> Any:
        return np.random.default_rng(0).standard_normal(shape, np.float32) * np.float32(0.1)


def honest_config(random: np.random.Generator) -> NetworkConfig:
    """A configuration that passes the gate and that the kernels have."""

    def pick(*choices: Any) -> Any:
        return choices[random.integers(len(choices))]

    def stages(*choices: int) -> tuple[int, ...]:
        return tuple(pick(*choices) for _ in range(STAGES))

    while True:
        try:
            config = NetworkConfig(
                in_channels=pick((1,), (1, 1), (2, 1), (4,), (1, 1, 1)),
                classes=pick(1, 2, 3, 5),
                patch=(pick(32, 32, 32, 64), pick(32, 32, 32, 64), pick(32, 32, 64, 96)),
                base_width=pick(8, 16, 24, 12, 6),
                transformer_width=pick(8, 16, 24, 12),
                attention=pick("paired", "paired", "paired", "window", "downsampled", "none"),
                depths=pick((1, 1, 1, 1), (2, 1, 1, 1)),
                kernel_sizes=pick((3,), (1, 3, 5), (1, 7), (5,), (9,), (1, 3, 5, 7)),
                group_sizes=stages(1, 2, 3, 4, 8, 16),
                expansions=stages(1, 2, 3),
                transformer_expansions=stages(1, 2, 3),
                heads=stages(1, 2, 3, 4),
                head_sizes=stages(4, 8, 12, 16),
                small_windows=pick(((1, 1, 1),) * STAGES, ((2, 1, 1), (1, 2, 1), (1, 1, 1), (1, 1, 1))),
            )
        except VeloxSegError:
            continue
        if program.missing(config) is None:
            return config


def lying_config(random: np.random.Generator) -> NetworkConfig:
    honest = honest_config(random)
    values = {name: getattr(honest, name) for name in honest.__dataclass_fields__}
    lies: dict[str, Any] = {"honest": honest}
    for _ in range(random.integers(1, 4)):
        name = str(random.choice([*values, "small", "big", "feature", "patch"]))
        if name in ("small", "big"):
            lies[name] = tuple(int(n) for n in random.choice(NUMBERS, 3))
        elif name == "feature":
            lies[name] = tuple(int(n) for n in random.integers(-2, 3, 3))
        elif name == "patch":
            values[name] = tuple(int(n) for n in random.integers(4, 70, 3))
        elif isinstance(values[name], int):
            values[name] = int(random.choice(NUMBERS))
        elif isinstance(values[name], tuple) and values[name] and isinstance(values[name][0], int):
            changed = list(values[name])
            changed[random.integers(len(changed))] = int(random.choice(NUMBERS))
            values[name] = tuple(changed)
    return _lie(values, lies)


def _lie(values: dict[str, Any], lies: dict[str, Any]) -> NetworkConfig:
    liar: NetworkConfig = object.__new__(Liar)
    for name, value in {**values, "lies": lies}.items():
        object.__setattr__(liar, name, value)
    return liar


def negative_window() -> NetworkConfig:
    """F3: `small_windows [[-1, -1, 1]] * 4`."""
    honest = NetworkConfig(patch=(32, 32, 32))
    values = {name: getattr(honest, name) for name in honest.__dataclass_fields__}
    return _lie(values, {"honest": honest, "small": (-1, -1, 1)})


def compute(config: NetworkConfig) -> str:
    """Whether one window was computed or refused."""
    outputs = 64 * max(1, config.classes)
    try:
        network = Program(config, Fitting(head_bias=np.zeros(outputs, np.float32)))
        shape = (1, sum(config.in_channels), *config.patch)
        network(np.random.default_rng(0).standard_normal(shape, np.float32))
    except VeloxSegError:
        return "refused"
    except (ValueError, TypeError, ZeroDivisionError, IndexError, MemoryError):
        return "refused by numpy"  # the gate in front, which is left open here, would have said so in one line
    return "computed"


def exact(array: Any) -> Any:
    """Instead of memory.aligned, which takes some more for its alignment."""
    return np.array(array, np.float32, order="C", copy=True)


def child(name: str, built: Path, networks: int, seed: int, *, prove: bool) -> None:
    library.SETS = {name: library.SETS[name]._replace(path=built)}
    for module in (memory, recorder, program):
        module.aligned = exact  # type: ignore[attr-defined]
    if prove:
        recorder.check = lambda *arguments: None  # type: ignore[attr-defined]
        compute(negative_window())
        return
    tally: Counter[str] = Counter()
    for number in range(networks):
        random, lies = np.random.default_rng([seed, number]), number % 2 == 1
        config = lying_config(random) if lies else honest_config(random)
        print(f"network {number}: {config!r} {getattr(config, 'lies', '')}", file=sys.stderr, flush=True)
        answer = compute(config)
        tally[f"{'lying' if lies else 'honest'}, {answer}"] += 1
        if not lies and answer != "computed":
            raise SystemExit(f"network {number} is honest and was {answer}")
    print(", ".join(f"{count} {what}" for what, count in sorted(tally.items())))


# ---- the process that builds and looks on -------------------------------------------------------------------


def sanitizer() -> str | None:
    """The library that must be loaded first, or None where the compiler has none."""
    if shutil.which("gcc") is None:
        return None
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    path = Path(found.stdout.strip())
    return str(path.resolve()) if path.is_absolute() else None


def build(name: str, target: Path) -> None:
    """Compiles the kernels of an instruction set with sanitizers."""
    sources = [str(path) for path in sorted(library.FOLDER.glob("*.c"))]
    flags = [f'-DSOURCES="{library.source_hash()}"', *FLAGS, *SANITIZERS]
    subprocess.run(["gcc", *flags, *library.SETS[name].flags, *sources, "-o", str(target), "-lm"], check=True)


def run(
    name: str, built: Path, networks: int, seed: int = 0, *, prove: bool = False
) -> subprocess.CompletedProcess[str]:
    """Computes in a process that has the sanitizers loaded."""
    command = [sys.executable, __file__, "--child", name, str(built)]
    command += ["--networks", str(networks), "--seed", str(seed)]
    return subprocess.run(
        [*command, *(["--prove"] if prove else [])],
        env={**os.environ, "LD_PRELOAD": sanitizer() or "", "ASAN_OPTIONS": OPTIONS, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        name, built = arguments.child
        child(name, Path(built), arguments.networks, arguments.seed, prove=arguments.prove)
        return 0
    if sanitizer() is None:
        raise SystemExit("gcc with AddressSanitizer is needed, and not here")
    return max(
        look_at(name, arguments.networks, arguments.seed, prove=arguments.prove) for name in library.built_sets()
    )


def look_at(name: str, networks: int, seed: int, *, prove: bool) -> int:
    """Builds one instruction set and computes with it; an exit code."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        build(name, built := Path(folder) / "kernels.so")
        done = run(name, built, networks, seed, prove=prove)
    if prove:
        found = "ERROR: AddressSanitizer" in done.stderr
        print("\n".join(done.stderr.splitlines()[:12]))
        print(f"{name}: without the recorder's bounds the sanitizer {'finds F3' if found else 'found nothing'}")
        return 0 if found else 1
    print(f"{name}: {done.stdout}", end="")
    if done.returncode:
        print("\n".join(done.stderr.splitlines()[-60:]), file=sys.stderr)
    print(f"{time.monotonic() - start:.0f} s, exit code {done.returncode}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
