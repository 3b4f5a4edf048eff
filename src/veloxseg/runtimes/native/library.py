"""The compiled kernels, by ctypes: one library per instruction set; the widest that this processor has is used.

They are built at installation where there is a C compiler, and come with the wheels (hatch_build.py).
"""

import ctypes
import hashlib
from ctypes import c_char_p, c_float, c_int, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["SETS", "InstructionSet", "Pair", "Product", "built_sets", "kernels", "source_hash"]

FOLDER = Path(__file__).parent
N, Floats = c_int64, c_void_p


class InstructionSet(NamedTuple):
    """How a library is compiled; vectors.h has what differs in the sources."""

    machines: tuple[str, ...]  # as compilers name what they compile for
    flags: tuple[str, ...]
    path: Path


AVX2 = ("-mavx2", "-mfma")
SETS = {  # the widest first
    "avx512": InstructionSet(
        ("x86_64",), (*AVX2, *(f"-mavx512{part}" for part in ("f", "vl", "bw", "dq"))), FOLDER / "_kernels_avx512.so"
    ),
    "avx2": InstructionSet(("x86_64",), AVX2, FOLDER / "_kernels_avx2.so"),
    "neon": InstructionSet(("aarch64", "arm64"), (), FOLDER / "_kernels_neon.so"),
}


class Product(ctypes.Structure):
    """What to multiply; kernels.h explains the fields."""

    _fields_ = (
        *((name, Floats) for name in ("x", "weight", "bias", "residual", "out", "offsets")),
        *((name, N) for name in ("segments", "run", "outputs")),
        *((name, N) for name in ("nx", "ny", "nz", "sx", "sy", "sz", "ox", "oy", "oz")),
        ("factor", c_float),
        ("activate", c_int),
    )


class Pair(ctypes.Structure):
    """A feature and its windows; kernels.h explains the fields."""

    _fields_ = tuple(
        (name, N) for name in ("modalities", "nx", "ny", "nz", "bx", "by", "bz", "small_x", "small_y", "small_z")
    )


SIGNATURES = {  # what Python calls, and what that returns; the other kernels are called by `replay` (replay.c)
    "instruction_set": ([], c_char_p),
    "kernel_names": ([], c_char_p),
    "lanes": ([], N),
    "panel": ([], N),
    "replay": ([Floats, N, N], None),
    "add_weighted": ([*[Floats, N, N] * 4, N, N, N], c_int),
}


def source_hash() -> str:
    """The hash of the C files. A library that was built from others is not used: its functions may differ."""
    text = b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.[ch]")))
    return hashlib.sha256(text).hexdigest()


@lru_cache(maxsize=len(SETS) + 1)
def kernels(name: str | None = None) -> ctypes.CDLL | None:
    """The library of that instruction set, or the best one for this processor.

    None where it was not built, is stale, or needs a processor that this is not.
    """
    if name is None:
        return next(filter(None, map(kernels, SETS)), None)
    try:
        library = ctypes.CDLL(str(SETS[name].path))
    except OSError:
        return None
    library.sources.restype = c_char_p
    if library.sources().decode() != source_hash() or not library.supported():
        return None
    for function, (arguments, answer) in SIGNATURES.items():
        getattr(library, function).argtypes, getattr(library, function).restype = arguments, answer
    return library


def built_sets() -> list[str]:
    """The instruction sets that were built and that this processor has; the first is used."""
    return [name for name in SETS if kernels(name) is not None]
