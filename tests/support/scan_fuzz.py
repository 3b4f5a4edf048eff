"""Seeded damage to small image files of every type; reads each, and prints what happened as JSON.

Run as a script with bounded memory (the tests do), so that a crash, a hang or a greedy allocation is seen:

    PYTHONPATH=tests python -m support.scan_fuzz FOLDER --count 400 --seed 1 --memory-mb 1024
"""

import argparse
import json
import random
import resource
import signal
import struct
import sys
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import veloxseg.image as vio
from support.scan_samples import write_samples
from veloxseg.errors import VeloxSegError

EXTREMES = [b"\0\0", b"\xff\xff", b"\xff\x7f", b"\0\x80", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff"]
FLOATS = [float("nan"), float("inf"), -1.0, 0.0, 1e30, -1e-30]
WORDS = [b"-1", b"0", b"99999999999", b"nan", b"inf", b"1e400", b"", b"x", b"\xff\xfe", b"../../etc/passwd", b"none"]
SECONDS = 10  # for one file; the largest sample has some thousand voxels


def flip(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(min(len(data), rng.choice([64, 600, len(data)])))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def overwrite(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(min(len(data), rng.choice([128, 600, len(data)])))
    new = rng.choice(EXTREMES) if rng.random() < 0.6 else struct.pack("<f", rng.choice(FLOATS))
    return data[:at] + new + data[at + len(new) :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def remove(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice([1, 2, 7, 64]) :]


def repeat(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at : at + rng.choice([1, 4, 100])] * rng.choice([2, 50]) + data[at:]


def replace_word(data: bytes, rng: random.Random) -> bytes:
    """For text headers: one word of the first lines becomes another."""
    head = data[:600].split(b" ")
    head[rng.randrange(len(head))] = rng.choice(WORDS)
    return b" ".join(head) + data[600:]


MUTATIONS: list[Callable[[bytes, random.Random], bytes]] = [
    flip,
    overwrite,
    overwrite,
    cut,
    remove,
    repeat,
    replace_word,
]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to three mutations; a gzip file is damaged inside or outside of its compression."""
    inside = data.startswith(b"\x1f\x8b") and rng.random() < 0.6
    if inside:
        data = zlib.decompress(data, 31)
    for _ in range(rng.choice([1, 1, 2, 3])):
        data = rng.choice(MUTATIONS)(data, rng) or b"\0"
    if inside:
        packer = zlib.compressobj(1, zlib.DEFLATED, 31)
        data = packer.compress(data) + packer.flush()
    return data


def outcome(read: Callable[[], object]) -> str:
    """ "read", the type of our error, or the traceback of any other."""
    signal.alarm(SECONDS)
    try:
        read()
    except VeloxSegError as error:
        return "two lines" if "\n" in str(error) or len(str(error)) > 600 else type(error).__name__
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    return "read"


def run(folder: Path, count: int, seed: int) -> dict[str, object]:
    samples = write_samples(folder)
    image = vio.read(samples["series"])
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    failures = []
    for number in range(count):
        name = sorted(samples)[number % len(samples)]
        target = samples[name]
        files = (
            sorted(p for p in target.parent.glob(target.stem + "*") if p.is_file())
            if target.is_file()
            else sorted(target.iterdir())
        )
        victim = rng.choice(files)
        original = victim.read_bytes()
        before = sorted(p.name for p in folder.rglob("*"))
        victim.write_bytes(mutate(original, rng))
        if name in ("seg", "rtstruct"):
            result = outcome(partial(vio.read_label, target, reference=image))
        else:
            result = outcome(partial(vio.read, target))
        if result not in ("read", "ImageError", "GeometryError") or sorted(p.name for p in folder.rglob("*")) != before:
            failures.append({"number": number, "file": name, "result": result})
            (folder.parent / f"failure-{seed}-{number}-{victim.name}").write_bytes(victim.read_bytes())
        outcomes[f"{name} {result if result in ('read', 'ImageError', 'GeometryError') else 'FAILED'}"] += 1
        victim.write_bytes(original)
    return {
        "outcomes": dict(outcomes),
        "failures": failures,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory-mb", type=int, default=1024)
    given = parser.parse_args()
    import highdicom  # noqa: F401  loaded before the limit, which is for what reading takes
    import SimpleITK  # noqa: F401

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + given.memory_mb * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    np.seterr(all="ignore")
    json.dump(run(given.folder, given.count, given.seed), sys.stdout)


if __name__ == "__main__":
    main()
