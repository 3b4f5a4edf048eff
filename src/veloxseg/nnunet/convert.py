"""A folder of nnUNet_results becomes a MODEL: its plan does what nnU-Net does to voxels, its network runs in ours.

A VeloxSeg keeps its weights, and every runtime computes it. Any other network of nnU-Net is traced once into a graph
of OpenVINO, which needs neither torch nor nnU-Net. Several folds become MODEL/fold_0, MODEL/fold_1, ..., which
`predict -m MODEL` takes as an ensemble. Imports torch.
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from veloxseg import __version__
from veloxseg.console import say
from veloxseg.errors import ModelError, shown
from veloxseg.files import sha256, writable_folder, write_json
from veloxseg.machine import NOTICE
from veloxseg.model.config import NetworkConfig
from veloxseg.model.network import VeloxSeg
from veloxseg.model_folder import ModelFolder, differing_names, save_weights
from veloxseg.nnunet.checkpoint import FINAL, Fold, find_folds, read_fold
from veloxseg.nnunet.network import CLASS_NAME, student_weights
from veloxseg.nnunet.norms import exact_norms
from veloxseg.nnunet.plans import Configuration, read_configuration, to_plan
from veloxseg.nnunet.stock import build_stock
from veloxseg.prepare.plan import Plan
from veloxseg.runtimes import open_runtime
from veloxseg.runtimes.export import write_graph
from veloxseg.runtimes.graph import inference_form
from veloxseg.runtimes.parity import check_parity, parity

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["convert_results"]

GRAPH = "openvino"  # for networks that are not ours


def convert_results(
    results: Path, target: Path, folds: tuple[str, ...] = (), checkpoint: str = FINAL
) -> list[ModelFolder]:
    """Writes the folds of `results` to `target`; nothing is written before all of them were read."""
    paths = find_folds(results, folds, checkpoint)
    read = [read_fold(path) for path in paths]
    made = [_network(results, fold) for fold in read]
    writable_folder(target)
    folders = []
    for fold, (plan, architecture, settings, network) in zip(read, made, strict=True):
        place = target if len(made) == 1 else writable_folder(target / fold.path.parent.name)
        folder = ModelFolder(
            path=place, architecture=architecture, network=settings, plan=plan, provenance=_provenance(results, fold)
        )
        folders.append(_write(folder, network))
        say(f"wrote {place} ({sum(p.numel() for p in network.parameters()) / 1e6:.2f} M parameters)")
    return folders


def _network(results: Path, fold: Fold) -> "tuple[Plan, str, dict[str, Any], nn.Module]":
    """The plan of a fold, what its network is called here, its settings, and the network with its weights."""
    plans, configuration = read_configuration(results / "plans.json", fold.configuration)
    plan = to_plan(plans, configuration, results / "dataset.json", fold.mirror_axes)
    name, settings = _architecture(configuration)
    if name == CLASS_NAME:
        config = NetworkConfig.from_json(settings.get("config"))
        network: nn.Module = _loaded(VeloxSeg(config), student_weights(fold.weights), fold)
        return plan, "veloxseg", config.to_json(), network
    network = build_stock(name, settings, len(plan.names), len(plan.outputs))
    sizes = {"in_channels": [len(plan.names)], "classes": len(plan.outputs), "patch": list(plan.patch)}
    return plan, name.rpartition(".")[2], sizes, _loaded(network, fold.weights, fold)


def _architecture(configuration: Configuration) -> tuple[str, dict[str, Any]]:
    found = configuration.architecture or {}
    name, settings = found.get("network_class_name"), found.get("arch_kwargs")
    if not isinstance(name, str) or not isinstance(settings, dict):
        raise ModelError("plans.json names no architecture, neither as nnU-Net does today nor as it did before 2.5")
    return name, settings


def _loaded(network: "nn.Module", weights: "dict[str, Tensor]", fold: Fold) -> "nn.Module":
    if differing := differing_names(network, weights):
        raise ModelError(f"{shown(fold.path)} does not fit plans.json in {differing}; were files mixed up?")
    network.load_state_dict(weights)
    return network.eval()


def _provenance(results: Path, fold: Fold) -> dict[str, Any]:
    return {
        "veloxseg": __version__,
        "converted_from": f"{results.parent.name}/{results.name}/{fold.path.parent.name}/{fold.path.name}",
        "trainer": fold.trainer,
        "sha256": sha256(fold.path),
        "note": f"trained in nnU-Net; {NOTICE}",
    }


def _write(folder: ModelFolder, network: "nn.Module") -> ModelFolder:
    """Weights for VeloxSeg, a graph for any other network; the graph is compared with the network."""
    if folder.architecture == "veloxseg":
        save_weights(network, folder.weights)
        folder.write_description()
        return folder
    window = torch.zeros(1, len(folder.plan.names), *folder.plan.patch)
    form = inference_form(exact_norms(network, window, GRAPH), GRAPH, difference=folder.plan.two_classes)
    write_graph(form, window, GRAPH, folder.path)
    exported = replace(folder, provenance={**folder.provenance, "exported_to": GRAPH})
    exported.write_description()
    say(f"comparing {GRAPH} with the network in float64")
    report = parity(network, open_runtime(exported, GRAPH), folder.plan)
    write_json(folder.path / "parity.json", report)
    check_parity(report)
    return exported
