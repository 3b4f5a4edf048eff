"""No kernel of training touches what is not its own: `make asan` has 1,000 shapes, here are some of them."""

from pathlib import Path

import pytest

from support import asan, asan_training
from veloxseg.kernels import library

BUILT = [name for name in library.NAMES if library.training_kernels(name) is not None]


@pytest.mark.slow
@pytest.mark.skipif(asan.sanitizer() is None, reason="gcc has no AddressSanitizer here")
@pytest.mark.parametrize("name", BUILT)
def test_shapes_stay_within_their_tensors(name: str, tmp_path: Path) -> None:
    asan_training.build(name, tmp_path / "training.so")
    done = asan_training.run(name, tmp_path / "training.so", 80, seed=1)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "64 honest, computed, 16 lying, refused"
    proof = asan_training.run(name, tmp_path / "training.so", 1, prove=True)
    assert "ERROR: AddressSanitizer" in proof.stderr
