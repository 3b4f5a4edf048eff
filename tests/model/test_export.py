"""The plain network leaves Python: torch.export, ONNX, torch.compile, autocast."""

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from support.tiny_networks import CONFIGS, TINY, example, fill
from veloxseg.model.network import VeloxSeg


@pytest.fixture(scope="module", params=["paired", "unequal"])
def network(request: pytest.FixtureRequest) -> VeloxSeg:
    built = VeloxSeg(CONFIGS[request.param]).eval()
    fill(built)
    return built


def test_export_agrees_with_eager(network: VeloxSeg) -> None:
    image = example(network.config)[0]
    program = torch.export.export(network, (image,))
    with torch.no_grad():
        torch.testing.assert_close(program.module()(image), network(image), atol=1e-4, rtol=0)


@pytest.mark.filterwarnings("ignore")  # the exporter warns about its own insides
def test_onnx_agrees_with_eager(network: VeloxSeg, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    image = example(network.config)[0]
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(network, (image,), dynamo=True, verbose=False)
    program.save(tmp_path / "network.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "network.onnx")
    (logits,) = session.run(None, {session.get_inputs()[0].name: image.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(logits, network(image).numpy(), atol=1e-4)


def test_compile_captures_one_graph() -> None:
    network = VeloxSeg(TINY).eval()
    image = example(TINY)[0]
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(image), network(image), atol=1e-4, rtol=0)


def test_autocast_stays_near() -> None:
    network = VeloxSeg(TINY).eval()
    image = example(TINY)[0]
    with torch.no_grad():
        expected = network(image)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = network(image).float()
    assert (logits - expected).abs().mean() < 0.1 * expected.abs().mean()
