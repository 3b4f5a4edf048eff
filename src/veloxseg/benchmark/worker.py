"""The two processes of a benchmark that must start fresh, each `python -m veloxseg.benchmark.worker JOB.json`.

`time`    all contenders of one thread count in one process, bound to as many cores, run in turn (timing.py).
`probe`   one contender alone: seconds from the start of the process to its first result, and its peak memory.
`train`   one contender alone: seconds and peak memory of a training step, forward, loss, backward and update.

Memory is the process's, and on a GPU also the most that torch's allocator reserved there, as in the paper's table.

The job says what to do; the answer is written into the file that it names.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from veloxseg.console import say
from veloxseg.machine import peak_rss_mb, pin
from veloxseg.model_folder import ModelFolder, build_network

__all__ = ["main", "training_step"]

TRAINING_BATCH = 2


def main(path: str) -> None:
    job = json.loads(Path(path).read_text(encoding="utf-8"))
    pin(job["threads"])  # before anything starts threads
    answer = {"time": time_all, "probe": probe, "train": train}[job["task"]](job)
    Path(job["answer"]).write_text(json.dumps(answer), encoding="utf-8")


def time_all(job: dict[str, Any]) -> list[dict[str, Any]]:
    import os

    os.environ["OMP_NUM_THREADS"] = str(job["threads"])
    from veloxseg.benchmark.timing import ROUNDS, interleave

    runs, windows = zip(*(_open(contender, job["threads"]) for contender in job["contenders"]), strict=True)
    results = interleave(
        runs, on_round=lambda number: say(f"  {job['threads']} thread(s), round {number + 1} of {ROUNDS}")
    )
    return [
        {**asdict(result), **{name: getattr(result, name) / count for name in ("median", "low", "high")}}
        for result, count in zip(results, windows, strict=True)
    ]


def probe(job: dict[str, Any]) -> dict[str, float | None]:
    run, _ = _open(job["contenders"][0], job["threads"])
    run()
    first = time.monotonic() - job["started"]
    gpu = peak_gpu_mb(job["contenders"][0]["device"])
    return {"cold_start_seconds": first, "peak_rss_mb": peak_rss_mb(), "peak_gpu_mb": gpu}


def train(job: dict[str, Any]) -> dict[str, float | None]:
    import torch

    torch.set_num_threads(job["threads"])
    contender = job["contenders"][0]
    folder = ModelFolder.open(contender["folder"])
    step = training_step(folder.architecture, folder.network, contender["device"])
    step()  # the second step has the optimiser's memory and warm caches
    start = time.perf_counter()
    step()
    return {
        "training_step_seconds": time.perf_counter() - start,
        "training_peak_rss_mb": peak_rss_mb(),
        "training_peak_gpu_mb": peak_gpu_mb(contender["device"]),
    }


def peak_gpu_mb(device: str) -> float | None:
    """The most memory that torch's allocator held on the GPU; None for another device."""
    import sys

    torch = sys.modules.get("torch")  # a runtime without torch is not on a GPU, and must not pay for the import
    if torch is None or not device.startswith("cuda"):
        return None
    return round(torch.cuda.max_memory_reserved(device) / 2**20, 1)


def _open(contender: dict[str, Any], threads: int) -> tuple[Callable[[], object], int]:
    """The contender as a function without arguments, on random windows, and how many it computes at a time."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from veloxseg.runtimes import open_runtime

    folder = ModelFolder.open(contender["folder"])
    runtime = open_runtime(folder, contender["runtime"], threads=threads, device=contender.get("device", "cpu"))
    shape = (contender["batch"], *contender["input_shape"][1:])
    window = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    if (windows := runtime.windows_at_once) == 1:
        return lambda: runtime(window), 1
    pool = ThreadPoolExecutor(windows)
    return lambda: list(pool.map(runtime, [window] * windows)), windows


def training_step(architecture: str, settings: dict[str, Any], device: str = "cpu") -> Callable[[], float]:
    """One step on random data, giving its loss. VeloxSeg trains with its teachers, a peer with its one output."""
    import torch

    from veloxseg.model.config import NetworkConfig
    from veloxseg.model.losses import sdkt_loss, segmentation_loss
    from veloxseg.model.sdkt import SDKTModel

    torch.manual_seed(0)
    channels, patch = sum(settings["in_channels"]), settings["patch"]
    image = torch.randn(TRAINING_BATCH, channels, *patch).to(device)
    label = torch.randint(settings["classes"], (TRAINING_BATCH, *patch)).to(device)
    teaches = architecture == "veloxseg" and settings["attention"] != "none"
    network = SDKTModel(NetworkConfig.from_json(settings)) if teaches else build_network(architecture, settings)
    network.to(device).train()
    optimiser = torch.optim.AdamW(network.parameters())

    def step() -> float:
        optimiser.zero_grad()
        output = network(image)
        loss = sdkt_loss(output, image, label).total if teaches else torch.stack(segmentation_loss(output, label)).sum()
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


if __name__ == "__main__":
    main(sys.argv[1])
