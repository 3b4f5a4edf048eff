"""nnU-Net's own networks, built from its plans: PlainConvUNet and ResidualEncoderUNet (the ResEnc presets).

Plans name classes as text, and nnU-Net imports whatever they name. Here a text chooses from a table, so that plans
from outside import nothing. The networks themselves come with nnU-Net (`pip install 'veloxseg[nnunet]'`); a converted
MODEL does not need them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from veloxseg.errors import ModelError, shown
from veloxseg.extras import require

if TYPE_CHECKING:
    from torch import nn

__all__ = ["NETWORKS", "build_stock"]

MODULE = "dynamic_network_architectures.architectures.unet"
NETWORKS = ("PlainConvUNet", "ResidualEncoderUNet")
# the parts that plans name, by the last word of their path
PARTS = ("Conv3d", "InstanceNorm3d", "BatchNorm3d", "Dropout3d", "LeakyReLU", "ReLU")
SETTINGS = (
    *("n_stages", "features_per_stage", "kernel_sizes", "strides", "n_conv_per_stage", "n_blocks_per_stage"),
    *("n_conv_per_stage_decoder", "conv_bias", "norm_op_kwargs", "dropout_op_kwargs", "nonlin_kwargs"),
)
CLASSES = ("conv_op", "norm_op", "dropout_op", "nonlin")


def build_stock(name: str, settings: dict[str, Any], channels: int, outputs: int) -> "nn.Module":
    """The network that `architecture` of the plans names, without deep supervision."""
    short = name.rpartition(".")[2]
    if short not in NETWORKS:
        raise ModelError(f"the network is {shown(name)}; of nnU-Net's networks {', '.join(NETWORKS)} can be converted")
    if unknown := sorted(settings.keys() - {*SETTINGS, *CLASSES}):
        raise ModelError(f"the network has the setting {shown(unknown[0])}, which is not known here")
    require("nnunet", f"converting {short}", [MODULE.partition(".")[0]])
    module = importlib.import_module(MODULE)
    chosen = {key: _part(value) if key in CLASSES else value for key, value in settings.items()}
    try:
        return getattr(module, short)(
            input_channels=channels, num_classes=outputs, deep_supervision=False, **chosen
        ).eval()
    except (TypeError, ValueError, AssertionError, RuntimeError, IndexError) as error:
        raise ModelError(f"{short} cannot be built as plans.json asks ({shown(error, 120)})") from error


def _part(name: Any) -> Any:
    from torch import nn

    if name is None:
        return None
    short = str(name).rpartition(".")[2]
    if short not in PARTS:
        raise ModelError(f"the network is made of {shown(name)}, and {', '.join(PARTS)} can be converted")
    return getattr(nn, short)
