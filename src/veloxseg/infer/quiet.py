"""Libraries that report usage over the network, or talk too much, imported so that they do not."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from veloxseg.errors import MissingDependencyError

__all__ = ["no_standard_error", "quiet_onnxruntime", "quiet_openvino", "quiet_ray"]


def quiet_openvino() -> Any:
    """openvino without openvino_telemetry: where that cannot be imported, OpenVINO has a stand-in that does nothing."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def quiet_onnxruntime() -> Any:
    """onnxruntime reports since version 1.29, unless this variable is set when the library is loaded."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime


def quiet_ray() -> Any:
    """ray with ray.data. It reads these variables when imported, and hands them to a cluster that it starts."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # of the part that is not Python
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")  # news of other processes
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingDependencyError(f"--ray needs Ray ({error}); pip install 'veloxseg[ray]'") from error
    return ray


@contextlib.contextmanager
def no_standard_error() -> Iterator[None]:
    """Standard error goes nowhere for a while, also what is written there by code that is not Python."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
