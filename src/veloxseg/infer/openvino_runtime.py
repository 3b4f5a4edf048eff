"""The OpenVINO runtime: the fastest on a CPU, and the default where it is installed."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ModelError
from veloxseg.infer.quiet import quiet_openvino

__all__ = ["OpenVINORuntime"]

Floats = npt.NDArray[np.float32]


class OpenVINORuntime:
    """A graph in OpenVINO's own form (model.xml, model.bin) or ONNX, compiled for this CPU; float32 throughout."""

    name = "openvino"
    windows_at_once = 1

    def __init__(self, graph: Path, *, threads: int | None = None, cache: Path | None = None) -> None:
        core = quiet_openvino().Core()
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_PRECISION_HINT": "f32",
            # pinned, all jobs on a machine would share its first cores
            "ENABLE_CPU_PINNING": "NO",
        }
        if threads is not None:
            settings["INFERENCE_NUM_THREADS"] = str(threads)
        if cache is not None:
            settings["CACHE_DIR"] = str(cache)
        try:
            compiled = core.compile_model(graph, "CPU", settings)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ModelError(
                f"{graph} cannot be read by OpenVINO ({reason}); export the model again"
            ) from error
        self.threads = int(compiled.get_property("INFERENCE_NUM_THREADS"))
        self._request = compiled.create_infer_request()

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        """The result is OpenVINO's own buffer, which the next call overwrites."""
        self._request.infer([np.ascontiguousarray(window_1CXYZ)], share_inputs=True, share_outputs=True)
        result: Floats = self._request.get_output_tensor(0).data
        return result
