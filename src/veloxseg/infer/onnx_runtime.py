"""The onnxruntime runtime: everywhere that ONNX goes. Needs `veloxseg[onnx]`."""

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ModelError
from veloxseg.infer.quiet import quiet_onnxruntime

__all__ = ["OnnxRuntime"]

Floats = npt.NDArray[np.float32]


class OnnxRuntime:
    """model.onnx on the CPU."""

    name = "onnx"
    windows_at_once = 1

    def __init__(self, graph: Path, *, threads: int | None = None) -> None:
        onnxruntime = quiet_onnxruntime()
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 3
        if threads is not None:
            settings.intra_op_num_threads = threads
            settings.inter_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(graph, settings, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime has no exception tree of its own
            reason = str(error).strip().splitlines()[0]
            raise ModelError(
                f"{graph} cannot be read by onnxruntime ({reason}); export the model again"
            ) from error
        self.threads = threads or os.cpu_count() or 1
        self._input = self._session.get_inputs()[0].name

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        result: Floats = self._session.run(None, {self._input: np.ascontiguousarray(window_1CXYZ)})[0]
        return result
