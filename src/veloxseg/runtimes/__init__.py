"""Runtimes: what computes a network. ONE table says which there are; the fastest stands first, and `auto` takes it.

A new runtime is one file with its class, its opener and its writer, and one line in `RUNTIMES`: the command line,
`info`, `export`, the benchmark and the cache of graphs all read this table. Functions are named as "module:function"
and imported when they are called, so that a help page imports neither numpy nor torch.

    opener(graph, folder, threads, device) → Runtime    `graph` is the last of the runtime's files
    writer(network, window, into)                       writes the runtime's files; see graph.py for the network's form
    converter(folder, into)                             writes them from the weights, without torch and in no time; the
                                                        opener then takes the weights as they are, too
    check(folder)                                       raises if this machine is not for the runtime, or this model;
                                                        None stands for any model
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from veloxseg.errors import ConfigError, MissingDependencyError, ModelError, VeloxSegError, shown
from veloxseg.extras import require, without

if TYPE_CHECKING:
    from veloxseg.model_folder import ModelFolder
    from veloxseg.runtimes.runtime import Runtime

__all__ = ["BUNDLE", "RUNTIMES", "Kind", "choose_runtime", "function", "obstacle", "open_runtime", "usable_runtimes"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One line of the table."""

    opener: str
    files: tuple[str, ...]  # the last one is written last and stands for all
    writer: str | None = None
    converter: str | None = None  # without it and a writer, `files` are those of every MODEL: export copies them
    package: str | None = None  # what must be installed
    extra: str = ""  # the extra that brings it (extras.py)
    check: str | None = None
    cpu_only: bool = True


HERE = __name__
RUNTIMES: dict[str, Kind] = {
    "native": Kind(
        files=("native.safetensors",),
        opener=f"{HERE}.native.runtime:open_native",
        converter=f"{HERE}.native.runtime:convert_native",
        check=f"{HERE}.native.runtime:check_native",
    ),
    "openvino": Kind(
        package="openvino",
        extra="openvino",
        files=("model.bin", "model.xml"),
        opener=f"{HERE}.openvino:open_openvino",
        writer=f"{HERE}.openvino:write_openvino",
    ),
    "onnx": Kind(
        package="onnxruntime",
        extra="onnx",
        files=("model.onnx",),
        opener=f"{HERE}.onnx:open_onnx",
        writer=f"{HERE}.onnx:write_onnx",
    ),
    "torch": Kind(
        package="torch", extra="train", files=("model.safetensors",), opener=f"{HERE}.torch:open_torch", cpu_only=False
    ),
}
BUNDLE = "monai-bundle"  # what `export` writes besides: for MONAI's own tools, see bundle.py


def function(place: str) -> Callable[..., Any]:
    """The function that the table names as "module:function"."""
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


def open_runtime(
    folder: "ModelFolder", runtime: str = "auto", *, threads: int | None = None, device: str = "cpu"
) -> "Runtime":
    """The runtime of that name for a model; `auto` takes the fastest that can compute it here.

    The native kernels take weights as they are. Other runtimes read a graph: a folder that holds weights only is turned
    into one once, by torch, and the graph is cached (see cache.py). But for that, only runtime torch imports torch.
    """
    from veloxseg.runtimes.cache import find_graph

    if threads is not None and threads < 1:
        raise ConfigError(f"threads is {threads}; it must be at least 1")
    if runtime == "auto":
        runtime = choose_runtime(folder, device)
    if runtime not in RUNTIMES:
        raise ConfigError(f"runtime {shown(runtime)!r} is unknown; choose from auto, {', '.join(RUNTIMES)}")
    kind = RUNTIMES[runtime]
    if (reason := obstacle(folder, runtime)) is not None:
        raise reason
    if device != "cpu" and kind.cpu_only:
        raise ConfigError(f"runtime {runtime} computes on the cpu, not on {shown(device)}; use --runtime torch")
    return function(kind.opener)(find_graph(folder, runtime), folder, threads=threads, device=device)


def obstacle(folder: "ModelFolder | None", runtime: str) -> VeloxSegError | None:
    """Why a runtime cannot compute a model, or any model at all, on this machine; None if it can."""
    kind = RUNTIMES[runtime]
    try:
        if kind.package is not None:
            require(kind.extra, f"runtime {runtime}", [kind.package])
        if kind.check is not None:
            function(kind.check)(folder)
    except VeloxSegError as error:
        return error
    return None


def usable_runtimes(folder: "ModelFolder") -> list[str]:
    """Runtimes that can compute this model here from what its folder holds, the fastest first."""
    return [name for name in RUNTIMES if _has_files(folder, name) and obstacle(folder, name) is None]


def _has_files(folder: "ModelFolder", runtime: str) -> bool:
    """Whether a runtime finds what it reads in a folder, or weights of which it can be made here."""
    kind = RUNTIMES[runtime]
    if (folder.path / kind.files[-1]).is_file():
        return True
    return folder.weights.is_file() and (kind.converter is not None or not without("torch"))


def choose_runtime(folder: "ModelFolder", device: str = "cpu") -> str:
    """The fastest that can compute this model here on that device."""
    if device != "cpu":
        return next(name for name, kind in RUNTIMES.items() if not kind.cpu_only)
    if usable := usable_runtimes(folder):
        return usable[0]
    raise _nothing_computes(folder)


def _nothing_computes(folder: "ModelFolder") -> VeloxSegError:
    """Why no runtime takes a model here, and what to install."""
    held = [name for name, kind in RUNTIMES.items() if (folder.path / kind.files[-1]).is_file()]
    if not held:
        found = ", ".join(sorted(path.name for path in folder.path.iterdir()))
        return ModelError(f"{folder.path} holds neither weights nor a graph (found {found}); export the model again")
    if not folder.weights.is_file() and (reason := obstacle(folder, held[0])) is not None:
        return reason
    why = str(obstacle(folder, "native")).partition(";")[0]
    return MissingDependencyError(
        f"nothing here can compute {folder.path}: {why}, and torch is not installed; pip install 'veloxseg[train]'"
    )
