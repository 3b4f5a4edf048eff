"""Libraries that report usage over the network, imported so that they do not."""

import os
import sys
from typing import Any

__all__ = ["quiet_onnxruntime", "quiet_openvino"]


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
