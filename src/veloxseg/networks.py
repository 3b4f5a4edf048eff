"""Any network of this project from its stored description: VeloxSeg or a peer, with or without weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veloxseg.errors import ModelError
from veloxseg.files import atomic_path
from veloxseg.modelfolder import ModelFolder

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["build_network", "differing_names", "load_network", "save_weights"]


def build_network(architecture: str, settings: dict[str, Any]) -> "nn.Module":
    """`settings` is `NetworkConfig.to_json()` for "veloxseg"; in_channels, classes and patch for a peer."""
    if architecture == "veloxseg":
        from veloxseg.model.config import NetworkConfig
        from veloxseg.model.network import VeloxSeg

        return VeloxSeg(NetworkConfig.from_json(settings))
    from veloxseg.peers.registry import build_peer

    sizes = {name: tuple(settings[name]) for name in ("in_channels", "patch")}
    return build_peer(architecture, classes=settings["classes"], **sizes)


def load_network(folder: ModelFolder) -> "nn.Module":
    """The network of a MODEL folder with its weights, in evaluation mode."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    network = build_network(folder.architecture, folder.network)
    try:
        weights = load_file(folder.weights)
    except FileNotFoundError as error:
        raise ModelError(
            f"{folder.weights} does not exist; this folder can only be used by the runtime it was exported for"
        ) from error
    except SafetensorError as error:
        raise ModelError(f"{folder.weights} is damaged ({error}); export the model again") from error
    if differing := differing_names(network, weights):
        raise ModelError(f"{folder.weights} does not fit model.json in {differing}; were files mixed up?")
    network.load_state_dict(weights)
    return network.eval()


def differing_names(module: "nn.Module", weights: "Mapping[str, Tensor]") -> str:
    """The first few names that only one side has, or that differ in size, for a message; empty if all fit."""
    expected = module.state_dict()
    names = sorted(
        name
        for name in expected.keys() | weights.keys()
        if name not in weights or name not in expected or weights[name].shape != expected[name].shape
    )
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def save_weights(network: "nn.Module", path: str | Path) -> None:
    """Writes a network's parameters and buffers as safetensors, atomically."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary)
