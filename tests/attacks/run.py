"""Runs the attacks: `PYTHONPATH=tests python -m attacks.run --seed 0 --count 10000 [--only CLASS] [--json FILE]`.

Each class of lie has its own process with bounded memory, in which attack after attack is told and judged. An attack
that outlasts its time, or that ends the process, has failed; the next process goes on after it. The random numbers of
an attack follow from the seed, the class and its index alone, so that `--only headers --index 17` repeats it.
"""

import argparse
import datetime
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attacks import commands, machine, scans, texts, weights
from attacks.attack import Attack, judge
from attacks.bench import Bench

MEMORY = 3 << 30  # beyond what an idle process has; the largest true case needs a tenth
Generator = Callable[[Bench, Path, random.Random], Attack]

TESTS = Path(__file__).parents[1]  # where `-m attacks.run` is found


@dataclass(frozen=True)
class Class:
    """A class of lie: who tells it, its part of all inputs, and the seconds of a core that one may take."""

    tell: Generator
    share: float
    seconds: int = 30


CLASSES: dict[str, Class] = {
    "headers": Class(scans.header, 0.30, 10),
    "dicom": Class(scans.dicom, 0.18, 10),
    "spacing": Class(scans.spacing, 0.05),
    "json": Class(texts.description, 0.20, 100),  # a lie may ask for a minute of training
    "safetensors": Class(weights.safetensors, 0.05),
    "graphs": Class(weights.graph, 0.03),
    "names": Class(commands.name, 0.04),
    "options": Class(commands.option, 0.12),
    "disks": Class(machine.disk, 0.02),
    "flips": Class(weights.flip, 0.01),
    "kills-training": Class(machine.kill_training, 0.001, 400),  # five kills each
    "kills-prediction": Class(machine.kill_prediction, 0.005, 60),
    "self-test": Class(machine.misbehave, 0, 2),  # proves that crashes and hangs are seen; no attack on the program
}
ALL = [name for name, kind in CLASSES.items() if kind.share]


def tell(name: str, seed: int, index: int, bench: Bench, folder: Path) -> Attack:
    """The attack of this number, in a folder of its own."""
    place = folder / f"{name}-{index}"
    place.mkdir()
    return CLASSES[name].tell(bench, place, random.Random(f"{seed} {name} {index}"))


def work(name: str, seed: int, indices: range, folder: Path, results: Path) -> None:
    """Tells the attacks of one class, and notes the beginning and the end of each."""
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    bench = Bench(folder / "bench")
    if name in ALL:
        bound_memory()
    with open(results, "a", buffering=1) as notes:
        for index in indices:
            notes.write(json.dumps({"index": index}) + "\n")
            attack = tell(name, seed, index, bench, folder)
            notes.write(json.dumps({"index": index, "told": attack.told, "tries": attack.tries}) + "\n")
            bound_time(CLASSES[name].seconds)
            begun = time.monotonic()
            verdict = judge(attack)
            bound_time(0)
            ended = {"index": index, "outcome": verdict.outcome, "failure": verdict.failure}
            notes.write(json.dumps(ended | {"seconds": round(time.monotonic() - begun, 2)}) + "\n")
            shutil.rmtree(folder / f"{name}-{index}", ignore_errors=True)


def bound_time(seconds: int) -> None:
    """Ends this process, C code included, after so much work, or after four times as long: others may use the cores."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(4 * seconds)


def bound_memory() -> None:
    import SimpleITK  # noqa: F401  loaded before the limit, which is for the work itself
    import torch
    import torch._dynamo  # which cannot be imported again where a full disk ended its first import

    torch.set_num_threads(1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


def run_class(name: str, seed: int, indices: range, folder: Path) -> list[dict[str, Any]]:
    """The results of one class, attack by attack."""
    found: dict[int, dict[str, Any]] = {}
    results = folder / f"{name}.jsonl"
    while left := [index for index in indices if index not in found]:
        command = [sys.executable, "-m", "attacks.run", "--work", str(folder), "--only", name, "--seed", str(seed)]
        command += ["--index", str(left[0]), "--until", str(indices.stop)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, cwd=TESTS)
        for line in results.read_text().splitlines() if results.exists() else ():
            note = json.loads(line)
            found.setdefault(note["index"], {}).update(note)
        if left[0] not in found:
            raise RuntimeError(f"the attacks could not be started: {done.stderr[-2000:]}")
        if done.returncode:
            last = found[max(found)]
            if "outcome" not in last:
                late = done.returncode in (-signal.SIGALRM, -signal.SIGPROF)
                why = f"over {CLASSES[name].seconds} s" if late else f"the process ended with {done.returncode}"
                last |= {"outcome": "died", "failure": f"{why}: {done.stderr[-1500:]}"}
    return [found[index] for index in indices]


def run(seed: int, count: int, names: list[str], index: int | None, progress: Callable[[str], None]) -> dict[str, Any]:
    """All results and what they come to, per class."""
    table: dict[str, Any] = {}
    failures = []
    with tempfile.TemporaryDirectory(prefix="attacks-") as folder:
        for name in names:
            number = max(1, round(CLASSES[name].share * count)) if name in ALL else count
            indices = range(number) if index is None else range(index, index + 1)
            begun = time.monotonic()
            rows = run_class(name, seed, indices, Path(folder))
            table[name] = summary(rows) | {"seconds": round(time.monotonic() - begun)}
            bad = [row | {"class": name} for row in rows if row["failure"]]
            failures += bad
            progress(f"{name}: {table[name]}")
            for row in bad:
                progress(f"  {name} {row['index']} ({row.get('told')}): {row['failure'].strip()[-700:]}")
    return {"seed": seed, "classes": table, "failures": failures}


def summary(rows: list[dict[str, Any]]) -> dict[str, int]:
    counts: Counter[str] = Counter({"tried": 0, "held": 0, "refused": 0, "done": 0})
    for row in rows:
        tries = row.get("tries", 1)
        counts["tried"] += tries
        if not row["failure"]:
            counts["held"] += tries
            counts[row["outcome"]] += tries
    return dict(counts)


def commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
    )
    return asked.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000, help="inputs in all")
    parser.add_argument("--only", action="append", choices=list(CLASSES), help="these classes (default: all)")
    parser.add_argument("--index", type=int, help="repeat this attack of the class alone")
    parser.add_argument("--json", type=Path, help="write the results")
    parser.add_argument("--page", type=Path, help="write the table into this page")
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work is not None:
        (name,) = given.only
        work(name, given.seed, range(given.index, given.until), given.work, given.work / f"{name}.jsonl")
        return 0
    found = run(given.seed, given.count, given.only or ALL, given.index, lambda line: print(line, flush=True))
    found |= {"date": datetime.date.today().isoformat(), "commit": commit(), "count": given.count}
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    if given.page:
        from attacks.page import write_table

        write_table(given.page, found)
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
