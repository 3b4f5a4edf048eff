"""The native runtime: VeloxSeg in C (native/), the fastest on CPUs with AVX2; where it was built, the default."""

import os
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ModelError
from veloxseg.infer.native.library import kernels
from veloxseg.infer.native.program import Program, is_supported
from veloxseg.model.config import NetworkConfig
from veloxseg.modelfolder import ModelFolder

__all__ = ["NativeRuntime", "can_compute", "is_built"]

Floats = npt.NDArray[np.float32]
MOST_THREADS = 8  # unless asked for more: each has 60 MB of buffers


def is_built() -> bool:
    """Whether the kernels were compiled at installation, for a processor like this one."""
    return kernels() is not None


def can_compute(folder: ModelFolder) -> bool:
    return folder.architecture == "veloxseg" and is_supported(NetworkConfig.from_json(folder.network))


class NativeRuntime:
    """A window is computed by one thread; several threads compute several windows at the same time."""

    name = "native"

    def __init__(self, weights: Path, network: dict[str, Any], *, threads: int | None = None) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            self._weights = load_file(weights)
        except (OSError, SafetensorError) as error:
            raise ModelError(f"{weights} cannot be read ({error}); export the model again") from error
        self._config = NetworkConfig.from_json(network)
        self.threads = self.windows_at_once = threads or min(_cores(), MOST_THREADS)
        self._programs: SimpleQueue[Program] = SimpleQueue()
        self._programs.put(Program(self._config, self._weights))  # wrong weights are refused here

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        """With one thread the result is a buffer that the next call overwrites."""
        try:
            program = self._programs.get_nowait()
        except Empty:
            program = Program(self._config, self._weights)
        try:
            result = program(window_1CXYZ)
            return result if self.threads == 1 else result.copy()
        finally:
            self._programs.put(program)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
