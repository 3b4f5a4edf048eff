"""Seeded damage to headers and streams of every type: our errors or success, no other; bounded time and memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MUTATIONS = 520  # 40 for each of 13 samples

TESTS = Path(__file__).parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
def test_damaged_files_give_our_errors_only(tmp_path: Path) -> None:
    """In a process of its own: a crash of a C library, a hang or a greedy allocation fails the test."""
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "support.scan_fuzz",
        str(tmp_path / "scans"),
        "--count",
        str(MUTATIONS),
    ]
    done = subprocess.run(
        [*command, "--seed", "20", "--memory-mb", "512"], capture_output=True, text=True, timeout=120, cwd=TESTS
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""  # no library prints past us
    report = json.loads(done.stdout)
    assert report["failures"] == []
    outcomes = report["outcomes"]
    assert sum(outcomes.values()) == MUTATIONS
    samples = {name.split()[0] for name in outcomes}
    assert len(samples) == 13
    for name in samples:  # the damage is real: many files are refused, of each type
        assert sum(n for key, n in outcomes.items() if key.startswith(name) and "Error" in key) >= 10, name
    assert sum(n for key, n in outcomes.items() if key.endswith("read")) >= 50  # and some is harmless
