"""What a machine does to a program: it is killed at any moment, and the disk is full."""

import contextlib
import errno
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from attacks.attack import Attack, contents, veloxseg
from attacks.bench import Bench, predict, train

KILLING = Path(__file__).parents[1] / "support" / "killing.py"
KILLS = 5  # of one training
CASES = 3


def _killed_training(prepared: Path, run: Path, kills: int, seed: int) -> list[str]:
    command = [sys.executable, str(KILLING), str(prepared), str(run), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])
    deaths: list[str] = json.loads(done.stdout.splitlines()[-1])
    return deaths


def _same_tensors(first: Path, second: Path) -> bool:
    """Whether all numbers are equal to the bit; the state beside them tells the time, which differs."""
    from safetensors.numpy import load_file

    a, b = load_file(first), load_file(second)
    return a.keys() == b.keys() and all(a[name].tobytes() == b[name].tobytes() for name in a)


def kill_training(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """A training that is killed five times ends with the weights, to the bit, of one that never was."""
    whole = bench.once("whole", lambda path: _killed_training(bench.prepared, path, 0, 0))
    seed, run = rng.randrange(2**30), folder / "run"

    def wrong() -> str:
        for part in ("checkpoints", "model"):
            name = max(path.name for path in (whole / part).glob("*.safetensors"))
            if not _same_tensors(run / part / name, whole / part / name):
                return f"{part}/{name} differs from that of an undisturbed training"
        return ""

    def act() -> None:
        _killed_training(bench.prepared, run, KILLS, seed)

    return Attack(told=f"seed {seed}", act=act, inputs=(bench.prepared,), wrong=wrong, tries=KILLS)


def kill_prediction(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """A prediction of three cases is killed at any moment and started again: its masks are those of one undisturbed."""
    cases = bench.once("cases", lambda path: _write_cases(bench, path))
    command = ["predict", "-m", bench.quick_model, "-i", cases, "--threads", 1, "--overlap", 0]
    start = [sys.executable, "-m", "veloxseg", *map(str, command), "-o"]
    begun = time.monotonic()
    whole = bench.once("masks", lambda path: subprocess.run([*start, path], check=True, capture_output=True))
    length = bench.once("masks-seconds", lambda path: path.write_text(str(time.monotonic() - begun)))
    after, output = rng.uniform(0.3, float(length.read_text())), folder / "out"

    def act() -> int:
        process = subprocess.Popen([*start, output], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return veloxseg(*command, "-o", output)()

    def wrong() -> str:
        for mask in sorted(whole.glob("*.nii.gz")):
            if (output / mask.name).read_bytes() != mask.read_bytes():
                return f"{mask.name} differs from that of an undisturbed run"
        return ""

    return Attack(told=f"killed after {after:.2f} s", act=act, inputs=(cases, bench.quick_model), wrong=wrong)


def _write_cases(bench: Bench, path: Path) -> None:
    path.mkdir()
    for case in range(CASES):
        for channel, name in enumerate(("ct", "pet")):
            shutil.copy(bench.scans / f"{name}.nii.gz", path / f"case{case}_{channel:04d}.nii.gz")


@contextlib.contextmanager
def full_disk(how: str, after: int) -> Iterator[None]:
    """No room: files cannot grow past so many bytes, or the so many-th call of a function says so."""
    if how == "size":
        old = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing fails with an error
        resource.setrlimit(resource.RLIMIT_FSIZE, (after, old[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old)
            signal.signal(signal.SIGXFSZ, handler)
        return
    place, name = {"fsync": (os, "fsync"), "write": (Path, "write_bytes"), "text": (Path, "write_text")}.get(
        how, (os, "replace")
    )
    true, calls = getattr(place, name), [0]

    def full(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if calls[0] > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return true(*arguments, **more)

    with mock.patch.object(place, name, full):
        yield


def disk(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """The disk is full while a verb writes: it is refused in one line, and what stands there is whole."""
    how = rng.choice(["size", "size", "fsync", "write", "text", "rename"])
    after = rng.choice([0, 1, 100, 5_000, 100_000, 1_000_000]) if how == "size" else rng.randrange(6)
    output = folder / "out"
    labels, listed = bench.dataset / "labelsTr", bench.dataset / "list.json"
    run = folder / "run"
    acts: dict[str, Callable[[], object]] = {
        "predict": veloxseg(*predict(bench.quick_model, bench.scans, output), "--probabilities", "--statistics"),
        "prepare": veloxseg(
            "prepare", bench.dataset / "list.json", "-o", output, "--workers", 0, "--patch", 32, 32, 32
        ),
        "evaluate": veloxseg("evaluate", "-p", labels, "-l", labels, "-o", output),
        "export": veloxseg("export", "-m", bench.model, "-o", output, "--format", "native"),
        "check": veloxseg("check", listed, "--workers", 1, "--json", folder / "check.json"),
        "phantom": veloxseg("phantom", output, "--cases", 1, "--size", 16, 16, 16),
        "train": lambda: train(bench.prepared, run, resume=True),
    }
    verb = rng.choice(sorted(acts))
    if verb == "train":
        shutil.copytree(bench.run, run)

    def act() -> object:
        with full_disk(how, after):
            return acts[verb]()

    def left() -> str:
        parts = [path for path in contents(folder) if ".part-" in path]
        return f"left behind: {parts[:3]}" if parts else ""

    inputs = (bench.scans, bench.dataset, bench.prepared, bench.model, bench.quick_model)
    return Attack(told=f"{verb}: {how} {after}", act=act, inputs=inputs, wrong=left)


def misbehave(bench: Bench, folder: Path, rng: random.Random) -> Attack:
    """The second of these crashes and the third hangs, in order to see whether that is noticed."""
    acts: dict[str, Callable[[], object]] = {
        "self-test-1": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "self-test-2": lambda: time.sleep(60),
    }
    return Attack(told="a test of the judge", act=acts.get(folder.name, lambda: 0))
