"""The compiled kernels, by ctypes. They are built at installation where there is a C compiler (hatch_build.py)."""

import ctypes
import hashlib
from ctypes import POINTER, c_float, c_int, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path

__all__ = ["Pair", "Product", "kernels", "source_hash"]

FOLDER = Path(__file__).parent
LIBRARY = FOLDER / "_kernels.so"
N, Floats = c_int64, c_void_p


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
    "head": [POINTER(Product), Floats],
    "group4": [Floats, N, N, Floats, Floats, Floats, N, N, N, N, c_int],
    "statistics": [Floats, *[N] * 6, Floats, Floats],
    "normalise": [Floats, N, N, Floats, Floats, c_int, Floats, Floats, *[N] * 6],
    "layer_norm": [Floats, Floats, N, N],
    "cells": [Floats, N, N, Floats, N, N, N, N, c_int],
    "place": [Floats, N, N, N, Floats, *[N] * 7],
    "gather": [POINTER(Pair), Floats, N, N, N, Floats],
    "attention": [Floats, *[N] * 5, Floats, N, Floats, Floats],
    "scatter": [POINTER(Pair), Floats, N, N, Floats, Floats, Floats, N, N],
}


def source_hash() -> str:
    """The hash of the C files. A library that was built from others is not used: its functions may differ."""
    text = b"".join(path.read_bytes() for path in sorted(FOLDER.glob("*.[ch]")))
    return hashlib.sha256(text).hexdigest()


@lru_cache(maxsize=1)
def kernels() -> ctypes.CDLL | None:
    """The library, or None where it was not built, is stale, or needs a processor that this is not."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    library.sources.restype = ctypes.c_char_p
    if library.sources().decode() != source_hash() or not library.supported():
        return None
    for name, arguments in SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None
    return library
