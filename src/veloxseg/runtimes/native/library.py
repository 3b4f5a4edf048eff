"""The compiled kernels, by ctypes: one library per instruction set; the widest that this processor has is used.

They are built at installation where there is a C compiler, and come with the wheels (hatch_build.py).
"""

import ctypes
import hashlib
from ctypes import POINTER, c_float, c_int, c_int64, c_void_p
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
    """What to multiply; products.h explains the fields."""

    _fields_ = (
        *((name, Floats) for name in ("x", "weight", "bias", "residual", "out", "offsets")),
        *((name, N) for name in ("segments", "run", "outputs")),
        *((name, N) for name in ("nx", "ny", "nz", "sx", "sy", "sz", "ox", "oy", "oz")),
        ("factor", c_float),
        ("activate", c_int),
    )


class Pair(ctypes.Structure):
    """A feature and its windows; attention.c explains the fields."""

    _fields_ = tuple(
        (name, N) for name in ("modalities", "nx", "ny", "nz", "bx", "by", "bz", "small_x", "small_y", "small_z")
    )


SIGNATURES = {
    "product": [POINTER(Product)],
    "head": [Floats, N, N, Floats, Floats, Floats, *[N] * 5, Floats, Floats],
    "group": [Floats, N, N, Floats, Floats, Floats, N, N, N, N, c_int, c_int],
    "filtered_group": [Floats, N, N, Floats, Floats, Floats, N, N, N, N, c_int, c_int, Floats],
    "statistics": [Floats, *[N] * 6, Floats, Floats],
    "normalise": [Floats, N, N, Floats, Floats, c_int, Floats, Floats, *[N] * 6],
    "layer_norm": [Floats, Floats, N, N],
    "cells": [Floats, N, N, Floats, N, N, N, N, c_int],
    "place": [Floats, N, N, N, Floats, *[N] * 7],
    "add_weighted": [*[Floats, N, N] * 3, N, N, N],
    "gather": [POINTER(Pair), Floats, N, N, N, Floats],
    "attention": [Floats, *[N] * 5, Floats, Floats, Floats],
    "scatter": [POINTER(Pair), Floats, N, Floats, Floats, N, N],
}
ANSWERING = {"add_weighted"}  # functions that return a number


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
    library.sources.restype = library.instruction_set.restype = ctypes.c_char_p
    if library.sources().decode() != source_hash() or not library.supported():
        return None
    library.lanes.restype = library.panel.restype = N
    for function_name, arguments in SIGNATURES.items():
        function = getattr(library, function_name)
        function.argtypes, function.restype = arguments, c_int if function_name in ANSWERING else None
    return library


def built_sets() -> list[str]:
    """The instruction sets that were built and that this processor has; the first is used."""
    return [name for name in SETS if kernels(name) is not None]
