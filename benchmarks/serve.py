"""What the server costs: packages, start, memory, answers while it predicts: `python benchmarks/serve.py MODEL`.

Run it in an environment with the extra `serve`, on a quiet machine. Prints one line per figure; data are synthetic.
"""

import argparse
import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.image import Geometry, Volume, write
from veloxseg.serve import Client

EXTRA = ("starlette", "uvicorn", "pynetdicom")


def packages() -> set[str]:
    """What the extra brings that veloxseg alone does not."""

    def needed(names: set[str]) -> set[str]:
        found: set[str] = set()
        todo = set(names)
        while todo:
            name = todo.pop()
            found.add(name)
            for line in importlib.metadata.requires(name) or ():
                word = re.split(r"[ ;<>=!~\[(]", line)[0].lower()
                if "extra ==" not in line and word not in found and installed(word):
                    todo.add(word)
        return found

    return needed(set(EXTRA)) - needed({"veloxseg"})


def installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def memory_mb(process: int, what: str = "VmRSS") -> float:
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def case(folder: Path, shape: tuple[int, int, int]) -> list[Path]:
    """A synthetic patient of any size: noise in a body, with a hot spot."""
    random = np.random.default_rng(0)
    geometry = Geometry(shape=shape, affine=np.diag([2.0, 2.0, 3.0, 1.0]))
    ct = np.full(shape, -1000, np.float32)
    box = tuple(slice(n // 5, 4 * n // 5) for n in shape)
    ct[box] = 40 + 10 * random.standard_normal(ct[box].shape, np.float32)
    pet = np.where(ct > -500, 1, 0).astype(np.float32)
    pet[tuple(slice(n // 2 - 5, n // 2 + 5) for n in shape)] = 9
    paths = [folder / "ct.nii.gz", folder / "pet.nii.gz"]
    for path, array in zip(paths, (ct, pet), strict=True):
        write(Volume(array=array, geometry=geometry), path)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--size", type=int, nargs=3, default=(200, 200, 160))
    arguments = parser.parse_args()
    added = packages()
    print(f"packages added: {len(added)} ({', '.join(sorted(added))})")
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name), arguments.model, tuple(arguments.size))


def measure(folder: Path, model: str, size: Any) -> None:
    began = time.monotonic()
    command = [sys.executable, "-m", "veloxseg", "serve", "-m", model, "-o", str(folder / "served"), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        url = next(line.strip() for line in process.stdout if line.startswith("http"))
        address, client = url.partition("/#")[0], Client(url)
        print(f"listening after {time.monotonic() - began:.2f} s")
        while not ready(address):
            time.sleep(0.05)
        print(f"workers ready after {time.monotonic() - began:.2f} s")
        print(f"memory idle: {memory_mb(process.pid):.0f} MB")
        big = folder / "big.bin"
        big.write_bytes(np.random.default_rng(0).bytes(300_000_000))
        began = time.monotonic()
        client.upload(client.create(), big)
        print(f"300 MB received in {time.monotonic() - began:.1f} s, peak {memory_mb(process.pid, 'VmHWM'):.0f} MB")
        print(json.dumps(answers(address, client, case(folder, size))))
    finally:
        process.terminate()
        process.wait(60)


def ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz"):
            return True
    except OSError:
        return False


def answers(address: str, client: Client, files: list[Path]) -> dict[str, float]:
    """Milliseconds of /healthz while a case is predicted and a hundred connections ask at the same time."""
    times: list[float] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            began = time.monotonic()
            with urllib.request.urlopen(f"{address}/healthz"):
                times.append(1000 * (time.monotonic() - began))
            done.wait(1.0)

    askers = [threading.Thread(target=ask) for _ in range(100)]
    for asker in askers:
        asker.start()
    began = time.monotonic()
    client.segment(files)
    seconds = time.monotonic() - began
    done.set()
    for asker in askers:
        asker.join()
    return {"case_seconds": round(seconds, 1), "p50_ms": round(float(np.percentile(times, 50)), 1),
            "p99_ms": round(float(np.percentile(times, 99)), 1), "answers": len(times)}  # fmt: skip


if __name__ == "__main__":
    main()
