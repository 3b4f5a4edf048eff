"""How long it takes to start: bare Python, `import veloxseg`, `veloxseg --help`, and one 96³ case predicted cold.

    .venv/bin/python benchmarks/startup.py            writes benchmarks/startup.json

Each command is a fresh process; CPU seconds of the process (user and system) and seconds on the clock, the median of
several rounds in which the commands take turns.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from support.models import build_plan, build_scans, save_model  # noqa: E402

from veloxseg.image import write  # noqa: E402
from veloxseg.machine import describe  # noqa: E402

ROUNDS = 7


def run(words: list[str]) -> tuple[float, float]:
    """Seconds on the clock and of the processor, of one process whose output is thrown away."""
    began, before = time.perf_counter(), os.times()
    process = os.posix_spawn(
        words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    )
    if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
        raise SystemExit(f"failed: {' '.join(words)}")
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, cpu


def main() -> None:
    program = str(Path(sys.executable).with_name("veloxseg"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = save_model(folder / "model", build_plan(patch=(96, 96, 96)))
        scans: list[str] = []
        for name, volume in build_scans((96, 96, 96), affine=np.diag([2.0, 2.0, 2.0, 1.0])).items():
            write(volume, folder / f"{name}.nii.gz")
            scans += ["-i", f"{name}={folder / name}.nii.gz"]
        commands = {
            "python": [sys.executable, "-c", "pass"],
            "import veloxseg": [sys.executable, "-c", "import veloxseg"],
            "veloxseg --help": [program, "--help"],
            "predict one 96x96x96 case": [
                program, "predict", "-m", str(model), *scans, "-o", str(folder / "mask.nii.gz"), "--threads", "1",
            ],
        }  # fmt: skip
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, words in commands.items():
                found[name].append(run(words))
                (folder / "mask.nii.gz").unlink(missing_ok=True)
                (folder / "mask.json").unlink(missing_ok=True)
    rows = {
        name: {
            "seconds": round(statistics.median(seconds for seconds, _ in runs), 3),
            "cpu_seconds": round(statistics.median(cpu for _, cpu in runs), 3),
            "least_seconds": round(min(seconds for seconds, _ in runs), 3),
        }
        for name, runs in found.items()
    }
    result = {"machine": describe(), "rounds": ROUNDS, "threads": 1, "rows": rows}
    (HERE / "startup.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name, row in rows.items():
        print(f"{name:28s} {row['seconds']:.3f} s (least {row['least_seconds']:.3f}), {row['cpu_seconds']:.3f} s of CPU")


if __name__ == "__main__":
    main()
