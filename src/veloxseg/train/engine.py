"""What a training runs on: devices, precision and processes (by Lightning Fabric), random numbers of a step, signals.

SIGTERM, Ctrl-C and the hang-up of a closed terminal become a wish, which the loop grants after its step by saving and
leaving; a second Ctrl-C stops at once.
"""

import contextlib
import logging
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from veloxseg.console import set_quiet
from veloxseg.errors import ConfigError, shown
from veloxseg.machine import keep_freed_memory
from veloxseg.train.recipe import Recipe

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Stop", "Stopped", "deterministic", "seed_step", "start_engine", "stop_on_signals", "worker_count"]


def start_engine(recipe: Recipe, *, accelerator: str, devices: int | str, nodes: int) -> "Fabric":
    """Fabric, launched: with several devices every process returns from here. Only the first one talks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own deprecations
        from lightning_fabric import Fabric
        from lightning_fabric.strategies import DDPStrategy

    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if recipe.threads:
        torch.set_num_threads(recipe.threads)
    keep_freed_memory()
    started = _processes_started()
    if isinstance(devices, int) and started > 1 and started != devices * nodes:
        raise ConfigError(
            f"{started} processes were started, but --devices {devices} × --nodes {nodes} is {devices * nodes}; "
            "let them agree"
        )
    several = nodes > 1 or devices != 1
    # In the paper's objective every parameter has a gradient; peers and single outputs may leave some without.
    unused = not (recipe.teachers and recipe.deep_supervision)
    strategy: Any = DDPStrategy(find_unused_parameters=unused) if several else "auto"
    try:
        fabric = Fabric(
            accelerator=accelerator, devices=devices, num_nodes=nodes, strategy=strategy, precision=recipe.precision
        )
    except (ValueError, RuntimeError, TypeError) as error:  # all that Fabric raises for what is not there
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"cannot use {shown(devices)} of {accelerator} ({reason}); try --accelerator auto --devices 1"
        ) from error
    if recipe.precision == "bf16-mixed" and fabric.device.type == "cpu":
        # seen in torch 2.13 on a processor with AVX512-BF16: parts of a weight's gradient are memory that nobody wrote
        raise ConfigError(
            "precision bf16-mixed is for GPUs: on a CPU the gradients of small convolutions are wrong in PyTorch; "
            "use --precision 32-true"
        )
    fabric.launch()
    if not fabric.is_global_zero:
        set_quiet(True)
    return fabric


def _processes_started() -> int:
    """How many processes this training has, as torchrun tells it, or Fabric its further processes."""
    text = os.environ.get("WORLD_SIZE", "1")
    if not (text.isdecimal() and len(text) < 10):
        raise ConfigError(f"WORLD_SIZE is {shown(text)!r}; it must be a number of processes: unset it, or use torchrun")
    return int(text)


@contextlib.contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """The same sums in the same order. Free on a CPU; on a GPU slower, and up-sampling only warns."""
    before, memory = torch.are_deterministic_algorithms_enabled(), cast(Any, torch.utils.deterministic)
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(wanted, warn_only=True)
    memory.fill_uninitialized_memory = False  # else each new tensor is first filled with NaN, to find bugs
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filled


def seed_step(seed: int, process: int, epoch: int, step: int) -> None:
    """Dropout of a step is a function of its address, like its patches: resuming needs no generator's state."""
    value = np.random.SeedSequence([seed, process, epoch, step]).generate_state(1, np.uint64)[0]
    torch.manual_seed(int(value >> np.uint64(1)))


def worker_count(recipe: Recipe, device: str) -> int:
    """On a CPU a patch is read while no core is free anyway."""
    if recipe.workers >= 0:
        return recipe.workers
    return 0 if device == "cpu" else min(8, max(1, (os.cpu_count() or 2) - 1))


@dataclass
class Stop:
    """Whether the user, or the machine's queue, wants the training to end."""

    wanted: bool = False


class Stopped(Exception):
    """Training ended early at the user's wish; everything is saved. The message says how to go on."""


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Within it, signals that would end the process set `wanted` instead."""
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.wanted and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.wanted = True

    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield stop
        return
    numbers = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup has it ignored
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
