"""The machine that figures were measured on, so that they can be judged, and this process's memory."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

__all__ = ["allowed_cores", "describe", "peak_rss_mb", "pin", "rss_mb"]

PACKAGES = ("torch", "openvino", "onnxruntime", "monai", "numpy")
VECTOR_FLAGS = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx_vnni", "amx_bf16", "asimd")


def describe() -> dict[str, Any]:
    """CPU, memory, system and the versions of what computes."""
    found = dict(_colon_lines(Path("/proc/cpuinfo")))
    flags = found.get("flags", found.get("Features", "")).split()
    memory = dict(_colon_lines(Path("/proc/meminfo"))).get("MemTotal", "").split()
    return {
        "cpu": found.get("model name", platform.processor() or platform.machine()),
        "cores": len(allowed_cores()),
        "vector": [flag for flag in VECTOR_FLAGS if flag in flags],
        "memory_gb": round(int(memory[0]) / 2**20, 1) if memory else None,
        "system": platform.system() + " " + platform.release(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def allowed_cores() -> list[int]:
    """The cores that this process may use; containers often have fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pin(threads: int) -> list[int]:
    """Binds this process, and all threads that it will start, to as many cores as threads (on Linux)."""
    cores = allowed_cores()[:threads]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    return cores


def peak_rss_mb() -> float:
    """The most memory that this process has held, in MB.

    Read from /proc where it exists: the figure of `getrusage` starts at the parent's size after a fork.
    """
    status = dict(_colon_lines(Path("/proc/self/status")))
    if "VmHWM" in status:
        return int(status["VmHWM"].split()[0]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if platform.system() == "Darwin" else 1024)


def rss_mb() -> float:
    """The memory that this process holds now, in MB; the peak where the system does not tell."""
    status = dict(_colon_lines(Path("/proc/self/status")))
    return int(status["VmRSS"].split()[0]) / 1024 if "VmRSS" in status else peak_rss_mb()


def _colon_lines(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [
        (key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in lines) if value
    ]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
