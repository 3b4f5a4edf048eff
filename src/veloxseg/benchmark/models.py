"""The models that a benchmark can name: VeloxSeg's presets and the peers, as MODEL folders with random weights.

All run through the same `infer.open_runtime` as a prediction does, so that what is measured is what users get.
Speed does not depend on the weights' values; they are drawn from a fixed seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veloxseg.errors import ConfigError
from veloxseg.model_folder import ModelFolder
from veloxseg.peers.registry import PEERS
from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan

if TYPE_CHECKING:
    from torch import nn

__all__ = ["MODELS", "YARDSTICK", "BenchmarkModel", "Published", "find_model", "write_folder"]

YARDSTICK = "unet"  # MONAI's BasicUNet in eager PyTorch: everyone has it, so ratios to it travel between machines


@dataclass(frozen=True, kw_only=True)
class Published:
    """The paper's figures for 2×96³ (VeloxSeg-C: 4×96³), counted by the paper's counter."""

    parameters: float | None = None  # millions
    macs: float | None = None  # G
    cpu: float | None = None  # patches/s, Xeon Gold 5320
    gpu: float | None = None  # patches/s, GeForce RTX 3090
    dice: float | None = None  # %, AutoPET-II


@dataclass(frozen=True, kw_only=True)
class BenchmarkModel:
    name: str
    title: str
    preset: str | None  # of VeloxSeg; None for a peer
    in_channels: tuple[int, ...] = (1, 1)
    classes: int = 2
    patch: tuple[int, int, int] = (96, 96, 96)
    published: Published

    @property
    def architecture(self) -> str:
        return self.name if self.preset is None else "veloxseg"

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (1, sum(self.in_channels), *self.patch)

    def settings(self) -> dict[str, Any]:
        """What `networks.build_network` takes."""
        if self.preset is not None:
            from veloxseg.model.config import preset

            return replace(preset(self.preset), patch=self.patch).to_json()
        return {"in_channels": self.in_channels, "classes": self.classes, "patch": self.patch}

    def build(self) -> "nn.Module":
        import torch

        from veloxseg.model_folder import build_network

        torch.manual_seed(0)
        return build_network(self.architecture, self.settings()).eval()


PUBLISHED_PRESETS = {
    "b": Published(parameters=1.66, macs=1.79, cpu=6.67, gpu=390.91, dice=62.51),
    "s": Published(parameters=1.19, macs=1.41),
    "l": Published(parameters=2.65, macs=2.45),
    "b+": Published(parameters=5.26, macs=4.27),
    "c": Published(parameters=1.46, macs=2.64, cpu=5.23, gpu=536.62),
}

MODELS: dict[str, BenchmarkModel] = {
    **{
        name: BenchmarkModel(
            name=name,
            title=f"VeloxSeg-{name.upper()}",
            preset=name,
            published=published,
            in_channels=(4,) if name == "c" else (1, 1),
            classes=4 if name == "c" else 2,
        )
        for name, published in PUBLISHED_PRESETS.items()
    },
    **{
        name: BenchmarkModel(
            name=name,
            title=peer.title,
            preset=None,
            published=Published(parameters=peer.parameters, macs=peer.macs, cpu=peer.cpu, gpu=peer.gpu, dice=peer.dice),
        )
        for name, peer in PEERS.items()
    },
}


def find_model(name: str) -> BenchmarkModel:
    if name not in MODELS:
        raise ConfigError(f"there is no model {name!r} to benchmark; choose from {', '.join(MODELS)}")
    return MODELS[name]


def write_folder(model: BenchmarkModel, network: "nn.Module", path: Path) -> ModelFolder:
    """A MODEL folder of this network, as training would leave it."""
    from veloxseg.model_folder import save_weights

    path.mkdir(parents=True, exist_ok=True)
    names = [f"channel{i}" for i in range(sum(model.in_channels))]
    folder = ModelFolder(
        path=path,
        architecture=model.architecture,
        network=model.settings(),
        plan=_plan(model, names),
        provenance={"note": "random weights of a benchmark"},
    )
    folder.write_description()
    save_weights(network, folder.weights)
    return folder


def _plan(model: BenchmarkModel, modalities: Sequence[str]) -> Plan:
    return Plan(
        dataset=model.name,
        modalities=tuple(
            ModalityPlan(name=name, kind="other", normalisation=Normalisation(scheme="none")) for name in modalities
        ),
        reference=modalities[0],
        spacing=(2.0, 2.0, 2.0),
        patch=model.patch,
        windows=(),
        labels={"background": 0, **{f"label{i}": i for i in range(1, model.classes)}},
    )
