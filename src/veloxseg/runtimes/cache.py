"""Where the graph of a model is: in its folder if it was exported, else in the user's cache, made there once.

The cache is keyed by the hash of the weights and of model.json, so a retrained model never meets an old graph. The
hashes of a graph's files lie beside them, and a graph that was damaged or altered since is made anew. What nobody has
opened for a month is removed; all of it can be deleted at any time.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from veloxseg import __version__
from veloxseg.console import say
from veloxseg.errors import ModelError, OutputError, VeloxSegError
from veloxseg.files import read_json, sha256, writable_folder, write_json
from veloxseg.model_folder import JSON_NAME, ModelFolder
from veloxseg.runtimes import RUNTIMES

__all__ = ["cache_folder", "cached_folder", "find_graph"]

GRAPH_VERSION = 6  # a change of the exported form counts it up, and cached graphs are made anew
HASHES = "sha256.json"  # file → its hash, beside the files of a cached graph
UNUSED_SECONDS = 30 * 24 * 3600.0


def cache_folder() -> Path:
    """This user's cache, in the place that the system has for such things."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "veloxseg"


def cached_folder(what: str, key: str) -> Path | None:
    """The folder of the cache that holds `key`, marked as used now; None where the cache cannot be written."""
    place = cache_folder() / what / key
    try:
        writable_folder(place)
    except OutputError:
        return None
    remove_unused(place)
    return place


def remove_unused(place: Path) -> None:
    """Marks `place` as used, and removes what lies beside it and was not used for a month."""
    with contextlib.suppress(OSError):  # another program may clean up at the same time, and the cache may be read-only
        os.utime(place)
        for other in place.parent.iterdir():
            if time.time() - other.stat().st_mtime > UNUSED_SECONDS:
                if other.is_dir():
                    shutil.rmtree(other, ignore_errors=True)
                else:
                    other.unlink()


def find_graph(folder: ModelFolder, runtime: str) -> Path:
    """The file that a runtime opens; a model with weights only is converted, once, which takes some seconds.

    A runtime that has a converter takes the weights themselves: what it makes of them is not worth keeping.
    """
    files = RUNTIMES[runtime].files
    name = files[-1]
    if (folder.path / name).is_file():
        return folder.path / name
    if RUNTIMES[runtime].converter is not None and folder.weights.is_file():
        return folder.weights
    if not folder.weights.is_file():
        held = ", ".join(sorted(p.name for p in folder.path.iterdir()))
        raise ModelError(
            f"{folder.path} holds neither weights nor a graph for {runtime} (found {held}); use another --runtime"
        )
    key = hashlib.sha256(f"{GRAPH_VERSION} {__version__} {runtime}".encode())
    for path in (folder.weights, folder.path / JSON_NAME):
        key.update(sha256(path).encode())
    place = cache_folder() / "graphs" / key.hexdigest()[:32]
    if is_whole(place, files):
        remove_unused(place)
        return place / name
    say(f"converting {folder.path.name} for {runtime} (once; kept in {cache_folder()})")
    return _convert(folder, runtime, place) / name


def is_whole(place: Path, files: tuple[str, ...]) -> bool:
    """Whether a cached graph has the files, and they the content, that it was written with."""
    try:
        return read_json(place / HASHES) == {name: sha256(place / name) for name in files}
    except (OSError, VeloxSegError):
        return False


def _convert(folder: ModelFolder, runtime: str, place: Path) -> Path:
    """Converts beside the cache and renames the folder, so that two programs can do it at the same time."""
    from veloxseg.runtimes.export import convert

    files = RUNTIMES[runtime].files
    try:
        root = writable_folder(place.parent)
    except OutputError:  # a home that cannot be written: the graph is converted for this run only
        root = Path(tempfile.mkdtemp(prefix="veloxseg-"))
    made, place = Path(tempfile.mkdtemp(dir=root)), root / place.name
    try:
        convert(folder, runtime, made)
        write_json(made / HASHES, {name: sha256(made / name) for name in files})
        if not is_whole(place, files):
            shutil.rmtree(place, ignore_errors=True)
        with contextlib.suppress(OSError):  # another program was quicker, and its graph is as good
            made.rename(place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return place
