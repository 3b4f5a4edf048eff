"""What is cached is what would be made now: weights that changed are seen, and damaged graphs are made anew."""

import os
import shutil
import time

import numpy as np
import pytest

from veloxseg.files import read_json, write_json
from veloxseg.model_folder import ModelFolder
from veloxseg.runtimes import RUNTIMES, Kind, open_runtime
from veloxseg.runtimes.cache import HASHES, find_graph
from veloxseg.runtimes.native.runtime import is_built

DAY = 24 * 3600
needs_kernels = pytest.mark.skipif(not is_built(), reason="the kernels were not built: no C compiler")


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "veloxseg"


@pytest.fixture
def quick(monkeypatch):
    """A runtime whose graph is made by torch in no time."""
    line = Kind(files=("quick.bin",), opener="none:none", writer="support.models:write_quick")
    monkeypatch.setitem(RUNTIMES, "quick", line)


def window_for(folder: ModelFolder) -> np.ndarray:
    shape = (1, len(folder.plan.names), *folder.plan.patch)
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def test_openvino_computes_with_the_weights_that_are_there(exported, own_cache, tmp_path):
    """Its own cache of compiled graphs does not look at model.bin."""
    shutil.copytree(exported["openvino"], tmp_path / "model")
    folder = ModelFolder.open(tmp_path / "model")
    window = window_for(folder)
    before = open_runtime(folder, "openvino", threads=1)(window).copy()
    assert (open_runtime(folder, "openvino", threads=1)(window) == before).all()
    assert len(list((own_cache / "compiled").iterdir())) == 1

    weights = np.fromfile(folder.path / "model.bin", np.float32)
    weights[(abs(weights) > 1e-4) & (abs(weights) < 1)] *= 1.5  # integers look like far smaller floats
    weights.tofile(folder.path / "model.bin")
    after = open_runtime(folder, "openvino", threads=1)(window)
    assert np.abs(after - before).max() > 0.01


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("damage", ["a bit", "cut short", "a file is gone", "no hashes", "hashes of fewer files"])
def test_a_damaged_graph_is_made_anew(damage, model, own_cache, capsys):
    folder = ModelFolder.open(model)
    graph = find_graph(folder, "quick")
    whole = graph.read_bytes()
    assert find_graph(folder, "quick") == graph
    assert capsys.readouterr().out.count("converting") == 1
    if damage == "a bit":
        graph.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif damage == "cut short":
        graph.write_bytes(whole[: len(whole) // 2])
    elif damage == "a file is gone":
        graph.unlink()
    elif damage == "no hashes":
        (graph.parent / HASHES).unlink()
    else:
        graph.write_bytes(whole[:-4] + b"abcd")
        write_json(graph.parent / HASHES, {})
    assert find_graph(folder, "quick").read_bytes() == whole
    assert capsys.readouterr().out.count("converting") == 1
    assert read_json(graph.parent / HASHES).keys() == {"quick.bin"}
    assert [path.name for path in (own_cache / "graphs").iterdir()] == [graph.parent.name]  # nothing is left beside it


@pytest.mark.usefixtures("quick")
def test_what_nobody_opened_for_a_month_is_removed(model, exported, own_cache):
    for what in ("graphs", "compiled"):
        for name, days in (("old", 40), ("recent", 20)):
            place = own_cache / what / name
            place.mkdir(parents=True)
            (place / "graph").write_text("")
            os.utime(place, (time.time() - days * DAY,) * 2)
    (blob := own_cache / "compiled" / "1234.blob").write_text("of an earlier version")
    os.utime(blob, (time.time() - 40 * DAY,) * 2)
    folder = ModelFolder.open(model)
    graph = find_graph(folder, "quick")
    os.utime(graph.parent, (time.time() - 40 * DAY,) * 2)
    find_graph(folder, "quick")  # it was not opened for long, but it is now
    open_runtime(ModelFolder.open(exported["openvino"]), "openvino", threads=1)
    assert {path.name for path in (own_cache / "graphs").iterdir()} == {graph.parent.name, "recent"}
    assert {path.name for path in (own_cache / "compiled").iterdir()} > {"recent"}
    assert not {"old", "1234.blob"} & {path.name for path in (own_cache / "compiled").iterdir()}


@needs_kernels
def test_a_cache_that_cannot_be_written_is_done_without(model, exported, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folder = ModelFolder.open(model)
    window = window_for(folder)
    assert open_runtime(folder, "native", threads=1)(window).shape[2:] == folder.plan.patch
    opened = open_runtime(ModelFolder.open(exported["openvino"]), "openvino", threads=1)
    assert opened(window).shape[2:] == folder.plan.patch


@needs_kernels
def test_the_native_kernels_take_weights_as_they_are(model, own_cache):
    folder = ModelFolder.open(model)
    assert find_graph(folder, "native") == folder.weights
    open_runtime(folder, "native", threads=1)
    assert not own_cache.exists()
