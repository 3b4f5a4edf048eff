"""`Header`: what a file says about its voxels before any of them is read; and these voxels, from its stream of bytes.

NIfTI, NRRD and MetaImage differ in how they write a header and agree in what it is: a grid, a number type, and the
place of the bytes. Their modules only parse; the voxels are read here for all of them.

Before memory is taken the claim is held against the file's size: deflate expands at most 1032-fold, so a small file
cannot claim gigabytes. Voxels are handed on run by run, so nobody holds them twice. The stream has to hold exactly
what was claimed, and a compressed one has to end with its right checksum.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from isal import isal_zlib  # zlib's interface in half its time

from veloxseg.errors import ImageError, shown
from veloxseg.image.volume import Geometry
from veloxseg.types import Array

__all__ = ["ByteStream", "Header", "StoredVoxels", "check_claim", "read_voxels"]

BLOCK = 1 << 18  # bytes read at once
CHUNK = 1 << 20  # bytes decompressed and handed on at once; they stay in the processor's cache
EXPANSION = {"raw": 1, "gzip": 1032, "zlib": 1032}  # how much a byte of the file can become
SLACK = 1 << 20  # bytes after the last voxel that we pass over with a warning; more is a bomb


@dataclass(frozen=True, kw_only=True)
class StoredVoxels:
    """Where the voxels of a file lie, in Fortran order."""

    path: Path
    encoding: str  # raw, gzip or zlib
    file_offset: int = 0  # bytes of the file before the (compressed) stream
    offset: int = 0  # bytes of the stream before the first voxel
    interleaved: bool = False  # whether the volumes of a 4-D file alternate voxel by voxel
    slope: float = 1.0
    intercept: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Header(Geometry):
    """The grid of an image file, and how its voxels are stored."""

    dtype: np.dtype[Any]  # as stored
    file_type: str  # a name of the table in formats.py
    volumes: int = 1  # more than one in a 4-D file; `read(path, volume=k)` picks one
    keep: dict[str, Any] = field(default_factory=dict)  # what writing back in the same form needs
    warnings: tuple[str, ...] = ()
    stored: StoredVoxels | None = None  # None for DICOM, whose voxels lie in many files

    @property
    def voxels(self) -> int:
        """Number of voxels of one volume."""
        x, y, z = self.shape
        return x * y * z

    @property
    def stored_bytes(self) -> int:
        """What the header claims: all bytes up to the last voxel of the last volume."""
        before = self.stored.offset if self.stored is not None else 0
        return before + self.voxels * self.volumes * self.dtype.itemsize

    def grid(self) -> Geometry:
        """The grid alone."""
        return Geometry(shape=self.shape, affine=self.affine)


class ByteStream:
    """The bytes of a file in order, decompressed on the way; never reads far ahead of what is asked for."""

    def __init__(self, path: Path, encoding: str, start: int = 0) -> None:
        self.encoding = encoding
        self.file = open(path, "rb")  # noqa: SIM115  closed by __exit__
        self.file.seek(start)
        self.decoder = self.new_decoder()
        self.pending = b""  # compressed bytes that the decoder has not taken yet
        self.rest = b""  # what was read of the file after the end of the compressed stream

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
        self.rest = self.rest or self.decoder.unused_data
        if len(self.rest) < 2:
            self.rest += self.file.read(BLOCK)
        if self.encoding != "gzip" or not self.rest.startswith(b"\x1f\x8b"):
            return False
        self.decoder, self.pending, self.rest = self.new_decoder(), self.rest, b""
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

    def finish(self) -> int:
        """At the end of the stream: proves that its checksum was read; returns how many bytes of the file follow."""
        if self.decoder is None:
            return 0
        if not self.decoder.eof:
            raise ImageError(f"ends early, inside its {self.encoding} checksum; copy or download it again")
        after = len(self.rest.strip(b"\0"))  # zeros are padding, as tapes have it
        while block := self.file.read(BLOCK):
            after += len(block.strip(b"\0"))
        return after


def read_voxels(header: Header, volume: int, take: Callable[[int, Array], None]) -> list[str]:
    """Hands one volume on as it is stored (no slope applied), in Fortran order; returns warnings.

    `take(first, run)` gets each run of voxels and the number of the run's first voxel. The run's memory is used
    again for the next one.
    """
    stored = header.stored
    if stored is None:
        raise ImageError("this header has no voxels of its own")
    check_claim(header)
    size = header.voxels * header.dtype.itemsize
    with ByteStream(stored.path, stored.encoding, stored.file_offset) as stream:
        if stored.interleaved:
            count, step, before, first = header.voxels * header.volumes, header.volumes, 0, volume
        else:
            count, step, before, first = header.voxels, 1, size * volume, 0
        got = stream.skip(stored.offset + before)
        if got == stored.offset + before:
            got += hand_on(stream, header.dtype, count, step, first, take)
        got += stream.skip(header.stored_bytes - got)
        if got < header.stored_bytes:
            raise ImageError(f"ends early: got {got} of {header.stored_bytes} bytes; copy or download it again")
        extra = stream.skip(SLACK + 1)
        if extra > SLACK:
            raise ImageError(
                f"goes on after the {header.stored_bytes} bytes that its header claims (a damaged header, or a "
                "gzip bomb); restore the file from the original scan"
            )
        extra += stream.finish()
    return [f"{extra} bytes after the last voxel were ignored"] if extra else []


def hand_on(
    stream: ByteStream, dtype: np.dtype[Any], count: int, step: int, first: int, take: Callable[[int, Array], None]
) -> int:
    """Reads `count` numbers and takes every `step`-th from `first` on; returns the bytes read, fewer at an early end.

    Numbers are read run by run whatever the step is: a step may be longer than what memory holds.
    """
    buffer = np.empty(CHUNK, np.uint8)
    most = CHUNK // dtype.itemsize
    at = done = taken = 0  # numbers read, bytes read, numbers handed on
    while at < count:
        length = min(most, count - at)
        view = buffer[: length * dtype.itemsize]
        got = stream.fill(view.data)
        done += got
        if got < len(view):
            break
        run = view.view(dtype)[(first - at) % step :: step]
        if len(run):
            take(taken, run)
        taken += len(run)
        at += length
    return done


def check_claim(header: Header) -> None:
    """Holds the header's arithmetic against the size of the file, before anything is allocated."""
    stored = header.stored
    assert stored is not None
    claim = header.stored_bytes
    held = stored.path.stat().st_size - stored.file_offset
    if stored.encoding == "raw" and claim > held:
        raise ImageError(f"ends early: got {held} of {claim} bytes; copy or download it again")
    if claim > EXPANSION[stored.encoding] * max(held, 0) + 1024:
        size = " × ".join(map(str, header.shape))
        raise ImageError(
            f"the header claims {size} voxels ({claim} bytes), more than a file of {held} bytes "
            "can hold; restore the file from the original scan"
        )
