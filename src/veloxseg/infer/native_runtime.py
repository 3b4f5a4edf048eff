"""The native runtime: VeloxSeg in C (native/), the fastest on CPUs with AVX2; where it was built, the default."""

from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ConfigError, MissingDependencyError, ModelError
from veloxseg.infer.native.library import kernels
from veloxseg.infer.native.program import Program, is_supported
from veloxseg.model.config import NetworkConfig
from veloxseg.modelfolder import ModelFolder
from veloxseg.prepare.parallel import default_workers

__all__ = ["NativeRuntime", "can_compute", "check_native", "is_built"]

Floats = npt.NDArray[np.float32]


def is_built() -> bool:
    """Whether the kernels were compiled at installation, for a processor like this one."""
    return kernels() is not None


def can_compute(folder: ModelFolder) -> bool:
    return folder.architecture == "veloxseg" and is_supported(NetworkConfig.from_json(folder.network))


def check_native(folder: ModelFolder) -> None:
    if not is_built():
        raise MissingDependencyError(
            "runtime native was not built: installing veloxseg builds it where there is a C compiler, for processors "
            "with AVX2; use --runtime openvino"
        )
    if not can_compute(folder):
        raise ConfigError(
            f"runtime native computes VeloxSeg's presets, not this {folder.architecture}; use --runtime openvino"
        )


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
        self.threads = self.windows_at_once = threads or default_workers()  # each has 60 MB of buffers
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
