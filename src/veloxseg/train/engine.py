"""Devices, precision and processes, by Lightning Fabric; and where the random numbers of a step come from."""

import contextlib
import logging
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from veloxseg.console import set_quiet
from veloxseg.errors import ConfigError
from veloxseg.train.recipe import Recipe

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["deterministic", "seed_step", "start_engine", "worker_count"]


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
    started = int(os.environ.get("WORLD_SIZE", "1"))  # by torchrun, or by Fabric for its further processes
    if isinstance(devices, int) and started > 1 and started != devices * nodes:
        raise ConfigError(
            f"{started} processes were started, but --devices {devices} × --nodes {nodes} is {devices * nodes}; "
            "let them agree"
        )
    several = nodes > 1 or devices != 1
    # every parameter has a gradient in the paper's objective; peers and single outputs may leave some out
    unused = not (recipe.teachers and recipe.deep_supervision)
    strategy: Any = DDPStrategy(find_unused_parameters=unused) if several else "auto"
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=strategy,
            precision=recipe.precision,
        )
    except (ValueError, RuntimeError, TypeError) as error:  # all that it raises for what is not there
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"cannot use {devices} of {accelerator} ({reason}); try --accelerator auto --devices 1"
        ) from error
    fabric.launch()
    if not fabric.is_global_zero:
        set_quiet(True)
    return fabric


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
