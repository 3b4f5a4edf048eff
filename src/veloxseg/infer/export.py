"""Export: a folder that predicts without torch, and a report that it predicts the same. Imports torch.

native, openvino, onnx    the graph, model.json (plan, labels, provenance), parity.json; `veloxseg predict -m` takes it
torch                     weights and model.json: a plain MODEL folder
monai-bundle              configs/metadata.json, configs/inference.json, models/model.ts for MONAI's own tools
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from veloxseg import __version__
from veloxseg.console import say
from veloxseg.errors import ConfigError
from veloxseg.files import sha256, writable_folder, write_json
from veloxseg.infer.provenance import NOTICE
from veloxseg.modelfolder import ModelFolder

__all__ = ["FORMATS", "export"]

FORMATS = ("native", "openvino", "onnx", "monai-bundle", "torch")


def export(model: str | Path, folder: str | Path, form: str) -> Path:
    """Writes `model` in the form `form` to `folder`; raises if the result does not give what the network gives."""
    if form not in FORMATS:
        raise ConfigError(f"format {form!r} is unknown; choose from {', '.join(FORMATS)}")
    source = ModelFolder.open(model)
    target = writable_folder(folder)
    if target.resolve() == source.path.resolve():
        raise ConfigError(f"{folder} is the model itself; export to a new folder with -o")
    if form == "monai-bundle":
        from veloxseg.infer.bundle import write_bundle

        write_bundle(source, target)
    elif form == "torch":
        shutil.copyfile(source.weights, target / source.weights.name)
        _describe(source, target)
    else:
        _export_graph(source, target, form)
    return target


def _export_graph(source: ModelFolder, target: Path, form: str) -> None:
    from veloxseg.infer.convert import convert
    from veloxseg.infer.parity import check_parity, parity
    from veloxseg.infer.runtime import open_runtime
    from veloxseg.networks import load_network

    convert(source, form, target)
    exported = _describe(source, target, exported_to=form)
    say(f"comparing {form} with the network in float64")
    report = parity(load_network(source), open_runtime(exported, form), source.plan)
    write_json(target / "parity.json", report)
    check_parity(report)
    say(
        f"probabilities differ by at most {report['worst_probability_difference']:.1e}, "
        f"{report['worst_equal_labels']:.4%} of labels are equal"
    )


def _describe(source: ModelFolder, target: Path, **more: Any) -> ModelFolder:
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
