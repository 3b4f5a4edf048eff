"""Graphs that are damaged, or are graphs of something else: each is one line, and never a mask."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from veloxseg.errors import ModelError
from veloxseg.model_folder import ModelFolder
from veloxseg.predict.sliding import predict_labels
from veloxseg.runtimes import RUNTIMES, open_runtime

PATCH = (64, 64, 32)  # of the model in support/models.py, which has two modalities and two classes
WINDOW = [1, 2, *PATCH]
NOISE = np.random.default_rng(0).bytes(5000)
DAMAGE = {
    "empty": lambda content: b"",
    "a tenth": lambda content: content[: len(content) // 10],
    "half": lambda content: content[: len(content) // 2],
    "all but ten bytes": lambda content: content[:-10],
    "noise": lambda content: NOISE,
    "noise in front": lambda content: NOISE[:64] + content[64:],
    "zeros": lambda content: bytes(len(content)),
    "JSON": lambda content: b'{"weights": [1, 2, 3]}',
}
OTHER_WEIGHTS = {("model.bin", "noise in front"), ("model.bin", "zeros")}  # plain numbers: another network, as it were
# inputs (each a type and a shape), what the graph does with the first, and the output's shape
GRAPHS = {
    "another window": ([("FLOAT", [1, 2, 32, 32, 32])], "Neg", [1, 2, 32, 32, 32]),
    "another number of modalities": ([("FLOAT", [1, 3, *PATCH])], "Neg", [1, 3, *PATCH]),
    "two axes": ([("FLOAT", [1, 2])], "Neg", [1, 2]),
    "two inputs": ([("FLOAT", WINDOW), ("FLOAT", WINDOW)], "Add", WINDOW),
    "double precision": ([("DOUBLE", WINDOW)], "Neg", WINDOW),
    "integers": ([("INT32", WINDOW)], "Neg", WINDOW),
    "one number": ([("FLOAT", WINDOW)], "ReduceSum", [1, 1, 1, 1, 1]),
    "whole numbers out": ([("FLOAT", WINDOW)], "Shape", [5]),
    "no number": ([("FLOAT", WINDOW)], "Log", WINDOW),
    "three outputs of an open size": ([("FLOAT", ["a", "b", "c", "d", "e"])], "three", ["a", "f", "c", "d", "e"]),
}


def fails_in_one_line(folder: Path, runtime: str) -> None:
    image = np.random.default_rng(0).standard_normal((2, 70, 64, 32), np.float32)
    opened = ModelFolder.open(folder)

    def predict() -> None:
        predict_labels(image, open_runtime(opened, runtime, threads=1), opened.plan)

    with pytest.raises(ModelError) as caught:
        predict()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert len(message) < 600


@pytest.mark.parametrize("damage", list(DAMAGE))
@pytest.mark.parametrize("runtime", ["native", "openvino", "onnx"])
def test_a_damaged_file_is_one_line(runtime, damage, exported, tmp_path, capfd):
    if runtime not in exported:
        pytest.skip("the kernels were not built: no C compiler")
    for name in RUNTIMES[runtime].files:
        target = tmp_path / name
        shutil.copytree(exported[runtime], target)
        (target / name).write_bytes(DAMAGE[damage]((target / name).read_bytes()))
        if (name, damage) not in OTHER_WEIGHTS:
            fails_in_one_line(target, runtime)
    assert capfd.readouterr().err == ""  # what is written there below Python too


def write_onnx(path: Path, inputs, operation: str, output) -> None:
    """A graph of one operation."""
    from onnx import TensorProto, helper, save

    names = [f"x{i}" for i in range(len(inputs))]
    takes = [
        helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)
        for name, (kind, shape) in zip(names, inputs, strict=True)
    ]
    if operation == "three":
        nodes = [helper.make_node("Concat", [names[0], names[0]], ["y"], axis=1)]
    else:
        nodes = [helper.make_node(operation, names, ["y"])]
    kind = TensorProto.INT64 if operation == "Shape" else getattr(TensorProto, inputs[0][0])
    graph = helper.make_graph(nodes, "lie", takes, [helper.make_tensor_value_info("y", kind, output)])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lie", list(GRAPHS))
@pytest.mark.parametrize("runtime", ["openvino", "onnx"])
def test_a_graph_of_something_else_is_one_line(runtime, lie, exported, tmp_path):
    target = tmp_path / "model"
    shutil.copytree(exported[runtime], target)
    for name in RUNTIMES[runtime].files:
        (target / name).unlink()
    write_onnx(target / "model.onnx", *GRAPHS[lie])
    if runtime == "openvino":
        from veloxseg.runtimes.openvino import quiet_openvino

        openvino = quiet_openvino()
        openvino.save_model(openvino.Core().read_model(target / "model.onnx"), target / "model.xml")
    fails_in_one_line(target, runtime)
