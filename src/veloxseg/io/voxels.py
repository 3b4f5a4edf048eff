"""Voxels from a plain or compressed stream, bounded by what the header claims.

Before memory is taken the claim is held against the file's size: deflate expands at most 1032-fold, so a
small file cannot claim gigabytes. The stream has to hold exactly what was claimed, with a right checksum.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from isal import isal_zlib  # zlib's interface in half its time

from veloxseg.errors import ImageError
from veloxseg.io.checks import shown
from veloxseg.io.header import Header, StoredVoxels

__all__ = ["ByteStream", "read_voxels"]

BLOCK = 1 << 18  # bytes read at once
CHUNK = 1 << 22  # bytes decompressed at once
EXPANSION = {"raw": 1, "gzip": 1032, "zlib": 1032}  # how much a byte of the file can become
SLACK = 1 << 20  # bytes after the last voxel that we pass over with a warning; more is a bomb


class ByteStream:
    """The bytes of a file in order, decompressed on the way; never reads far ahead of what is asked for."""

    def __init__(self, path: Path, encoding: str, start: int = 0) -> None:
        self.encoding = encoding
        self.file = open(path, "rb")  # noqa: SIM115  closed by __exit__
        self.file.seek(start)
        self.decoder = self.new_decoder()
        self.pending = b""  # compressed bytes that the decoder has not taken yet

    def __enter__(self) -> "ByteStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def new_decoder(self) -> Any:
        if self.encoding == "raw":
            return None
        return isal_zlib.decompressobj(31 if self.encoding == "gzip" else 15)

    def read_some(self, limit: int) -> bytes:
        """Between 1 and `limit` bytes, or none at the end of the stream."""
        if self.decoder is None:
            return self.file.read(min(limit, CHUNK))
        while True:
            if self.decoder.eof and not self.next_member():
                return b""
            if not self.pending:
                self.pending = self.file.read(BLOCK)
            ended = not self.pending
            try:
                data: bytes = self.decoder.decompress(self.pending, limit)
            except isal_zlib.error as error:  # type: ignore[misc]  # its stub has an instance for the class
                raise ImageError(
                    f"damaged {self.encoding} data ({shown(error)}); copy or download the file again"
                ) from error
            self.pending = self.decoder.unconsumed_tail
            if data or (ended and not self.decoder.eof):
                return data

    def next_member(self) -> bool:
        """Starts the next of several gzip members, as bgzip and pigz write them."""
        rest = self.decoder.unused_data or self.file.read(BLOCK)
        if self.encoding != "gzip" or not rest.startswith(b"\x1f\x8b"):
            return False
        self.decoder, self.pending = self.new_decoder(), rest
        return True

    def fill(self, view: memoryview) -> int:
        """Reads into `view`; returns the number of bytes, smaller only at the end of the stream."""
        done = 0
        while done < len(view):
            if self.decoder is None:
                got = self.file.readinto(view[done:])
            else:
                data = self.read_some(min(len(view) - done, CHUNK))
                got = len(data)
                view[done : done + got] = data
            if not got:
                break
            done += got
        return done

    def skip(self, count: int) -> int:
        """Passes over `count` bytes; returns how many there were."""
        done = 0
        while done < count and (data := self.read_some(min(count - done, CHUNK))):
            done += len(data)
        return done


def read_voxels(header: Header, volume: int = 0) -> tuple[npt.NDArray[Any], list[str]]:
    """One volume as stored (no slope applied), in Fortran order, and warnings."""
    stored = header.stored
    if stored is None:
        raise ImageError("this header has no voxels of its own")
    size = header.voxels * header.dtype.itemsize
    claim = stored.offset + size * header.volumes
    check_claim(stored, claim, header)
    first, count = (0, size * header.volumes) if stored.interleaved else (size * volume, size)
    buffer = np.empty(count, np.uint8)
    with ByteStream(stored.path, stored.encoding, stored.file_offset) as stream:
        got = stream.skip(stored.offset + first)
        if got == stored.offset + first:
            got += stream.fill(buffer.data)
        got += stream.skip(claim - got) if got == stored.offset + first + count else 0
        if got < claim:
            raise ImageError(f"ends early: got {got} of {claim} bytes; copy or download it again")
        extra = stream.skip(SLACK + 1)
    if extra > SLACK:
        raise ImageError(
            f"goes on after the {claim} bytes that its header claims (a damaged header, or a "
            "gzip bomb); restore the file from the original scan"
        )
    array = buffer.view(header.dtype)
    if stored.interleaved:
        array = np.ascontiguousarray(array.reshape(-1, header.volumes)[:, volume])
    warnings = [f"{extra} bytes after the last voxel were ignored"] if extra else []
    return array.reshape(header.shape, order="F"), warnings


def check_claim(stored: StoredVoxels, claim: int, header: Header) -> None:
    """The header's arithmetic against the size of the file, before anything is allocated."""
    held = stored.path.stat().st_size - stored.file_offset
    if stored.encoding == "raw" and claim > held:
        raise ImageError(f"ends early: got {held} of {claim} bytes; copy or download it again")
    if claim > EXPANSION[stored.encoding] * max(held, 0) + 1024:
        size = " × ".join(map(str, header.shape))
        raise ImageError(
            f"the header claims {size} voxels ({claim} bytes), more than a file of {held} bytes "
            "can hold; restore the file from the original scan"
        )
