"""A MODEL folder: `model.safetensors` (inference weights, no teacher) and `model.json` (all else).

`model.json` holds the network's configuration, modalities in order, labels, the preprocessing plan and the
provenance. Only the functions that build a network import torch: `veloxseg info` and the torch-free runtimes read the
same folder.

A folder with `ensemble.json` is an ensemble: a list of the MODEL or RUN folders in it, which predict together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from veloxseg.dataset.seen import Learning
from veloxseg.errors import ModelError, shown
from veloxseg.files import atomic_path, read_json, write_json
from veloxseg.prepare.plan import Plan
from veloxseg.schema import Count, Range, build
from veloxseg.shipped import cards, located

if TYPE_CHECKING:
    from torch import Tensor, nn

    from veloxseg.model.config import NetworkConfig

__all__ = [
    "ModelFolder",
    "build_network",
    "differing_names",
    "find_model",
    "load_network",
    "members",
    "read_pickle_safely",
    "save_weights",
    "write_ensemble",
]

FORMAT = 1
JSON_NAME = "model.json"
WEIGHTS_NAME = "model.safetensors"
ENSEMBLE_NAME = "ensemble.json"


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """The description of a model; weights stay in their file until a runtime asks for them."""

    path: Path
    architecture: str  # "veloxseg" or the name of a peer
    network: dict[str, Any]  # arguments of the network's configuration
    plan: Plan
    provenance: dict[str, Any]

    @property
    def weights(self) -> Path:
        return self.path / WEIGHTS_NAME

    @cached_property
    def learning(self) -> Learning | None:
        """The cases that it was trained and validated on; None if it does not know them."""
        if (value := self.provenance.get("learning")) is None:
            return None
        where = f"{shown(self.path / JSON_NAME)}: provenance.learning"
        learning: Learning = build(Learning, value, where, ModelError, "export the model again")
        return learning

    def write_description(self) -> None:
        write_json(
            self.path / JSON_NAME,
            {
                "format": FORMAT,
                "architecture": self.architecture,
                "network": self.network,
                "modalities": list(self.plan.names),
                "labels": self.plan.labels,
                "plan": self.plan.to_json(),
                "provenance": self.provenance,
            },
        )

    @classmethod
    def open(cls, path: str | Path) -> "ModelFolder":
        """Opens a MODEL folder, or a RUN folder that contains one; what does not fit together is refused here."""
        path = find_model(path)
        value = read_json(path / JSON_NAME)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ModelError(f"{path / JSON_NAME} is not a model description of format {FORMAT}; export it again")
        where = shown(path / JSON_NAME)
        description: _Description = build(_Description, value, where, ModelError, "export the model again")
        folder = cls(
            path=path,
            architecture=description.architecture,
            network=description.network,
            plan=description.plan,
            provenance=description.provenance,
        )
        _check_together(folder, where)
        return folder


@dataclass(frozen=True, kw_only=True)
class _Description:
    """model.json."""

    format: int
    architecture: str
    network: dict[str, Any]
    plan: Plan
    provenance: dict[str, Any]
    modalities: tuple[str, ...] = ()  # for people; the plan decides
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PeerSizes:
    """What a peer is built from."""

    in_channels: tuple[Count, ...]
    classes: Annotated[int, Range(1, 1024)]
    patch: tuple[Count, Count, Count]


def network_sizes(architecture: str, settings: dict[str, Any], where: str) -> "NetworkConfig | PeerSizes":
    """The settings of a network, checked: all of VeloxSeg's, or the sizes of a peer."""
    from veloxseg.model.config import NetworkConfig

    kind = NetworkConfig if architecture == "veloxseg" else PeerSizes
    return build(kind, settings, f"{where}: network", ModelError, "export the model again")


def _check_together(folder: ModelFolder, where: str) -> None:
    """The network takes and gives what the plan says."""
    plan, network = folder.plan, network_sizes(folder.architecture, folder.network, where)
    for what, found, expected in (
        ("input channels", sum(network.in_channels), len(plan.names)),
        ("classes", network.classes, len(plan.outputs)),
        ("patch", network.patch, plan.patch),
    ):
        if found != expected:
            raise ModelError(
                f"{where}: the network has {what} {found}, the plan {expected}; were two descriptions mixed up?"
            )


def find_model(path: str | Path) -> Path:
    """The folder with `model.json`: `path` itself, `path/model` of a training run, or a shipped model's by its name."""
    path = located(path)
    for folder in (path, path / "model"):
        if (folder / JSON_NAME).is_file():
            return folder
    if (path / ENSEMBLE_NAME).is_file() or len(members(path)) > 1:
        names = ", ".join(member.name for member in members(path))
        raise ModelError(
            f"{shown(path)} is an ensemble of {names}, which `predict` takes as a whole; name one of its members"
        )
    if not path.exists():
        raise ModelError(
            f"{shown(path)} does not exist; give a folder made by train, export or convert, or a model that comes with "
            f"VeloxSeg: {', '.join(cards()) or 'none'}"
        )
    if path.suffix in {".pth", ".pt", ".ckpt", ".pkl"}:
        raise ModelError(
            f"{path} is a pickle, which can run code when opened; `veloxseg convert` reads released weights safely"
        )
    raise ModelError(f"{path} is no model: {JSON_NAME} is not in it; give a folder made by train, export or convert")


def members(path: str | Path) -> list[Path]:
    """The models that predict together: those of an ensemble, or `path` itself where it is none.

    An ensemble has `ensemble.json` (`train --folds`), or the models `fold_0`, `fold_1`, ... (converted from nnU-Net).
    """
    path = located(path)
    if (path / ENSEMBLE_NAME).is_file():
        return [path / name for name in _listed_members(path / ENSEMBLE_NAME)]
    folds = [] if (path / JSON_NAME).is_file() else sorted(path.glob(f"fold_*/{JSON_NAME}"))
    return [fold.parent for fold in folds] or [path]


def _listed_members(file: Path) -> tuple[str, ...]:
    where = shown(file)
    ensemble: _Ensemble = build(_Ensemble, read_json(file), where, ModelError, "train the folds again")
    if ensemble.format != FORMAT or not ensemble.members:
        raise ModelError(f"{where} is no list of models of format {FORMAT}; train the folds again")
    for name in ensemble.members:
        if name in ("", ".", "..") or Path(name).name != name or "\\" in name:
            raise ModelError(f"{where}: member {shown(name)!r} is no folder beside it; name folders that are")
    return ensemble.members


def write_ensemble(path: Path, names: Sequence[str]) -> None:
    """Makes `path` an ensemble of the models in it."""
    write_json(path / ENSEMBLE_NAME, {"format": FORMAT, "members": list(names)})


@dataclass(frozen=True, kw_only=True)
class _Ensemble:
    """ensemble.json."""

    format: int
    members: tuple[str, ...]


def read_pickle_safely(path: Path, allowed: Sequence[Any] = ()) -> Any:
    """Another party's checkpoint: tensors, plain values, and classes that are `allowed`; all else is refused, not run.

    The one place of the project that opens a pickle.
    """
    import torch

    try:
        with torch.serialization.safe_globals(list(allowed)):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = shown(str(error).splitlines()[0] if str(error) else type(error).__name__, 120)
        raise ModelError(
            f"{shown(path)} cannot be read safely ({reason}); nothing of it was run. Is it a checkpoint as its authors "
            "released it? Else ask them for safetensors"
        ) from error


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
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    with atomic_path(path) as temporary:
        temporary.write_bytes(save(tensors))  # save_file tells of a full disk by an error of its own
