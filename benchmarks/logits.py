"""Two classes with both logits beside their difference, one thread, in units of U (MONAI's BasicUNet, eager).

    python benchmarks/logits.py

Prediction asks for the difference alone, which is half the work of the head; whoever wants raw logits pays for them.
Results go to benchmarks/logits.json.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch

from veloxseg.machine import describe, pin
from veloxseg.benchmark.timing import interleave
from veloxseg.runtimes.export import write_graph
from veloxseg.runtimes.graph import inference_form
from veloxseg.runtimes.native.runtime import NativeRuntime
from veloxseg.runtimes.native.weights import native_weights
from veloxseg.runtimes.openvino import OpenVINORuntime
from veloxseg.model.config import preset
from veloxseg.model.network import VeloxSeg
from veloxseg.peers.registry import build_peer

AUTHORS = 27  # forward passes of the authors' eager code in one of U, by shared/spec/speed.md


def main() -> None:
    pin(1)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = preset("b")
    network, unet = VeloxSeg(config).eval(), build_peer("unet", config.in_channels, 2, config.patch).eval()
    window = torch.randn(1, 2, *config.patch)
    runs: dict[str, Any] = {"unet eager": torch.inference_mode()(lambda: unet(window))}
    with tempfile.TemporaryDirectory() as temporary:
        for runtime in ("native", "openvino"):
            for what in ("both logits", "difference"):
                difference = what == "difference"
                if runtime == "native":
                    weights = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
                    made = native_weights(config, weights, difference=difference)
                    opened: Any = NativeRuntime(config, made, threads=1)
                else:
                    form = inference_form(network, runtime, difference=difference)
                    folder = Path(temporary) / f"{runtime} {what}"
                    folder.mkdir()
                    opened = OpenVINORuntime(write_graph(form, window, runtime, folder), threads=1)
                runs[f"{runtime}, {what}"] = lambda opened=opened: opened(np.asarray(window))
        found = interleave(list(runs.values()))
    unit = found[0].median
    rows = {
        name: {"milliseconds": 1e3 * result.median, "per_unet": unit / result.median, "runs": result.runs}
        for name, result in zip(runs, found, strict=True)
    }
    for name, row in rows.items():
        print(f"{name:24} {row['milliseconds']:8.1f} ms   1/{row['per_unet']:.1f} U   "
              f"{row['per_unet'] / AUTHORS:.2f} x the authors' eager code")  # fmt: skip
    result = {"machine": describe(), "threads": 1, "seed": 0, "rows": rows}
    (Path(__file__).parent / "logits.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
