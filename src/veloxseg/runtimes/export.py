"""Export: a folder that predicts without torch, and a report that it predicts the same.

Torch makes graphs and compares them with the network; the native form is made without it, and then not compared.

a runtime with a graph    the graph, model.json (plan, labels, provenance), parity.json; `veloxseg predict -m` takes it
torch                     weights and model.json: a plain MODEL folder
monai-bundle              configs/metadata.json, configs/inference.json, models/model.ts for MONAI's own tools
"""

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veloxseg import __version__
from veloxseg.console import say
from veloxseg.errors import ConfigError, shown
from veloxseg.extras import require, without
from veloxseg.files import sha256, writable_folder, write_json
from veloxseg.machine import NOTICE
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.runtimes import BUNDLE, RUNTIMES, function, obstacle, open_runtime

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["convert", "export", "write_graph"]


def export(model: str | Path, folder: str | Path, form: str) -> Path:
    """Writes `model` in the form `form` to `folder`; raises if the result does not give what the network gives."""
    if form not in (*RUNTIMES, BUNDLE):
        raise ConfigError(f"format {shown(form)!r} is unknown; choose from {', '.join((*RUNTIMES, BUNDLE))}")
    source = ModelFolder.open(model)
    target = writable_folder(folder)
    if target.resolve() == source.path.resolve():
        raise ConfigError(f"{folder} is the model itself; export to a new folder with -o")
    if form == BUNDLE:
        require("train", f"export to {form}", ["torch"])
        from veloxseg.runtimes.bundle import write_bundle

        write_bundle(source, target)
    elif RUNTIMES[form].writer is None and RUNTIMES[form].converter is None:
        for name in RUNTIMES[form].files:
            shutil.copyfile(source.path / name, target / name)
        _describe(source, target)
    else:
        _export_graph(source, target, form)
    return target


def convert(folder: ModelFolder, runtime: str, into: Path) -> None:
    """Writes the graph of a model for `runtime` in the folder `into`."""
    if (reason := obstacle(folder, runtime)) is not None:
        raise reason
    if (converter := RUNTIMES[runtime].converter) is not None:
        function(converter)(folder, into)
        return
    require("train", f"making a graph for {runtime} from weights", ["torch"])
    import torch

    from veloxseg.runtimes.graph import inference_form

    network = inference_form(load_network(folder), runtime, difference=folder.plan.two_classes)
    window = torch.zeros(1, len(folder.plan.names), *folder.plan.patch)
    write_graph(network, window, runtime, into)


def write_graph(network: "nn.Module", window: "torch.Tensor", runtime: str, into: Path) -> Path:
    """Writes a network in its inference form, traced on `window`; returns the file that the runtime opens."""
    kind = RUNTIMES[runtime]
    if kind.writer is None:
        raise ConfigError(f"runtime {runtime} reads weights as they are and has no graph; use `veloxseg export`")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing warns that shapes are fixed, which is on purpose
        function(kind.writer)(network, window, into)
    return into / kind.files[-1]


def _export_graph(source: ModelFolder, target: Path, form: str) -> None:
    convert(source, form, target)
    exported = _describe(source, target, exported_to=form)
    if without("torch"):
        say(f"{form} was not compared with the network, because that takes torch: pip install 'veloxseg[train]'")
        return
    from veloxseg.runtimes.parity import check_parity, parity

    say(f"comparing {form} with the network in float64")
    report = parity(load_network(source), open_runtime(exported, form), source.plan)
    write_json(target / "parity.json", report)
    check_parity(report)
    say(
        f"probabilities differ by at most {report['worst_probability_difference']:.1e}, "
        f"{report['worst_equal_labels']:.4%} of labels are equal"
    )


def _describe(source: ModelFolder, target: Path, **more: Any) -> ModelFolder:
    """Writes model.json beside what was exported, with the weights that it came from."""
    provenance = {
        **source.provenance,
        "weights_sha256": sha256(source.weights),
        "exported_by": f"veloxseg {__version__}",
        "notice": NOTICE,
        **more,
    }
    exported = replace(source, path=target, provenance=provenance)
    exported.write_description()
    return exported
