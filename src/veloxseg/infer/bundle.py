"""A MONAI bundle: TorchScript weights with MONAI's own configuration files. Imports torch.

The bundle runs with `monai.bundle run` on images that already lie on the plan's grid and are normalised; the exact
preprocessing is in `docs/model.json`, and `veloxseg predict` does it in full.
"""

import shutil
import warnings
from pathlib import Path
from typing import Any

import torch

from veloxseg import __version__
from veloxseg.files import atomic_path, writable_folder, write_json
from veloxseg.infer.provenance import NOTICE
from veloxseg.modelfolder import JSON_NAME, ModelFolder
from veloxseg.networks import load_network

__all__ = ["write_bundle"]


def write_bundle(source: ModelFolder, target: Path) -> None:
    """configs/, models/model.ts and docs/."""
    for name in ("configs", "models", "docs"):
        writable_folder(target / name)
    plan = source.plan
    window = torch.zeros(1, len(plan.names), *plan.patch)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of tracing: shapes are fixed on purpose
        traced = torch.jit.trace(load_network(source), window, check_trace=False)
        with atomic_path(target / "models" / "model.ts") as path:
            traced.save(str(path))
    write_json(target / "configs" / "metadata.json", _metadata(source))
    write_json(target / "configs" / "inference.json", _inference(source))
    shutil.copyfile(source.path / JSON_NAME, target / "docs" / JSON_NAME)


def _metadata(source: ModelFolder) -> dict[str, Any]:
    plan = source.plan
    image = {
        "type": "image",
        "format": "magnitude",
        "num_channels": len(plan.names),
        "spatial_shape": list(plan.patch),
        "dtype": "float32",
        "value_range": [],
        "is_patch_data": True,
        "channel_def": {str(i): name for i, name in enumerate(plan.names)},
    }
    prediction = {
        **image,
        "format": "segmentation",
        "num_channels": len(plan.outputs),
        "channel_def": {str(i): name for i, name in enumerate(plan.outputs)},
    }
    return {
        "version": __version__,
        "changelog": {__version__: "exported by veloxseg"},
        "monai_version": "1.4.0",
        "pytorch_version": torch.__version__.split("+")[0],
        "numpy_version": "1.26.0",
        "name": f"VeloxSeg {plan.dataset}",
        "task": f"segmentation of {', '.join(plan.outputs)}",
        "description": f"{source.architecture}, modalities {', '.join(plan.names)}",
        "intended_use": NOTICE,
        "network_data_format": {"inputs": {"image": image}, "outputs": {"pred": prediction}},
    }


def _inference(source: ModelFolder) -> dict[str, Any]:
    """MONAI's sliding window on the traced network."""
    return {
        "bundle_root": ".",
        "device": "$torch.device('cuda' if torch.cuda.is_available() else 'cpu')",
        "imports": ["$import torch"],
        "network": "$torch.jit.load(@bundle_root + '/models/model.ts').to(@device).eval()",
        "inferer": {
            "_target_": "SlidingWindowInferer",
            "roi_size": list(source.plan.patch),
            "sw_batch_size": 1,
            "overlap": 0.5,
            "mode": "gaussian",
        },
    }
