"""What a prediction was made from, with and by: enough to make it again."""

import platform
import re
from pathlib import Path
from typing import Any

from veloxseg import __version__
from veloxseg.files import sha256
from veloxseg.modelfolder import ModelFolder

__all__ = ["NOTICE", "model_record", "peak_memory_mb", "software_record"]

NOTICE = "research use only, not a medical device"


def software_record() -> dict[str, Any]:
    return {
        "veloxseg": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def model_record(folder: ModelFolder) -> dict[str, Any]:
    """Which model: the hash of its weights, or of the graph that it was exported as."""
    known = folder.provenance.get("weights_sha256")
    weights = sha256(folder.weights) if folder.weights.is_file() else known
    return {
        "name": folder.path.name,
        "architecture": folder.architecture,
        "weights_sha256": weights,
        "network": folder.network,
    }


def peak_memory_mb() -> float | None:
    """The most memory that this process has held; None where the system does not say."""
    status = Path("/proc/self/status")
    if status.is_file():  # Linux; getrusage would count what the parent held before it started us
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        return round(int(found[1]) / 1024, 1) if found else None
    try:
        import resource
    except ImportError:  # Windows
        return None
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20), 1)  # bytes on macOS
