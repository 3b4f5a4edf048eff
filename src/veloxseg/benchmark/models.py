"""The models of a benchmark: VeloxSeg's presets and the peers, as MODEL folders with random weights, and own MODELs.

All run through the same `open_runtime` as a prediction does, so that what is measured is what users get.
Speed does not depend on the weights' values; they are drawn from a fixed seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veloxseg.errors import ConfigError, did_you_mean, shown
from veloxseg.model_folder import ModelFolder
from veloxseg.peers.published import DEVIATIONS, PUBLISHED, Figures
from veloxseg.peers.registry import PEERS
from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan
from veloxseg.tasks import find_task
from veloxseg.types import Size

if TYPE_CHECKING:
    from torch import nn

__all__ = ["MODELS", "YARDSTICK", "BenchmarkModel", "find_model", "own_models", "write_folder"]

YARDSTICK = "unet"  # MONAI's BasicUNet in eager PyTorch: everyone has it, so ratios to it travel between machines


@dataclass(frozen=True, kw_only=True)
class BenchmarkModel:
    name: str
    title: str
    preset: str | None  # of VeloxSeg; None for a peer
    in_channels: tuple[int, ...] = (1, 1)
    classes: int = 2
    patch: tuple[int, int, int] = (96, 96, 96)
    published: Figures
    deviation: str | None = None  # why our figures are not the published ones
    own: ModelFolder | None = None  # a MODEL with weights, instead of random ones

    @property
    def architecture(self) -> str:
        if self.own is not None:
            return self.own.architecture
        return self.name if self.preset is None else "veloxseg"

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (1, sum(self.in_channels), *self.patch)

    def settings(self) -> dict[str, Any]:
        """What `build_network` takes."""
        if self.preset is not None:
            from veloxseg.model.config import preset

            chosen = preset(self.preset)
            return replace(chosen, in_channels=self.in_channels, classes=self.classes, patch=self.patch).to_json()
        if self.own is not None:
            return self.own.network
        return {"in_channels": self.in_channels, "classes": self.classes, "patch": self.patch}

    def build(self) -> "nn.Module":
        import torch

        from veloxseg.model_folder import build_network, load_network

        if self.own is not None:
            return load_network(self.own)
        torch.manual_seed(0)
        return build_network(self.architecture, self.settings()).eval()


MODELS: dict[str, BenchmarkModel] = {
    **{
        name: BenchmarkModel(
            name=name,
            title=f"VeloxSeg-{name.upper()}",
            preset=name,
            published=PUBLISHED["brats2021" if name == "c" else "autopet2"][name],
            in_channels=(4,) if name == "c" else (1, 1),
            classes=4 if name == "c" else 2,
        )
        for name in ("b", "s", "l", "b+", "c")
    },
    **{
        name: BenchmarkModel(
            name=name, title=peer.title, preset=None, published=PUBLISHED["autopet2"].get(name, Figures())
        )
        for name, peer in PEERS.items()
    },
}


def find_model(name: str, task: str | None = None, patch: Size | None = None) -> BenchmarkModel:
    """A preset or peer, for a task of the paper or for 2×96³ (C: 4×96³); another patch has no published figures."""
    if name not in MODELS:
        raise ConfigError(
            f"there is no model {shown(name)!r} to benchmark{did_you_mean(name, MODELS)}; choose from "
            f"{', '.join(MODELS)}"
        )
    model = MODELS[name]
    if task is not None:
        chosen = find_task(task)
        count = len(chosen.modalities)
        model = replace(
            model,
            in_channels=(count,) if model.preset == "c" else (1,) * count,  # C is early fusion
            classes=chosen.classes,
            patch=chosen.patch,
            published=PUBLISHED[task].get(name, Figures()),
            deviation=DEVIATIONS.get((task, name)),
        )
    if patch is not None and patch != model.patch:
        model = replace(model, patch=patch, published=Figures(), deviation=None)
    return model


def own_models(paths: Sequence[str]) -> list[BenchmarkModel]:
    """MODEL or RUN folders of the user, with their weights."""
    return [_own_model(Path(path), number) for number, path in enumerate(paths, 1)]


def _own_model(path: Path, number: int) -> BenchmarkModel:
    folder = ModelFolder.open(path)
    return BenchmarkModel(
        name=f"own-{number}",  # folders may have the same name
        title=path.resolve().name,
        preset=None,
        in_channels=tuple(folder.network["in_channels"]),
        classes=folder.network["classes"],
        patch=folder.plan.patch,
        published=Figures(),
        own=folder,
    )


def write_folder(model: BenchmarkModel, network: "nn.Module", path: Path) -> ModelFolder:
    """A MODEL folder of this network, as training would leave it; an own MODEL is one already."""
    from veloxseg.model_folder import save_weights

    if model.own is not None:
        return model.own
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
