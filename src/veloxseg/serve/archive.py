"""Zip archives from outside: unpacked by what really comes out of them, under names of ours.

What an archive says about itself is not believed: bytes are counted as they come out. Archives within archives, links,
folders that climb and encrypted members are left out; an archive that grows without measure is refused as a whole.
"""

import json
import os
import shutil
import stat
import zipfile
from pathlib import Path

from veloxseg.errors import ImageError, shown
from veloxseg.image.formats import FORMATS

__all__ = ["NAMES", "is_zip", "safe_suffix", "unpack"]

NAMES = "names.json"  # what the members were called, by the names that they have here
MOST_MEMBERS = 20_000
MOST_BYTES = 16 << 30
MOST_RATIO = 200  # DICOM and NIfTI shrink to a tenth, a constant image to a two-hundredth
FREE_BYTES = 64 << 20  # so much may come out of any archive, however small it is
BLOCK = 1 << 20
LINK = 0o120000


def is_zip(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def safe_suffix(name: str) -> str:
    """The ending of an image's name, if it is one that we know: readers go by it."""
    every = sorted((suffix for form in FORMATS.values() for suffix in form.suffixes), key=len, reverse=True)
    return next((suffix for suffix in every if name.lower().endswith(suffix)), "")


def unpack(archive: Path, into: Path) -> list[str]:
    """Unpacks into a new folder, which is there whole or not at all; returns what was left out, for the user."""
    if into.is_dir():
        return []
    stage = into.with_name(f".part-{into.name}")
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(mode=0o700)
    try:
        notes = _unpack(archive, stage)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError) as error:
        shutil.rmtree(stage, ignore_errors=True)
        raise ImageError(f"the zip archive is damaged ({type(error).__name__}); make it again") from error
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    os.rename(stage, into)
    return notes


def _unpack(archive: Path, stage: Path) -> list[str]:
    limit = min(MOST_BYTES, FREE_BYTES + MOST_RATIO * archive.stat().st_size)
    names: dict[str, str] = {}
    left_out = 0
    with zipfile.ZipFile(archive) as opened:
        members = opened.infolist()
        if len(members) > MOST_MEMBERS:
            raise ImageError(f"the zip archive has {len(members)} members, at most {MOST_MEMBERS} are taken; split it")
        for member in members:
            if member.is_dir():
                continue
            if stat.S_IFMT(member.external_attr >> 16) == LINK or member.flag_bits & 1:
                left_out += 1
                continue
            own = f"{len(names):06d}{safe_suffix(member.filename)}"
            limit -= _extract(opened, member, stage / own, limit)
            if is_zip(stage / own):
                (stage / own).unlink()
                left_out += 1
                continue
            names[own] = member.filename
    (stage / NAMES).write_text(json.dumps(names), encoding="utf-8")
    return [f"{left_out} members of the archive are links, encrypted or archives themselves: left out"] * (left_out > 0)


def _extract(opened: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path, limit: int) -> int:
    """Copies one member; the bytes that came out."""
    size = 0
    with opened.open(member) as source, open(path, "xb") as target:
        while block := source.read(BLOCK):
            size += len(block)
            if size > limit:
                raise ImageError(
                    f"the zip archive grows beyond {shown(limit >> 20)} MB, {MOST_RATIO} times its size; send the files"
                )
            target.write(block)
    return size
