"""Do the exported graphs of all presets give what the network gives in float64? On synthetic and on real windows.

    python benchmarks/parity.py [PRESET ...]

Weights are random (seed 0, biases and tables included). Real windows come from VELOXSEG_SHARED (default ../shared):
patches around the tumours of soft-tissue sarcoma PET/CT, normalised as the plan would. Results: benchmarks/parity.json.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.ndimage import affine_transform

import veloxseg.runtimes.parity as checks
from veloxseg.runtimes.export import convert
from veloxseg.runtimes import open_runtime
from veloxseg.image import read, read_label
from veloxseg.model.config import PRESETS, NetworkConfig
from veloxseg.model.network import VeloxSeg
from veloxseg.model_folder import ModelFolder
from veloxseg.model_folder import load_network
from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan
from veloxseg.image.regions import cut

HERE = Path(__file__).parent
SHARED = Path(os.environ.get("VELOXSEG_SHARED", HERE / ".." / ".." / "shared")).resolve()
CASES = 4


def write_model(folder: Path, config: NetworkConfig) -> Path:
    from safetensors.torch import save_file

    torch.manual_seed(0)
    network = VeloxSeg(config)
    for name, parameter in network.named_parameters():
        if name.endswith(("bias", "table")):
            torch.nn.init.normal_(parameter, std=0.1)
    folder.mkdir()
    save_file(network.state_dict(), folder / "model.safetensors")
    plain = Normalisation(scheme="none")
    channels = sum(config.in_channels)
    plan = Plan(
        dataset="parity",
        modalities=tuple(ModalityPlan(name=f"m{i}", kind="other", normalisation=plain) for i in range(channels)),
        reference="m0",
        spacing=(1.0, 1.0, 1.0),
        patch=config.patch,
        windows=config.big_windows,
        labels={"background": 0, **{f"label{i}": i for i in range(1, config.classes)}},
    )
    ModelFolder(
        path=folder, architecture="veloxseg", network=config.to_json(), plan=plan, provenance={}
    ).write_description()
    return folder


def real_windows(plan: Plan) -> Iterator[tuple[str, np.ndarray]]:
    """A patch around the tumour of some cases, PET on the grid of CT; both are repeated where the preset has four."""
    for folder in sorted((SHARED / "data" / "sts_petct").glob("STS_*"))[:CASES]:
        ct, pet = read(folder / "CT_image.nii.gz"), read(folder / "PET_image.nii.gz")
        matrix = np.linalg.inv(pet.geometry.affine) @ ct.geometry.affine
        on_ct = affine_transform(pet.array, matrix, output_shape=ct.array.shape, order=1, mode="nearest")
        channels = [np.clip((scan - scan.mean()) / scan.std(), -5, 20) for scan in (ct.array, on_ct)]
        centre = np.argwhere(read_label(folder / "CT_mask.nii.gz").array).mean(axis=0).astype(int)
        start = tuple(int(c - p // 2) for c, p in zip(centre, plan.patch, strict=True))
        image = np.stack([channels[i % len(channels)] for i in range(len(plan.names))])
        yield folder.name, cut(image, start, plan.patch, np.float32)[None]


def main(presets: list[str]) -> None:
    path = HERE / "parity.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    synthetic = checks.trial_windows
    checks.trial_windows = lambda plan: [*synthetic(plan), *real_windows(plan)]
    for name in presets or list(PRESETS):
        with tempfile.TemporaryDirectory() as temporary:
            folder = ModelFolder.open(write_model(Path(temporary) / "model", PRESETS[name]))
            for runtime in ("torch", "native", "openvino", "onnx"):
                if runtime != "torch":
                    convert(folder, runtime, folder.path)
                opened = open_runtime(folder, runtime, threads=1)
                report = checks.parity(load_network(folder), opened, folder.plan)
                results.setdefault(name, {})[runtime] = report
                worst = report["worst_probability_difference"], report["worst_equal_labels"]
                print(f"{name:10s} {runtime:9s} probabilities {worst[0]:.1e}, equal labels {worst[1]:.5%}", flush=True)
        path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
