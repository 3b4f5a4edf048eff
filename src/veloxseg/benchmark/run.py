"""A whole benchmark: models × runtimes × thread counts, measured side by side, as one list of rows.

    build and count → write MODEL folders (and export) → time all in turn, a process per thread count
                    → cold start and peak memory, a process per contender

MONAI's BasicUNet in eager PyTorch always takes part: `times_unet` is how many patches a contender computes in
the time of one of its forward passes (U), in the same process and the same minutes.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from veloxseg.benchmark.counts import count
from veloxseg.benchmark.models import YARDSTICK, BenchmarkModel, find_model, write_folder
from veloxseg.console import say, warn
from veloxseg.errors import ConfigError, VeloxSegError, shown
from veloxseg.machine import allowed_cores, describe
from veloxseg.model_folder import ModelFolder
from veloxseg.runtimes import RUNTIMES, obstacle
from veloxseg.types import Size

__all__ = ["benchmark"]


@dataclass
class Contender:
    """One row in the making: a model in a runtime, at a batch size and thread count."""

    model: BenchmarkModel
    runtime: str
    threads: int
    batch: int
    folder: Path
    counts: dict[str, Any]
    device: str = "cpu"
    measured: dict[str, Any] = field(default_factory=dict)

    def trains(self, requested: Sequence[str]) -> bool:
        """The yardstick, if nobody asked for it, is only there to be compared with."""
        return self.runtime == "torch" and self.batch == 1 and self.model.name in requested

    def job(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "runtime": self.runtime,
            "device": self.device,
            "batch": self.batch,
            "input_shape": self.model.input_shape,
        }


def benchmark(
    models: Sequence[str],
    runtimes: Sequence[str] = tuple(reversed(RUNTIMES)),
    threads: Sequence[int] | None = None,
    *,
    own: Sequence[BenchmarkModel] = (),
    task: str | None = None,
    patch: Size | None = None,
    batches: Sequence[int] = (1,),
    training: bool = False,
    device: str = "cpu",
) -> list[dict[str, Any]]:
    """Measures and returns one row per model, runtime, thread count and batch size.

    `task` and `patch` are the input of all named models, the yardstick too; `own` ones keep theirs.

    `threads` defaults to one and all cores. Batches beyond 1 run in torch only: exported graphs have batch 1.
    With `training`, the memory and time of a training step are measured too (slow for large peers).
    """
    chosen = [*(find_model(name, task, patch) for name in dict.fromkeys([*models, YARDSTICK])), *own]
    requested = [*models, *(model.name for model in own)]
    if unknown := [name for name in runtimes if name not in RUNTIMES]:
        raise ConfigError(f"there is no runtime {unknown[0]!r}; choose from {', '.join(reversed(RUNTIMES))}")
    counts = sorted({min(count, len(allowed_cores())) for count in threads or (1, len(allowed_cores()))})
    if device != "cpu":
        check_device(device)
        runtimes = [name for name in runtimes if not RUNTIMES[name].cpu_only] or ["torch"]
    machine = describe()
    with tempfile.TemporaryDirectory(prefix="veloxseg-benchmark-") as temporary:
        contenders = _prepare(chosen, runtimes, counts, batches, requested=requested, root=Path(temporary))
        for contender in contenders:
            contender.device = device
        for count in counts:
            _time([c for c in contenders if c.threads == count], Path(temporary))
        for contender in contenders:
            say(f"  memory and cold start: {contender.model.title}, {contender.runtime}")
            _probe(contender, Path(temporary), training=training and contender.trains(requested))
    return [_row(contender, machine) for contender in contenders]


def _prepare(
    models: Sequence[BenchmarkModel],
    runtimes: Sequence[str],
    threads: Sequence[int],
    batches: Sequence[int],
    *,
    requested: Sequence[str],
    root: Path,
) -> list[Contender]:
    """Builds, counts, writes and exports every model; what a runtime cannot take is left out with a warning."""
    contenders = []
    for model in models:
        wanted = [name for name in runtimes if model.name in requested]
        if model.name == YARDSTICK and "torch" not in wanted:
            wanted.insert(0, "torch")
        say(f"  preparing {model.title}")
        network = model.build()
        counts = count(model, network)
        folder = write_folder(model, network, root / model.name)
        for runtime in wanted:
            if (reason := obstacle(folder, runtime)) is not None:
                warn(f"{model.title} is left out for {runtime}: {reason}")
                continue
            try:
                path = _exported(folder, runtime, root / runtime / model.name)
            except Exception as error:
                warn(f"{model.title} does not export to {runtime}: {str(error).splitlines()[0][:200]}")
                continue
            sized = {**counts, "file_mb": _size_mb(path)}
            contenders += [
                Contender(model, runtime, count, batch, path, sized)
                for count in threads
                for batch in batches
                if batch == 1 or (runtime == "torch" and model.name in requested)
            ]
    return contenders


def check_device(device: str) -> None:
    """Refuses a device that is not there, before anything is built."""
    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {shown(device)!r} cannot be used ({shown(reason)}); leave --device out") from error


def _exported(folder: ModelFolder, runtime: str, target: Path) -> Path:
    """The folder that the runtime reads: the weights themselves for torch, an exported graph otherwise."""
    if RUNTIMES[runtime].writer is None and RUNTIMES[runtime].converter is None:
        return folder.path
    from veloxseg.runtimes.export import convert

    target.mkdir(parents=True)
    convert(folder, runtime, target)
    replace(folder, path=target).write_description()
    return target


def _size_mb(folder: Path) -> float:
    """What the weights, or the exported graph, take on disk."""
    return sum(part.stat().st_size for part in folder.iterdir() if part.suffix != ".json") / 2**20


def _time(contenders: Sequence[Contender], root: Path) -> None:
    """All contenders of one thread count, in turn, in one fresh process."""
    answers = _work({"task": "time", "contenders": [c.job() for c in contenders]}, contenders[0].threads, root)
    for contender, answer in zip(contenders, answers, strict=True):
        contender.measured.update(answer)
    yardstick = next(c for c in contenders if (c.model.name, c.runtime, c.batch) == (YARDSTICK, "torch", 1))
    for contender in contenders:
        if "median" in contender.measured:
            patch = contender.measured["median"] / contender.batch
            contender.measured["times_unet"] = yardstick.measured["median"] / patch


def _probe(contender: Contender, root: Path, *, training: bool) -> None:
    for task in ("probe", "train") if training else ("probe",):
        job = {"task": task, "contenders": [contender.job()]}
        contender.measured.update(_work(job, contender.threads, root))


def _work(job: dict[str, Any], threads: int, root: Path) -> Any:
    answer, order = root / "answer.json", root / "job.json"
    job = {**job, "threads": threads, "answer": str(answer), "started": time.monotonic()}
    order.write_text(json.dumps(job), encoding="utf-8")
    command = [sys.executable, "-m", "veloxseg.benchmark.worker", str(order)]
    private = {**os.environ, "XDG_CACHE_HOME": str(root / "cache")}  # graphs of random weights are not worth keeping
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=private) as process:
        for line in process.stdout or ():
            say(line.rstrip())
    if process.returncode:
        raise VeloxSegError(f"the {job['task']} process of the benchmark ended with code {process.returncode}")
    return json.loads(answer.read_text(encoding="utf-8"))


def _row(contender: Contender, machine: dict[str, Any]) -> dict[str, Any]:
    measured, batch = contender.measured, contender.batch

    def rate(name: str) -> float | None:
        return batch / measured[name] if name in measured else None

    return {
        "model": contender.model.name,
        "title": contender.model.title,
        "input": list(contender.model.input_shape[1:]),
        "runtime": contender.runtime,
        "device": contender.device,
        "threads": contender.threads,
        "batch": batch,
        **contender.counts,
        "patches_per_second": rate("median"),
        "patches_per_second_low": rate("high"),
        "patches_per_second_high": rate("low"),
        "runs": measured.get("runs"),
        "times_unet": measured.get("times_unet"),
        "peak_rss_mb": measured.get("peak_rss_mb"),
        "peak_gpu_mb": measured.get("peak_gpu_mb"),
        "cold_start_seconds": measured.get("cold_start_seconds"),
        "training_step_seconds": measured.get("training_step_seconds"),
        "training_peak_rss_mb": measured.get("training_peak_rss_mb"),
        "training_peak_gpu_mb": measured.get("training_peak_gpu_mb"),
        "published": asdict(contender.model.published),
        "machine": machine,
    }
