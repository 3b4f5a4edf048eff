"""The native runtime: VeloxSeg in C (this folder), the fastest on CPUs with AVX2; `auto` takes it where it is built."""

from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from veloxseg.errors import ConfigError, MissingDependencyError, ModelError
from veloxseg.machine import default_workers
from veloxseg.model.config import NetworkConfig
from veloxseg.model_folder import ModelFolder, save_weights
from veloxseg.runtimes.native.library import kernels
from veloxseg.runtimes.native.program import Program, is_supported
from veloxseg.runtimes.runtime import first_line
from veloxseg.types import Floats

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["NativeRuntime", "check_native", "is_built", "open_native", "write_native"]


def is_built() -> bool:
    """Whether the kernels were compiled at installation, for a processor like this one."""
    return kernels() is not None


def check_native(folder: ModelFolder) -> None:
    """Raises where the kernels are not there, or lack what this network needs."""
    if not is_built():
        raise MissingDependencyError(
            "runtime native was not built: installing veloxseg builds it where there is a C compiler, for processors "
            "with AVX2; use --runtime openvino"
        )
    if folder.architecture != "veloxseg" or not is_supported(NetworkConfig.from_json(folder.network)):
        raise ConfigError(
            f"runtime native computes VeloxSeg's presets, not this {folder.architecture}; use --runtime openvino"
        )


def open_native(graph: Path, folder: ModelFolder, *, threads: int | None, device: str = "cpu") -> "NativeRuntime":
    return NativeRuntime(graph, folder.network, threads=threads)


def write_native(network: "nn.Module", window: "Tensor", into: Path) -> None:
    """Writes the prepared weights alone; what to do with them is in program.py."""
    save_weights(network, into / "native.safetensors")


class NativeRuntime:
    """A window is computed by one thread; several threads compute several windows at the same time."""

    name = "native"

    def __init__(self, weights: Path, network: dict[str, Any], *, threads: int | None = None) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            self._weights = load_file(weights)
        except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:  # KeyError: types that numpy lacks
            raise ModelError(f"{weights} cannot be read ({first_line(error)}); export the model again") from error
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
