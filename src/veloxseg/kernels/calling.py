"""When the kernels may compute, how tensors are handed to them, and how work is shared among threads.

A kernel trusts addresses and sizes. Whatever it is given passes `address`, which compares type, place and shape with
what the kernel will touch.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import CDLL
from functools import lru_cache

import torch
from torch import Tensor

from veloxseg.errors import ShapeError
from veloxseg.kernels.library import Dropout, training_kernels

__all__ = ["address", "channels_last", "dropout", "kernels_for", "lanes", "room", "share"]

MOST_THREADS = 4  # work is shared by samples and parts of channels; with more threads PyTorch has more to share
_of_thread = threading.local()


def kernels_for(*tensors: Tensor) -> CDLL | None:
    """The kernels if they compute for these tensors, which are to have a gradient; else None, and PyTorch computes."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return None
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return None
    if any(tensor.device.type != "cpu" or tensor.dtype != torch.float32 for tensor in tensors):
        return None
    if not any(tensor.requires_grad for tensor in tensors) or torch.is_autocast_enabled("cpu"):
        return None
    return training_kernels() if torch.get_num_threads() <= MOST_THREADS else None


@lru_cache(maxsize=1)
def lanes() -> int:
    """Floats of a vector."""
    kernels = training_kernels()
    assert kernels is not None
    return int(kernels.lanes())


def channels_last(x_BCXYZ: Tensor) -> Tensor:
    return x_BCXYZ.contiguous(memory_format=torch.channels_last_3d)


def address(tensor: Tensor, *shape: int) -> int:
    """Where the tensor's numbers are; they have this shape, and lie side by side (or channels-last, with 5 axes)."""
    dense = tensor.is_contiguous() or (tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d))
    if tuple(tensor.shape) != shape or not dense or tensor.dtype != torch.float32 or tensor.device.type != "cpu":
        raise ShapeError(
            f"a kernel was given {tensor.dtype} {tuple(tensor.shape)} with steps {tensor.stride()}; it takes dense "
            f"float32 {shape}"
        )
    return tensor.data_ptr()


def room(floats: int) -> int:
    """The address of so many floats that this thread may overwrite until it asks again."""
    found: Tensor | None = getattr(_of_thread, "room", None)
    if found is None or found.numel() < floats:
        _of_thread.room = found = torch.empty(floats)
    return found.data_ptr()


def dropout(rate: float) -> Dropout:
    """A dropout with a seed of PyTorch's random numbers; each element's bits follow from seed and place."""
    if rate == 0:
        return Dropout(0, 0, 0)
    seed = int(torch.empty((), dtype=torch.int64).random_()) % 2**63
    return Dropout(seed, round(rate * 2**32) - 2**31, 1 / (1 - rate))


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="veloxseg-kernels")


def share(task: Callable[[int], None], parts: Sequence[int] | range) -> None:
    """Does the task for each part, on as many threads as PyTorch has; a part's result depends on no other."""
    if torch.get_num_threads() == 1 or len(parts) == 1:
        for part in parts:
            task(part)
    else:
        list(_pool().map(task, parts))
