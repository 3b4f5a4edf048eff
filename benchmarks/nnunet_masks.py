"""Does a converted model give nnU-Net's masks? How many voxels of your own scans differ.

    python benchmarks/nnunet_masks.py RESULTS IMAGES -o WORK [--runtimes torch native openvino] [--mirror]

RESULTS is a folder of nnUNet_results, IMAGES one in nnU-Net's naming. nnU-Net predicts twice, as it comes (logits are
summed in half precision, even on a CPU) and with sums in single precision; `veloxseg predict` predicts by each runtime.
It needs veloxseg[nnunet]; nothing is timed.
"""

import argparse
from pathlib import Path
from typing import Any

from veloxseg.cli import main as veloxseg
from veloxseg.image import read_label
from veloxseg.nnunet.commands import predict


class Exact:
    """torch for nnU-Net's predictor, with single for half precision."""

    def __getattr__(self, name: str) -> Any:
        import torch

        return torch.float32 if name == "half" else getattr(torch, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--runtimes", nargs="+", default=["auto"])
    parser.add_argument("--mirror", action="store_true")
    options = parser.parse_args()
    for name in ("exact", "usual"):
        predict_in_nnunet(options, name)
    model = str(options.output / "model")
    assert veloxseg(["convert", str(options.results), "-o", model]) == 0
    for runtime in options.runtimes:
        target = options.output / runtime
        arguments = [
            "predict",
            "-m",
            model,
            "-i",
            str(options.images),
            "-o",
            str(target),
            "--runtime",
            runtime,
            "--quiet",
        ]
        assert veloxseg([*arguments, *(["--mirror"] if options.mirror else [])]) == 0
        for name, title in (("exact", "sums in single precision"), ("usual", "nnU-Net as it comes")):
            compare(target, options.output / name, f"{runtime}, {title}")


def predict_in_nnunet(options: argparse.Namespace, name: str) -> None:
    import nnunetv2.inference.predict_from_raw_data as module
    import torch

    module.torch = Exact() if name == "exact" else torch
    predict(options.results, options.images, options.output / name, mirror=options.mirror)


def compare(ours: Path, theirs: Path, title: str) -> None:
    differing = voxels = 0
    for path in sorted(theirs.glob("*.nii.gz")):
        one, other = read_label(ours / path.name), read_label(path)
        differing += int((one.array != other.array).sum())
        voxels += other.array.size
    print(f"{title}: {differing} of {voxels} voxels differ")


if __name__ == "__main__":
    main()
