"""Read the authors' released weights, or a model that was trained in nnU-Net, into a MODEL folder.

A folder of nnUNet_results (`.../nnUNetTrainer__nnUNetPlans__3d_fullres`) becomes a MODEL that gives nnU-Net's masks;
its checkpoints are read without running what a pickle may hold. Several folds become an ensemble.

Otherwise SOURCE is a .safetensors file or the authors' .pth; the latter is opened by torch.load(weights_only=True),
which cannot run code. CONFIG is the authors' JSON, with their names of settings (the section "VeloxSeg" or the whole
file). The preprocessing of the weights is not part of them: --plan takes the plan.json of a prepared data set.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veloxseg.console import say
from veloxseg.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from torch import Tensor

SUMMARY = "read the authors' released weights, or a model of nnU-Net, into a MODEL folder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "weights", type=Path, metavar="SOURCE", help="a .pth or .safetensors file, or a folder of nnUNet_results"
    )
    parser.add_argument("--config", type=Path, help="the authors' JSON configuration, for their weights")
    parser.add_argument(
        "--plan", type=Path, help="plan.json to store as preprocessing (default: none, z-score at 1 mm)"
    )
    parser.add_argument(
        "--fold", nargs="+", default=[], metavar="K", help="folds of nnU-Net: 0, 1, ... or all (default: those there)"
    )
    parser.add_argument(
        "--checkpoint", default="checkpoint_final.pth", metavar="NAME", help="of a fold (default checkpoint_final.pth)"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="the MODEL folder to write")


def run(arguments: argparse.Namespace) -> None:
    from veloxseg.extras import require

    require("train", "converting weights", ["torch"])
    if arguments.weights.is_dir():
        from veloxseg.nnunet.convert import convert_results

        convert_results(arguments.weights, arguments.output, tuple(arguments.fold), arguments.checkpoint)
    elif arguments.config is None:
        raise ConfigError("--config is missing; the authors' weights need the authors' JSON configuration")
    else:
        convert_weights(arguments)


def convert_weights(arguments: argparse.Namespace) -> None:
    """The authors' released weights."""
    from veloxseg import __version__, reference
    from veloxseg.files import read_json, sha256, writable_folder
    from veloxseg.machine import NOTICE
    from veloxseg.model.network import VeloxSeg
    from veloxseg.model_folder import ModelFolder, save_weights
    from veloxseg.prepare.plan import Plan

    settings = read_json(arguments.config)
    config = reference.config(settings.get("VeloxSeg", settings))
    weights = read_weights(arguments.weights)
    network = VeloxSeg(config)
    reference.load_weights(network, weights)
    plan = Plan.from_json(read_json(arguments.plan)) if arguments.plan else default_plan(config)
    folder = ModelFolder(
        path=writable_folder(arguments.output),
        architecture="veloxseg",
        network=config.to_json(),
        plan=plan,
        provenance={
            "veloxseg": __version__,
            "converted_from": arguments.weights.name,
            "sha256": sha256(arguments.weights),
            "note": f"weights of the paper's authors; {NOTICE}",
        },
    )
    save_weights(network, folder.weights)
    folder.write_description()
    say(f"wrote {folder.path} ({sum(p.numel() for p in network.parameters()) / 1e6:.2f} M parameters)")


def read_weights(path: Path) -> "dict[str, Tensor]":
    """The authors' parameters by their names, from a safetensors file or a checkpoint of tensors."""
    if not path.is_file():
        raise ModelError(f"{path} does not exist; give the authors' checkpoint")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            tensors = load_file(path)
        except SafetensorError as error:
            raise ModelError(f"{path} is damaged ({error}); download it again") from error
        return {name.removeprefix("weights."): value for name, value in tensors.items() if _is_weight(name, tensors)}
    import torch

    from veloxseg.model_folder import read_pickle_safely

    found = read_pickle_safely(path)
    for key in ("state_dict", "model", "network_weights", "net"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not found or not all(isinstance(v, torch.Tensor) for v in found.values()):
        raise ModelError(f"{path} holds no dictionary of tensors; expected the network's state_dict")
    return found


def _is_weight(name: str, tensors: "dict[str, Tensor]") -> bool:
    """Files that hold more than weights (such as golden tensors) mark them by a prefix."""
    marked = any(other.startswith("weights.") for other in tensors)
    return name.startswith("weights.") or not marked


def default_plan(config: Any) -> Any:
    from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan

    names = [f"modality{i}" for i in range(sum(config.in_channels))]
    return Plan(
        dataset="unknown",
        modalities=tuple(
            ModalityPlan(name=name, kind="other", normalisation=Normalisation(scheme="zscore_body")) for name in names
        ),
        reference=names[0],
        spacing=(1.0, 1.0, 1.0),
        patch=config.patch,
        windows=config.big_windows,
        labels={"background": 0, **{f"class{i}": i for i in range(1, config.classes)}},
    )
