"""Fine-tuning: a network starts from the weights of a MODEL, wherever names and sizes fit.

Tables of indices follow from the network's own sizes and are never taken. What the first model has learnt from travels
on: its cases are seen cases of the new model, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from veloxseg.console import say, warn
from veloxseg.dataset.seen import Learning
from veloxseg.errors import ModelError, shown, some
from veloxseg.files import sha256
from veloxseg.model_folder import ModelFolder, build_network, load_network
from veloxseg.peers.registry import read_pretrained
from veloxseg.prepare.plan import Plan

__all__ = ["FirstWeights", "find_first_weights", "load_first_weights"]


@dataclass(frozen=True, kw_only=True)
class FirstWeights:
    """Where the first weights came from, and what the network did not take over: no path, only names and hashes."""

    architecture: str
    weights_sha256: str
    modalities: tuple[str, ...]
    taken: int  # tensors
    left: tuple[str, ...]  # names of the network's tensors that start at random
    learning: Learning | None  # of the first model; None if it does not know its cases

    def to_json(self) -> dict[str, Any]:
        learning = None if self.learning is None else self.learning.to_json()
        return {**self.summary(), "learning": learning}

    def summary(self) -> dict[str, Any]:
        """For MODEL, whose own cases include those of the first model."""
        return {
            "architecture": self.architecture,
            "weights_sha256": self.weights_sha256,
            "modalities": list(self.modalities),
            "taken": self.taken,
            "left": list(self.left),
        }

    def tell(self, plan: Plan) -> None:
        """Says what is taken, and warns of what is not as a user may think."""
        say(f"first weights {self.weights_sha256[:12]}: {self.taken} of {self.taken + len(self.left)} tensors fit")
        if self.left:
            warn(f"{len(self.left)} tensors start at random, as their sizes or names differ: {some(self.left)}")
        if self.modalities and self.modalities != plan.names:
            warn(
                f"the first model takes {', '.join(self.modalities)}, this one {', '.join(plan.names)}; "
                "weights are taken by position, not by modality"
            )


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Weights to start from."""

    weights: Mapping[str, Tensor]
    name: str  # of the architecture
    sha256: str
    modalities: tuple[str, ...]
    learning: Learning | None


def find_first_weights(model: str, architecture: str, network: dict[str, Any]) -> FirstWeights:
    """What a network of these settings takes from MODEL, or from a foundation model's file; nothing is an error."""
    source = _open(model, architecture)
    own = _learnt(build_network(architecture, network))
    fitting = _fitting(own, source.weights)
    if not fitting:
        raise ModelError(
            f"no weight of {shown(model)} ({source.name}) fits {architecture}; give a model of this network"
        )
    return FirstWeights(
        architecture=source.name,
        weights_sha256=source.sha256,
        modalities=source.modalities,
        taken=len(fitting),
        left=tuple(name for name in own if name not in fitting),
        learning=source.learning,
    )


def load_first_weights(student: nn.Module, model: str, expected: FirstWeights) -> None:
    """Puts the weights into the network, if they are still those that were found when the run was begun."""
    source = _open(model, expected.architecture)
    if source.sha256 != expected.weights_sha256:
        raise ModelError(f"{shown(model)} is not what the run was begun with; restore it, or train in another folder")
    student.load_state_dict(_fitting(_learnt(student), source.weights), strict=False)


def _open(model: str, architecture: str) -> _Source:
    path = Path(model)
    ours = (path / "model.json").is_file() or (path / "model" / "model.json").is_file()
    if not ours and (weights := read_pretrained(architecture, model)) is not None:
        file = path / "model.safetensors" if path.is_dir() else path
        return _Source(weights=weights, name=architecture, sha256=sha256(file), modalities=(), learning=None)
    folder = ModelFolder.open(model)
    return _Source(
        weights=load_network(folder).state_dict(),
        name=folder.architecture,
        sha256=sha256(folder.weights),
        modalities=folder.plan.names,
        learning=folder.learning,
    )


def _learnt(network: nn.Module) -> dict[str, Tensor]:
    """Parameters and running statistics; whole numbers are tables of indices or counts."""
    return {name: tensor for name, tensor in network.state_dict().items() if tensor.is_floating_point()}


def _fitting(own: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: weights[name] for name, t in own.items() if name in weights and weights[name].shape == t.shape}
