"""From a network to the files that the torch-free runtimes read. Imports torch; see graphcache.py for when.

OpenVINO's own converter reports usage, so its PyTorch reader is called directly. onnxruntime needs `veloxseg[onnx]`.
"""

import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from veloxseg.errors import MissingDependencyError
from veloxseg.files import atomic_path
from veloxseg.infer.graph import inference_form
from veloxseg.infer.graphcache import ENDINGS
from veloxseg.infer.native_runtime import check_native
from veloxseg.infer.quiet import quiet_openvino
from veloxseg.modelfolder import ModelFolder
from veloxseg.networks import load_network, save_weights

__all__ = ["convert", "graph_network", "write_graph"]


def graph_network(folder: ModelFolder, runtime: str) -> nn.Module:
    """The network of a MODEL folder in the form that is exported for a runtime."""
    two_classes = len(folder.plan.outputs) == 2 and folder.plan.regions is None
    return inference_form(load_network(folder), runtime, difference=two_classes)


def convert(folder: ModelFolder, runtime: str, into: Path) -> None:
    """Writes the graph of a model for `runtime` in the folder `into`."""
    if runtime == "native":
        check_native(folder)
    window = torch.zeros(1, len(folder.plan.names), *folder.plan.patch)
    write_graph(graph_network(folder, runtime), window, runtime, into)


def write_graph(network: nn.Module, window: torch.Tensor, runtime: str, into: Path) -> Path:
    """Writes a network in its inference form, traced on `window`; the file that the runtime opens."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tracing: shapes are fixed on purpose
        WRITERS[runtime](network, window, into)
    return into / ENDINGS[runtime]


def _write_native(network: nn.Module, window: torch.Tensor, into: Path) -> None:
    """The prepared weights alone; what to do with them is in native/program.py."""
    save_weights(network, into / ENDINGS["native"])


def _write_openvino(network: nn.Module, window: torch.Tensor, into: Path) -> None:
    openvino = quiet_openvino()
    from openvino._offline_transformations import apply_moc_transformations
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    with torch.no_grad():
        decoder = TorchScriptPythonDecoder(network, example_input=(window,))
        frontend = FrontEndManager().load_by_framework("pytorch")
        graph = frontend.load(decoder)
        graph.set_partial_shape(graph.get_inputs()[0], openvino.PartialShape(list(window.shape)))
        model = frontend.convert(graph)
        apply_moc_transformations(model, cf=True)  # what the converter does besides: constants are folded
    with atomic_path(into / "model.xml") as xml:
        openvino.save_model(model, xml, compress_to_fp16=False)
        xml.with_suffix(".bin").replace(into / "model.bin")


def _write_onnx(network: nn.Module, window: torch.Tensor, into: Path) -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f"writing ONNX needs {error.name}, which is not installed; pip install 'veloxseg[onnx]'"
        ) from error
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision, which is not needed
    options: dict[str, Any] = {"dynamo": True, "external_data": False, "verbose": False}
    with torch.no_grad():
        program = torch.onnx.export(
            network, (window,), input_names=["image"], output_names=["scores"], **options
        )
    assert program is not None
    program.optimize()
    with atomic_path(into / "model.onnx") as path:
        program.save(path, external_data=False)


WRITERS = {"native": _write_native, "openvino": _write_openvino, "onnx": _write_onnx}
