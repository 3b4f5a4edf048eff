"""The OpenVINO runtime: the fastest where the native kernels were not built, and for networks that they lack.

OpenVINO keeps what it compiled in a cache folder of ours. It recognises a graph there without looking at model.bin, so
the folder is named after the hash of both files.
"""

import hashlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

import numpy as np

from veloxseg.errors import ModelError, shown
from veloxseg.extras import require
from veloxseg.files import atomic_path, sha256
from veloxseg.model_folder import ModelFolder
from veloxseg.runtimes.cache import cached_folder
from veloxseg.runtimes.runtime import check_inputs, first_line
from veloxseg.types import Floats

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["OpenVINORuntime", "open_openvino", "write_openvino"]


def open_openvino(graph: Path, folder: ModelFolder, *, threads: int | None, device: str = "cpu") -> "OpenVINORuntime":
    cache = compiled_folder(graph)
    if cache is None or not any(cache.iterdir()):  # else this very graph was read before
        check_xml(graph)
    runtime = OpenVINORuntime(graph, threads=threads, cache=cache)
    check_inputs(graph, runtime.inputs, len(folder.plan.names), folder.plan.patch)
    return runtime


def compiled_folder(graph: Path) -> Path | None:
    """Where OpenVINO keeps its compiled form of exactly these files; None where nothing can be kept."""
    key = hashlib.sha256(quiet_openvino().__version__.encode())
    for path in (graph, graph.with_suffix(".bin")):
        if path.is_file():
            key.update(sha256(path).encode())
    return cached_folder("compiled", key.hexdigest()[:32])


def check_xml(graph: Path) -> None:
    """Refuses what is not OpenVINO's XML: OpenVINO would try it as TensorFlow, Paddle and others, with much noise."""
    names: list[str] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: names.append(name)
    try:
        with open(graph, "rb") as file:
            parser.ParseFile(file)
    except (expat.ExpatError, OSError) as error:
        raise ModelError(f"{graph} cannot be read ({first_line(error)}); export the model again") from error
    if names[0] != "net":
        raise ModelError(f"{graph} is XML of {shown(names[0])}, not a graph of OpenVINO; export the model again")


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
            self.inputs = [(str(one.get_element_type().to_dtype()), _sizes(one)) for one in compiled.inputs]
            self.threads = int(compiled.get_property("INFERENCE_NUM_THREADS"))
            self._request = compiled.create_infer_request()
        except Exception as error:  # RuntimeError mostly; a damaged graph can also be of a type that numpy lacks
            raise ModelError(
                f"{graph} cannot be read by OpenVINO ({first_line(error)}); export the model again"
            ) from error

    def __call__(self, window_1CXYZ: Floats) -> Floats:
        """The result is OpenVINO's own buffer, which the next call overwrites."""
        try:
            self._request.infer([np.ascontiguousarray(window_1CXYZ)], share_inputs=True, share_outputs=True)
            return self._request.get_output_tensor(0).data
        except Exception as error:
            raise ModelError(
                f"OpenVINO cannot compute the graph ({first_line(error)}); export the model again"
            ) from error


def _sizes(port: Any) -> list[int | None]:
    """The sizes of an input, None where the graph leaves one open."""
    return [n.get_length() if n.is_static else None for n in port.get_partial_shape()]


def write_openvino(network: "nn.Module", window: "Tensor", into: Path) -> None:
    """Writes model.xml and model.bin. OpenVINO's own converter reports usage, so its PyTorch reader is called here."""
    import torch

    openvino = quiet_openvino()
    from openvino._offline_transformations import apply_moc_transformations
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    # peers and ablations are traced as they are: OpenVINO does not know oneDNN's own convolution
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        decoder = TorchScriptPythonDecoder(network, example_input=(window,))
        frontend = FrontEndManager().load_by_framework("pytorch")
        graph = frontend.load(decoder)
        graph.set_partial_shape(graph.get_inputs()[0], openvino.PartialShape(list(window.shape)))
        model = frontend.convert(graph)
        apply_moc_transformations(model, cf=True)  # what the converter does besides: constants are folded
    with atomic_path(into / "model.xml") as xml:
        openvino.save_model(model, xml, compress_to_fp16=False)
        xml.with_suffix(".bin").replace(into / "model.bin")


def quiet_openvino() -> Any:
    """openvino without openvino_telemetry: where that cannot be imported, OpenVINO has a stand-in that does nothing."""
    require("openvino", "runtime openvino")
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino
