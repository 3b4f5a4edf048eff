"""Bodies of several parts (multipart/form-data), read piece by piece: files go to disk, small fields are kept."""

import re
from collections.abc import AsyncIterator
from typing import Any

from veloxseg.serve.refusal import Refusal

__all__ = ["boundary_of", "parts_of"]

MOST_HEAD = 8 << 10  # of one part
Part = tuple[str, str, AsyncIterator[bytes]]  # name of the field, name of the file or "", content


def boundary_of(content_type: str) -> bytes:
    found = re.search(r'boundary="?([^";]{1,200})"?', content_type)
    if not content_type.lower().startswith("multipart/") or found is None:
        raise Refusal(400, "expected a body of several parts (multipart/form-data)")
    return b"\r\n--" + found[1].strip().encode("latin-1")


async def parts_of(pieces: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[Part]:
    """Every part in order; each has to be read to its end before the next is asked for."""
    held = bytearray(b"\r\n")  # so that the first boundary looks as the others do

    async def more() -> None:
        piece: Any = await anext(pieces, None)
        if piece is None:
            raise Refusal(400, "the body ends before its last part does")
        held.extend(piece)

    async def content() -> AsyncIterator[bytes]:
        """Up to the next boundary, which is taken away too."""
        while (at := held.find(boundary)) < 0:
            sure = len(held) - len(boundary) + 1  # what cannot be the start of a boundary
            if sure > 0:
                yield bytes(held[:sure])
                del held[:sure]
            await more()
        if at:
            yield bytes(held[:at])
        del held[: at + len(boundary)]

    async for _ in content():  # what stands before the first boundary means nothing
        pass
    while True:
        while len(held) < 2:
            await more()
        if held[:2] == b"--":
            return
        while (end := held.find(b"\r\n\r\n")) < 0:
            if len(held) > MOST_HEAD:
                raise Refusal(400, "the head of a part is too long")
            await more()
        head = held[:end].decode("latin-1")
        del held[: end + 4]
        names = [re.search(rf'[; ]{word}="([^"]*)"', head) for word in ("name", "filename")]
        yield (names[0][1] if names[0] else "", names[1][1] if names[1] else "", content())
