"""What runs in the benchmark's own processes."""

from dataclasses import replace
from pathlib import Path

import pytest

from veloxseg.benchmark import worker
from veloxseg.benchmark.models import find_model, write_folder
from veloxseg.benchmark.timing import Spread
from veloxseg.benchmark.worker import training_step
from veloxseg.runtimes.native.runtime import is_built


@pytest.mark.parametrize("name", ["s", "slim-unetr"])
def test_a_training_step_learns(name: str) -> None:
    model = replace(find_model(name), patch=(64, 32, 32) if name == "slim-unetr" else (64, 64, 64))
    step = training_step(model.architecture, model.settings())
    losses = [step() for _ in range(3)]
    assert losses[-1] < losses[0]


def test_time_and_memory_of_a_training_step_are_measured_on_the_models_own_input(tmp_path: Path) -> None:
    model = find_model("s", patch=(32, 32, 32))
    folder = write_folder(model, model.build(), tmp_path)
    answer = worker.train({"threads": 1, "contenders": [{"folder": str(folder.path), "device": "cpu"}]})
    assert answer["training_step_seconds"] > 0
    assert answer["training_peak_rss_mb"] > 0
    assert answer["training_peak_gpu_mb"] is None


@pytest.mark.skipif(not is_built(), reason="the kernels were not built: no C compiler")
@pytest.mark.parametrize("threads", [1, 3])
def test_windows_that_are_computed_at_a_time_count_each(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a run is shared by its windows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # put back afterwards
    model = replace(find_model("s"), patch=(32, 32, 32))
    folder = write_folder(model, model.build(), tmp_path)
    results = []

    def interleave(runs, **_):
        results.extend(run() for run in runs)
        return [Spread(median=6.0, low=3.0, high=9.0, runs=1)]

    monkeypatch.setattr("veloxseg.benchmark.timing.interleave", interleave)
    contender = {"folder": str(folder.path), "runtime": "native", "batch": 1, "input_shape": [1, 2, 32, 32, 32]}
    (answer,) = worker.time_all({"threads": threads, "contenders": [contender]})
    assert answer == {"median": 6 / threads, "low": 3 / threads, "high": 9 / threads, "runs": 1}
    assert threads == 1 or len(results[0]) == threads
