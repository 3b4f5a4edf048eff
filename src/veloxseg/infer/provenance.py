"""What a prediction was made from, with and by: enough to make it again."""

import platform
import sys
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
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10), 1)
