"""The compiled kernels, by ctypes. They are built at installation where there is a C compiler (hatch_build.py)."""

import ctypes
from ctypes import POINTER, c_float, c_int, c_long, c_void_p
from functools import lru_cache
from pathlib import Path

__all__ = ["Pair", "Product", "kernels"]

LIBRARY = Path(__file__).parent / "_kernels.so"
N, Floats = c_long, c_void_p


class Product(ctypes.Structure):
    """See kernels.c."""

    _fields_ = (
        *((name, Floats) for name in ("x", "weight", "bias", "residual", "out", "offsets")),
        *((name, N) for name in ("segments", "run", "outputs")),
        *((name, N) for name in ("nx", "ny", "nz", "sx", "sy", "sz", "ox", "oy", "oz")),
        ("factor", c_float),
        ("activate", c_int),
    )


class Pair(ctypes.Structure):
    """See kernels.c."""

    _fields_ = tuple(
        (name, N)
        for name in ("modalities", "nx", "ny", "nz", "bx", "by", "bz", "small_x", "small_y", "small_z")
    )


SIGNATURES = {
    "product": [POINTER(Product)],
    "head": [POINTER(Product), Floats],
    "group4": [Floats, N, N, Floats, Floats, Floats, N, N, N, N, c_int],
    "statistics": [Floats, *[N] * 6, Floats, Floats],
    "normalise": [Floats, N, N, Floats, Floats, c_int, Floats, Floats, *[N] * 6],
    "layer_norm": [Floats, Floats, N, N],
    "cells": [Floats, N, N, Floats, N, N, N, N, c_int],
    "place": [Floats, Floats, *[N] * 7],
    "gather": [POINTER(Pair), Floats, N, N, N, Floats],
    "attention": [Floats, *[N] * 5, Floats, N, Floats, Floats],
    "scatter": [POINTER(Pair), Floats, N, N, Floats, Floats, Floats, N, N],
}


@lru_cache(maxsize=1)
def kernels() -> ctypes.CDLL | None:
    """The library, or None where it was not built or the processor lacks what it was built for."""
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError:
        return None
    if not library.supported():
        return None
    for name, arguments in SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, None
    return library
