"""A runtime computes a network: float32 windows in, logits out. All of them behind one small protocol.

`open_runtime` picks one for a MODEL folder. All but torch itself read a graph (the native one: prepared weights) and
never import torch; a folder that holds weights only is turned into a graph once, by torch, and the graph is cached
(see graphcache.py).
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Protocol

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ConfigError, MissingDependencyError, ModelError
from veloxseg.infer.graphcache import ENDINGS, cache_folder, find_graph
from veloxseg.infer.native_runtime import NativeRuntime, can_compute, check_native, is_built
from veloxseg.modelfolder import ModelFolder

__all__ = ["RUNTIMES", "Ensemble", "Mirrored", "Runtime", "choose_runtime", "open_runtime", "usable_runtimes"]

Floats = npt.NDArray[np.float32]


class Runtime(Protocol):
    """(1, C, X, Y, Z) float32 → (1, K, X, Y, Z) logits, or (1, 1, X, Y, Z), their difference, for two classes.

    The window may be a view of an image.
    """

    @property
    def name(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def windows_at_once(self) -> int:
        """How many threads may call it at the same time; 1 if it shares a window among its threads."""

    def __call__(self, window_1CXYZ: Floats) -> Floats: ...


class Ensemble:
    """Several networks of the same task, such as the folds of a cross-validation: the mean of their logits."""

    def __init__(self, members: Sequence[Runtime]) -> None:
        self.members = members
        self.name = f"{members[0].name} x {len(members)}"
        self.threads = members[0].threads
        self.windows_at_once = min(member.windows_at_once for member in members)

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        total = np.array(self.members[0](window_1CXYZ))
        for member in self.members[1:]:
            logits = member(window_1CXYZ)
            assert logits.shape == total.shape, "members of an ensemble are opened by runtimes of one kind"
            total += logits
        total /= len(self.members)
        return total


class Mirrored:
    """Test-time mirroring: the mean over all flips of the three axes, eight times the work."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.name = f"{runtime.name}, mirrored"
        self.threads = runtime.threads
        self.windows_at_once = runtime.windows_at_once

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        total = np.array(self.runtime(window_1CXYZ))
        for axes in ((2,), (3,), (4,), (2, 3), (2, 4), (3, 4), (2, 3, 4)):
            flipped = np.ascontiguousarray(np.flip(window_1CXYZ, axes))
            total += np.flip(self.runtime(flipped), axes)
        total /= 8
        return total


RUNTIMES = ("auto", "native", "openvino", "onnx", "torch")  # auto takes the first that it can
PACKAGES = {"openvino": "openvino", "onnx": "onnxruntime", "torch": "torch"}


def open_runtime(
    folder: ModelFolder, runtime: str = "auto", *, threads: int | None = None, device: str = "cpu"
) -> Runtime:
    """The runtime of that name for a model; `auto` takes the fastest that is installed and that the folder fits."""
    if runtime not in RUNTIMES:
        raise ConfigError(f"runtime {runtime!r} is unknown; choose from {', '.join(RUNTIMES)}")
    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}; it must be at least 1")
    if runtime == "auto":
        runtime = choose_runtime(folder, device)
    elif runtime == "native":
        check_native(folder)
    elif find_spec(PACKAGES[runtime]) is None:
        raise MissingDependencyError(
            f"runtime {runtime} needs {PACKAGES[runtime]}; pip install {PACKAGES[runtime]}"
        )
    if device != "cpu" and runtime != "torch":
        raise ConfigError(f"runtime {runtime} computes on the cpu, not on {device}; use --runtime torch")
    if runtime == "torch":
        from veloxseg.infer.torch_runtime import TorchRuntime
        from veloxseg.networks import load_network

        return TorchRuntime(load_network(folder), threads=threads, device=device)
    graph = find_graph(folder, runtime)
    if runtime == "native":
        return NativeRuntime(graph, folder.network, threads=threads)
    if runtime == "onnx":
        from veloxseg.infer.onnx_runtime import OnnxRuntime

        return OnnxRuntime(graph, threads=threads)
    from veloxseg.infer.openvino_runtime import OpenVINORuntime

    return OpenVINORuntime(graph, threads=threads, cache=cache_folder() / "compiled")


def choose_runtime(folder: ModelFolder, device: str = "cpu") -> str:
    """The fastest that can compute this model here."""
    if device != "cpu":
        return "torch"
    if usable := usable_runtimes(folder):
        return usable[0]
    raise ModelError(
        f"{folder.path} holds no weights, and no graph that an installed runtime reads; "
        "pip install openvino or onnxruntime"
    )


def usable_runtimes(folder: ModelFolder) -> list[str]:
    """Runtimes that are installed and can read what the folder holds, the fastest first."""
    installed = [name for name, package in PACKAGES.items() if find_spec(package) is not None]
    if is_built() and can_compute(folder):
        installed.insert(0, "native")
    return [
        name
        for name in installed
        if folder.weights.is_file() or (name in ENDINGS and (folder.path / ENDINGS[name]).is_file())
    ]
