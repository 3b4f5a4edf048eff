"""What is said of the machine, and of this process's memory."""

import json
import os
from mmap import mmap

import numpy as np
import pytest

from veloxseg.machine import allowed_cores, describe, peak_rss_mb, pin, rss_mb


def test_the_description_is_json_and_names_cpu_and_versions() -> None:
    machine = json.loads(json.dumps(describe()))
    assert machine["cpu"]
    assert machine["cores"] >= 1
    assert "torch" in machine["packages"]


def test_the_peak_remembers_what_was_freed() -> None:
    before = rss_mb()
    block = mmap(-1, 40 * 2**20)  # from the system: an allocator may have as much lying about
    np.frombuffer(block, np.uint8)[:] = 1
    with_block = rss_mb()
    block.close()
    assert with_block > before + 30
    assert peak_rss_mb() >= with_block - 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores can be chosen on Linux only")
def test_pinning_leaves_as_many_cores_as_threads() -> None:
    cores = allowed_cores()
    try:
        assert pin(1) == cores[:1] == allowed_cores()
    finally:
        os.sched_setaffinity(0, cores)
