"""The onnxruntime runtime: it computes wherever ONNX goes. It needs `veloxseg[onnx]`."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veloxseg.errors import ModelError
from veloxseg.extras import require
from veloxseg.files import atomic_path
from veloxseg.model_folder import ModelFolder
from veloxseg.runtimes.runtime import check_inputs, first_line
from veloxseg.types import Floats

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["OnnxRuntime", "open_onnx", "write_onnx"]

TYPES = {"tensor(float)": "float32"}  # as numpy calls them


def open_onnx(graph: Path, folder: ModelFolder, *, threads: int | None, device: str = "cpu") -> "OnnxRuntime":
    runtime = OnnxRuntime(graph, threads=threads)
    check_inputs(graph, runtime.inputs, len(folder.plan.names), folder.plan.patch)
    return runtime


class OnnxRuntime:
    """model.onnx on the CPU."""

    name = "onnx"
    windows_at_once = 1

    def __init__(self, graph: Path, *, threads: int | None = None) -> None:
        onnxruntime = quiet_onnxruntime()
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4  # what is wrong is raised too
        if threads is not None:
            settings.intra_op_num_threads = threads
            settings.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has no exception tree of its own
            raise ModelError(
                f"{graph} cannot be read by onnxruntime ({first_line(error)}); export the model again"
            ) from error
        self.threads = threads or os.cpu_count() or 1
        self.inputs = [(TYPES.get(one.type, one.type), one.shape) for one in self._session.get_inputs()]
        self._names = [one.name for one in self._session.get_inputs()]

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        try:
            return self._session.run(None, {self._names[0]: np.ascontiguousarray(window_1CXYZ)})[0]
        except Exception as error:
            raise ModelError(
                f"onnxruntime cannot compute the graph ({first_line(error)}); export the model again"
            ) from error


def write_onnx(network: "nn.Module", window: "Tensor", into: Path) -> None:
    """Writes model.onnx, the weights inside."""
    require("onnx", "writing ONNX")
    import torch

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision, which is not needed
    options: dict[str, Any] = {"dynamo": True, "external_data": False, "verbose": False}
    with torch.no_grad():
        program = torch.onnx.export(network, (window,), input_names=["image"], output_names=["scores"], **options)
    assert program is not None
    program.optimize()
    with atomic_path(into / "model.onnx") as path:
        program.save(path, external_data=False)


def quiet_onnxruntime() -> Any:
    """onnxruntime reports since version 1.29, unless this variable is set when the library is loaded."""
    require("onnx", "runtime onnx", ["onnxruntime"])
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime
