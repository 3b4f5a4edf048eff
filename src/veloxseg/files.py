"""Files that are either whole or not there: atomic writes, hashes, readable JSON."""

import contextlib
import glob
import hashlib
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from veloxseg.errors import ModelError, OutputError, VeloxSegError, shown

__all__ = [
    "atomic_path",
    "claimed",
    "digest",
    "no_empty_folders",
    "read_json",
    "remove_stale_temporary_files",
    "sha256",
    "staged",
    "writable_folder",
    "write_json",
]

STALE_SECONDS = 60.0
MOST_JSON_BYTES = 256 << 20  # the fingerprint of ten thousand cases has some ten
_made: list[Path] = []  # by `writable_folder`, in this process
CLAIM_SECONDS = 8.0  # workers of a killed process may hold its folder a little longer


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Gives a temporary path in the folder of `path`; on success it is synced and renamed to `path`.

    The suffix is kept (`.nii.gz` decides the format for most writers). After an exception or a kill `path` is
    what it was before; after an exception the temporary file is gone too, after a kill when the folder is next used.

    >>> with atomic_path("mask.nii.gz") as temporary:
    ...     nibabel.save(image, temporary)
    """
    path = Path(path)
    suffix = "".join(path.suffixes[-2:]) if path.name.endswith(".gz") else path.suffix
    try:
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".part-{platform.node()}-{os.getpid()}-", suffix=suffix
        )
    except OSError as error:
        raise OutputError(f"cannot write {shown(path)}: {error.strerror or error}; choose another folder") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes files private; a result should be as any other file
        os.replace(temporary, path)
    except OSError as error:
        raise OutputError(
            f"cannot write {shown(path)}: {error.strerror or error}; free space or choose another folder"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A hidden folder in `folder` for files that belong together; what is not moved out of it is gone at the end."""
    try:
        stage = Path(tempfile.mkdtemp(dir=folder, prefix=f".part-{platform.node()}-{os.getpid()}-"))
    except OSError as error:
        raise OutputError(f"cannot write in {folder}: {error.strerror or error}; choose another folder") from error
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Refuses a folder in which another process works. The claim ends with the process, however that ends."""
    try:
        import fcntl
    except ImportError:  # Windows has no locks of folders
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    give_up = time.monotonic() + CLAIM_SECONDS
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > give_up:
                    message = f"another process is at work in {folder}; wait for it, or choose another folder"
                    raise OutputError(message) from error
                time.sleep(0.2)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(handle)


def remove_stale_temporary_files(folder: Path) -> None:
    """Removes temporary files of processes of this machine that were killed a while ago.

    Two containers may share a name and not see each other's processes; a file that is being written is younger.
    """
    ours = f".part-{platform.node()}-"
    for part in folder.glob(glob.escape(ours) + "*"):
        process = part.name.removeprefix(ours).partition("-")[0]
        with contextlib.suppress(OSError):  # another program may have removed it
            old = time.time() - part.stat().st_mtime > STALE_SECONDS
            if old and process.isdecimal() and not _is_alive(int(process)):
                shutil.rmtree(part) if part.is_dir() else part.unlink()


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        return True  # there a signal of 0 would end it; the file stays
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def write_json(path: str | Path, value: Any) -> None:
    """Writes readable JSON, atomically."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    if not is_unicode(text):  # the name of a file may hold bytes that are no text; JSON can escape them
        text = json.dumps(value, indent=2, allow_nan=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def is_unicode(text: str) -> bool:
    """False for text that stands for a name on disk which is not in UTF-8."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def read_json(path: str | Path, error: type[VeloxSegError] = ModelError) -> Any:
    """Reads JSON; a missing, damaged or endless file gives one clear line. NaN and infinity are no JSON."""
    name = shown(path)
    try:
        if (size := os.stat(path).st_size) > MOST_JSON_BYTES:
            raise error(f"{name} has {size >> 20} MB, expected a description of at most {MOST_JSON_BYTES >> 20}")
        return json.loads(Path(path).read_text(encoding="utf-8"), parse_constant=_refuse, object_pairs_hook=_once)
    except FileNotFoundError as problem:
        raise error(f"{name} does not exist; is this the right folder?") from problem
    except (ValueError, RecursionError) as problem:
        text = f"{name} is not valid JSON ({shown(problem)}); restore it from a copy or make it anew"
        raise error(text) from problem
    except OSError as problem:
        raise error(f"{name} cannot be read ({shown(problem.strerror or problem)}); check the path") from problem


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys occur once each: of two equal ones, which counts?"""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return found


def digest(value: Any) -> str:
    """The hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


def sha256(path: str | Path) -> str:
    """Hash of a file, or of a folder's files in the order of their names."""
    path = Path(path)
    digest = hashlib.sha256()
    for part in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if part.is_file():
            with open(part, "rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()


def writable_folder(folder: str | Path) -> Path:
    """Makes `folder` and proves that a file can be written there, before anything is computed."""
    folder = Path(folder)
    try:
        _made.extend(path for path in (folder, *folder.parents) if not path.exists())
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"veloxseg")
        remove_stale_temporary_files(folder)
    except OSError as error:
        raise OutputError(
            f"cannot write in {shown(folder)}: {error.strerror or error}; choose another folder with -o"
        ) from error
    return folder


@contextlib.contextmanager
def no_empty_folders() -> Iterator[Callable[[], None]]:
    """Gives a function that removes the folders which `writable_folder` made within, and nothing was written to."""
    _made.clear()

    def remove() -> None:
        for folder in sorted(_made, key=lambda path: len(path.parts), reverse=True):
            with contextlib.suppress(OSError):  # it is not empty, or gone
                folder.rmdir()

    yield remove
