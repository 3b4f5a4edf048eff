"""Where the graph of a model is: in its folder if it was exported, else in the user's cache, made there once.

The cache is keyed by the hash of the weights and of model.json, so a retrained model never meets an old graph. It
can be deleted at any time.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

from veloxseg import __version__
from veloxseg.console import say
from veloxseg.errors import ModelError, OutputError
from veloxseg.files import sha256, writable_folder
from veloxseg.modelfolder import JSON_NAME, ModelFolder

__all__ = ["ENDINGS", "GRAPH_FILES", "cache_folder", "find_graph"]

GRAPH_VERSION = 6  # of the exported form; a change makes cached graphs stale
# runtime -> its files; the last one is written last and stands for all
GRAPH_FILES = {
    "native": ("native.safetensors",),
    "openvino": ("model.bin", "model.xml"),
    "onnx": ("model.onnx",),
}
ENDINGS = {runtime: files[-1] for runtime, files in GRAPH_FILES.items()}


def cache_folder() -> Path:
    """This user's cache, in the place that the system has for such things."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "veloxseg"


def find_graph(folder: ModelFolder, runtime: str) -> Path:
    """The graph file for a runtime; a model with weights only is converted, once, which takes some seconds."""
    exported = folder.path / ENDINGS[runtime]
    if exported.is_file():
        return exported
    if not folder.weights.is_file():
        held = ", ".join(sorted(p.name for p in folder.path.iterdir()))
        raise ModelError(
            f"{folder.path} holds neither weights nor a graph for {runtime} (found {held}); use another --runtime"
        )
    key = hashlib.sha256(f"{GRAPH_VERSION} {__version__}".encode())
    for name in (folder.weights, folder.path / JSON_NAME):
        key.update(sha256(name).encode())
    place = cache_folder() / "graphs" / key.hexdigest()[:32]
    if (place / ENDINGS[runtime]).is_file():
        return place / ENDINGS[runtime]
    say(f"converting {folder.path.name} for {runtime} (once; kept in {cache_folder()})")
    return _convert(folder, runtime, place)


def _convert(folder: ModelFolder, runtime: str, place: Path) -> Path:
    """Converts beside the cache and renames, so that two programs can do it at the same time."""
    from veloxseg.infer.convert import convert

    try:
        writable_folder(place)
    except OutputError:  # a home that cannot be written: convert for this run only
        place = Path(tempfile.mkdtemp(prefix="veloxseg-"))
    with tempfile.TemporaryDirectory(dir=place) as temporary:
        convert(folder, runtime, Path(temporary))
        for name in GRAPH_FILES[runtime]:
            shutil.move(Path(temporary) / name, place / name)
    return place / ENDINGS[runtime]
