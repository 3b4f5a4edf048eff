"""The compiled kernels of training, by ctypes: one library per instruction set; the widest that there is is used.

They are built with those of prediction (hatch_build.py), with the same flags. Where they are missing, PyTorch computes.
"""

import ctypes
import hashlib
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import lru_cache
from pathlib import Path

__all__ = [
    "NAMES",
    "Attention",
    "Branches",
    "Dropout",
    "FeedForward",
    "Mixing",
    "library_path",
    "source_hash",
    "training_kernels",
]

FOLDER = Path(__file__).parent
VECTORS = FOLDER.parent / "runtimes" / "native" / "vectors.h"
NAMES = ("avx512", "avx2", "neon")  # the widest first; their flags are in runtimes/native/library.py
BRANCHES = 4  # MOST of groups.c
INPUTS = 8  # MOST of mixing.c
N, Floats = c_int64, c_void_p


class Dropout(ctypes.Structure):
    """See training.h."""

    _fields_ = (("seed", c_uint64), ("least", c_int32), ("factor", c_float))


class Branches(ctypes.Structure):
    """See groups.c."""

    _fields_ = (
        *((name, N) for name in ("nx", "ny", "nz", "channels", "width", "branches", "border")),
        ("size", N * BRANCHES),
        ("weight", Floats * BRANCHES),
        ("weight_gradient", Floats * BRANCHES),
        *((name, Floats) for name in ("bias", "x", "gradient")),
        *((name, Floats * BRANCHES) for name in ("raw", "mean", "scale")),
        *((name, Floats) for name in ("out", "inside")),
    )


class FeedForward(ctypes.Structure):
    """See feed_forward.c."""

    _fields_ = (
        *((name, N) for name in ("voxels", "channels", "hidden", "row")),
        *((name, Floats) for name in ("y", "gradient", "weight1", "bias1", "weight2", "bias2")),
        *((name, Floats) for name in ("mean", "scale", "before", "out")),
        *((name, Floats) for name in ("weight1_gradient", "bias1_gradient", "weight2_gradient", "bias2_gradient")),
        ("room", Floats),
        *((name, N) for name in ("layer", "residual")),
        *((name, Dropout) for name in ("dropout", "hidden_dropout")),
    )


class Mixing(ctypes.Structure):
    """See mixing.c."""

    _fields_ = (
        *((name, N) for name in ("voxels", "outputs", "inputs")),
        ("channels", N * INPUTS),
        ("x", Floats * INPUTS),
        *((name, Floats) for name in ("weight", "raw", "mean", "scale", "out", "gradient")),
        ("x_gradient", Floats * INPUTS),
        ("weight_gradient", Floats),
    )


class Attention(ctypes.Structure):
    """See attention.c."""

    _fields_ = (
        *((name, N) for name in ("tokens", "padded", "heads", "dk", "dv", "row")),
        *(
            (name, Floats)
            for name in ("qkv", "bias", "out", "sums", "gradient", "qkv_gradient", "bias_gradient", "room")
        ),
        ("dropout", Dropout),
    )


SIGNATURES = {
    "mix_forward": [POINTER(Mixing)],
    "mix_backward": [POINTER(Mixing)],
    "attention_forward": [POINTER(Attention), N, N],
    "attention_backward": [POINTER(Attention), N, N],
    "branches_forward": [POINTER(Branches), N, N],
    "branches_backward": [POINTER(Branches), N, N],
    "feed_forward": [POINTER(FeedForward)],
    "feed_forward_backward": [POINTER(FeedForward)],
    "two_class_sums": [Floats, c_void_p, N, c_void_p],
    "two_class_gradient": [Floats, c_void_p, N, *[c_float] * 3, Floats],
    "cells": [Floats, Floats, *[N] * 5, c_int],
    "norm_forward": [Floats, N, N, *[Floats] * 3],
    "norm_backward": [Floats, N, N, *[Floats] * 4],
}


def library_path(name: str) -> Path:
    return FOLDER / f"_training_{name}.so"


def source_hash() -> str:
    """The hash of the C files. A library that was built from others is not used: its functions may differ."""
    text = b"".join(path.read_bytes() for path in [*sorted(FOLDER.glob("*.[ch]")), VECTORS])
    return hashlib.sha256(text).hexdigest()


@lru_cache(maxsize=len(NAMES) + 1)
def training_kernels(name: str | None = None) -> ctypes.CDLL | None:
    """The library of that instruction set, or the best one for this processor.

    None where it was not built, is stale, or needs a processor that this is not.
    """
    if name is None:
        return next(filter(None, map(training_kernels, NAMES)), None)
    try:
        library = ctypes.CDLL(str(library_path(name)))
    except OSError:
        return None
    library.sources.restype = ctypes.c_char_p
    if library.sources().decode() != source_hash() or not library.supported():
        return None
    library.lanes.restype = N
    for function_name, arguments in SIGNATURES.items():
        function = getattr(library, function_name)
        function.argtypes, function.restype = arguments, None
    return library
