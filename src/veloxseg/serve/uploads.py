"""Raw uploads: one request per file, straight to disk in bounded memory, whole or not there."""

import asyncio
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from veloxseg.serve.archive import safe_suffix
from veloxseg.serve.cases import mean_seconds
from veloxseg.serve.refusal import Refusal
from veloxseg.serve.settings import Settings
from veloxseg.serve.states import BUSY
from veloxseg.serve.store import Store

__all__ = ["check_disk", "check_length", "pieces", "receive_file", "receive_json", "room_in_line", "store_pieces"]

SLOWEST_SECONDS = 30.0  # between two pieces of a body
MOST_JSON_BYTES = 8 << 20
GB = 1_000_000_000


async def receive_file(request: Any, folder: Path, name: str, settings: Settings) -> tuple[str, int, str]:
    """Stores the body under a name of ours in `folder`; returns that name, the size and the SHA-256."""
    check_length(request, int(settings.max_upload_gb * GB))
    return await store_pieces(pieces(request), folder, name, settings)


async def store_pieces(
    content: AsyncIterator[bytes], folder: Path, name: str, settings: Settings
) -> tuple[str, int, str]:
    """The same of a body that comes in pieces."""
    limit = int(settings.max_upload_gb * GB)
    check_disk(settings)
    own = secrets.token_hex(8)
    part, target = folder / f".part-{own}", f"{own}{safe_suffix(name)}"
    found, size = hashlib.sha256(), 0
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "wb") as file:
            async for piece in content:
                size += len(piece)
                if size > limit:
                    raise Refusal(413, f"the file is larger than {settings.max_upload_gb:g} GB; see --max-upload")
                found.update(piece)
                file.write(piece)
            await asyncio.to_thread(_sync, file)
        if size == 0:
            raise Refusal(400, "the file is empty (0 bytes); send its content as the body of the request")
        os.replace(part, folder / target)
    except OSError as error:
        raise Refusal(507, f"the file cannot be stored ({error.strerror or error})") from error
    finally:
        part.unlink(missing_ok=True)
    return target, size, found.hexdigest()


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


async def pieces(request: Any) -> AsyncIterator[bytes]:
    """The body piece by piece; a sender that stalls is let go."""
    stream = request.stream()
    while True:
        try:
            piece = await asyncio.wait_for(anext(stream, None), SLOWEST_SECONDS)
        except TimeoutError as error:
            raise Refusal(408, f"nothing came for {SLOWEST_SECONDS:.0f} s; send it again") from error
        if piece is None:
            return
        yield piece


async def receive_json(request: Any) -> Any:
    """The body as JSON, if it is small; an empty body is an empty object."""

    check_length(request, MOST_JSON_BYTES)
    body = bytearray()
    async for piece in pieces(request):
        body += piece
        if len(body) > MOST_JSON_BYTES:
            raise Refusal(413, f"the request is larger than {MOST_JSON_BYTES >> 20} MB")
    try:
        return json.loads(body) if body else {}
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the request is not valid JSON") from error


def check_length(request: Any, limit: int) -> None:
    """Refuses by what the sender announces, before anything is read."""
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced) > limit:
        raise Refusal(413, f"{announced} bytes are announced, at most {limit} are taken; see --max-upload")


def check_disk(settings: Settings) -> None:
    """Refuses politely while there is still room for what was accepted."""
    if shutil.disk_usage(settings.folder).free < settings.min_free_gb * GB:
        raise Refusal(507, "the server's disk is nearly full; delete cases, or ask its keeper", retry_after=600)


def room_in_line(store: Store, settings: Settings) -> None:
    """Refuses a further case while as many as are taken are unfinished, and says when to come again."""
    marks = ", ".join("?" * len(BUSY))
    busy = store.read(f"SELECT COUNT(*) AS n FROM cases WHERE state IN ({marks})", *BUSY)[0]["n"]
    if busy >= settings.queue:
        wait = max(1, round(mean_seconds(store) or 30))
        raise Refusal(429, f"{busy} cases are in line, at most {settings.queue} are taken", retry_after=wait)
