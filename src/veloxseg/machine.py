"""This computer and this process, for records and limits: versions, processor, cores, memory. No names of people."""

import ctypes
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from veloxseg import __version__

__all__ = [
    "NOTICE",
    "allowed_cores",
    "default_workers",
    "describe",
    "keep_freed_memory",
    "peak_rss_mb",
    "pin",
    "processor",
    "rss_mb",
    "software",
    "versions",
]

NOTICE = "research use only, not a medical device"
PACKAGES = ("torch", "openvino", "onnxruntime", "monai", "numpy")
VECTOR_FLAGS = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "amx_bf16", "asimd")


def software() -> dict[str, Any]:
    """What made a result, in the fewest words."""
    return {
        "veloxseg": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def versions(*packages: str) -> dict[str, str]:
    """The versions of those packages that are installed."""
    return {name: version for name in packages if (version := _version(name))}


def describe() -> dict[str, Any]:
    """Processor, memory, system and the versions of what computes: what a measured figure is judged by."""
    flags = _cpu_facts().get("flags", _cpu_facts().get("Features", "")).split()
    memory = dict(_colon_lines(Path("/proc/meminfo"))).get("MemTotal", "").split()
    return {
        "cpu": processor(),
        "cores": len(allowed_cores()),
        "vector": [flag for flag in VECTOR_FLAGS if flag in flags],
        "memory_gb": round(int(memory[0]) / 2**20, 1) if memory else None,
        "system": platform.system() + " " + platform.release(),
        "python": platform.python_version(),
        "packages": versions(*PACKAGES),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def processor() -> str:
    """The processor's name."""
    return _cpu_facts().get("model name") or platform.processor() or platform.machine()


def allowed_cores() -> list[int]:
    """The cores that this process may use; containers often have fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def default_workers() -> int:
    """As many as there are cores for us, eight at most: reading gains little beyond, and each takes memory."""
    return min(8, len(allowed_cores()))


def pin(threads: int) -> list[int]:
    """Binds this process, and all threads that it will start, to as many cores as threads (on Linux)."""
    cores = allowed_cores()[:threads]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    return cores


def keep_freed_memory() -> None:
    """Has freed memory kept for what comes next, where the C library is glibc.

    By default large blocks go back to the system, which hands them out anew, page by page and filled with zeros: a
    tenth of a training step. The peak does not change.
    """
    trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    mallopt(trim_threshold, 2**30)
    mallopt(mmap_threshold, 2**30)


def peak_rss_mb() -> float | None:
    """The most memory that this process has held, in MB; None where the system does not tell.

    It is read from /proc where that exists: the figure of `getrusage` starts at the parent's size after a fork.
    """
    status = dict(_colon_lines(Path("/proc/self/status")))
    if "VmHWM" in status:
        return round(int(status["VmHWM"].split()[0]) / 1024, 1)
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if platform.system() == "Darwin" else 1024), 1)


def rss_mb() -> float | None:
    """The memory that this process holds now, in MB; the peak where the system does not tell."""
    status = dict(_colon_lines(Path("/proc/self/status")))
    return int(status["VmRSS"].split()[0]) / 1024 if "VmRSS" in status else peak_rss_mb()


def _cpu_facts() -> dict[str, str]:
    return dict(_colon_lines(Path("/proc/cpuinfo")))


def _colon_lines(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines) if value]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
