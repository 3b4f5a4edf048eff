"""VeloxSeg: fast, trustworthy 3-D multimodal medical segmentation on a CPU.

>>> import veloxseg
>>> net = veloxseg.VeloxSeg(veloxseg.preset("b"))   # (B, 2, 96, 96, 96) -> (B, 2, 96, 96, 96)

Names are loaded when they are first used, so that `import veloxseg` stays instant and torch is only imported
by what needs it. Research use only, not a medical device.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# public name -> the module that defines it (a module of its own stands for itself)
_LAZY = {
    "NetworkConfig": "veloxseg.model.config",
    "preset": "veloxseg.model.config",
    "VeloxSeg": "veloxseg.model.network",
    "SDKTModel": "veloxseg.model.sdkt",
    "segment": "veloxseg.predict.predictor",
    "reference": "veloxseg.reference",
}

__all__ = ["NetworkConfig", "SDKTModel", "VeloxSeg", "__version__", "preset", "reference", "segment"]

if TYPE_CHECKING:
    from veloxseg import reference as reference
    from veloxseg.model.config import NetworkConfig as NetworkConfig
    from veloxseg.model.config import preset as preset
    from veloxseg.model.network import VeloxSeg as VeloxSeg
    from veloxseg.model.sdkt import SDKTModel as SDKTModel
    from veloxseg.predict.predictor import segment as segment


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'veloxseg' has no attribute {name!r}")
    try:
        module = importlib.import_module(_LAZY[name])
    except ImportError as error:
        from veloxseg.extras import missing_package

        raise (missing_package(error) or error) from None
    return module if _LAZY[name] == f"veloxseg.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
