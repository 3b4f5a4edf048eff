"""The native runtime: VeloxSeg in C (this folder), the fastest on CPUs; `auto` takes it where it is built."""

from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue

from veloxseg.errors import ConfigError, MissingDependencyError
from veloxseg.files import atomic_path
from veloxseg.machine import default_workers
from veloxseg.model.config import NetworkConfig
from veloxseg.model_folder import ModelFolder
from veloxseg.runtimes.native.library import SETS, kernels
from veloxseg.runtimes.native.memory import Results
from veloxseg.runtimes.native.program import Program, missing
from veloxseg.runtimes.native.weights import native_weights, read_weights
from veloxseg.types import Floats

__all__ = ["NativeRuntime", "check_native", "convert_native", "instruction_set", "is_built", "open_native"]


def is_built() -> bool:
    """Whether there are kernels for a processor like this one."""
    return kernels() is not None


def instruction_set() -> str | None:
    """What the kernels compute with here: "avx512", "avx2" or "neon"."""
    library = kernels()
    return None if library is None else library.instruction_set().decode()


def check_native(folder: ModelFolder | None) -> None:
    """Raises where the kernels are not there, or lack what this network needs."""
    if not is_built():
        raise MissingDependencyError(
            "runtime native has no kernels here: wheels carry them, and installing from source builds them where there "
            f"is a C compiler, for processors with one of {', '.join(SETS)}; pip install 'veloxseg[openvino,train]' "
            "and use --runtime openvino"
        )
    if folder is None:
        return
    if folder.architecture != "veloxseg":
        raise ConfigError(f"runtime native computes VeloxSeg, not {folder.architecture}; use --runtime openvino")
    if (reason := missing(NetworkConfig.from_json(folder.network))) is not None:
        raise ConfigError(f"runtime native cannot compute {reason}; use --runtime openvino")


def open_native(graph: Path, folder: ModelFolder, *, threads: int | None, device: str = "cpu") -> "NativeRuntime":
    """`graph` is a native form, or the weights of a MODEL."""
    weights = _from_model(folder) if graph == folder.weights else read_weights(graph)
    return NativeRuntime(NetworkConfig.from_json(folder.network), weights, threads=threads)


def convert_native(folder: ModelFolder, into: Path) -> None:
    """Writes the prepared weights alone; what to do with them is in program.py."""
    from safetensors.numpy import save

    with atomic_path(into / "native.safetensors") as path:
        path.write_bytes(save(_from_model(folder)))  # save_file tells of a full disk by an error of its own


def _from_model(folder: ModelFolder) -> dict[str, Floats]:
    config = NetworkConfig.from_json(folder.network)
    return native_weights(config, read_weights(folder.weights), difference=folder.plan.two_classes)


class NativeRuntime:
    """A window is computed by one thread; several threads compute several windows at the same time."""

    name = "native"

    def __init__(self, config: NetworkConfig, weights: Mapping[str, Floats], *, threads: int | None = None) -> None:
        self._config, self._weights = config, weights
        self.threads = self.windows_at_once = threads or default_workers()  # each has 60 MB of buffers
        self._programs: SimpleQueue[Program] = SimpleQueue()
        self._results = Results(self.threads + 2)  # one waits, and one is read, while all threads compute
        self._programs.put(self._program())  # wrong weights are refused here

    def _program(self) -> Program:
        return Program(self._config, self._weights, results=self._results)

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        try:
            program = self._programs.get_nowait()
        except Empty:
            program = self._program()
        try:
            return program(window_1CXYZ)
        finally:
            self._programs.put(program)
