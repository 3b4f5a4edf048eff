"""What runs in the benchmark's own processes."""

from dataclasses import replace

import pytest

from veloxseg.benchmark.models import find_model
from veloxseg.benchmark.worker import training_step


@pytest.mark.parametrize("name", ["s", "slim-unetr"])
def test_a_training_step_learns(name: str) -> None:
    step = training_step(
        replace(find_model(name), patch=(64, 32, 32) if name == "slim-unetr" else (64, 64, 64))
    )
    losses = [step() for _ in range(3)]
    assert losses[-1] < losses[0]
