"""Peak memory of `veloxseg predict` beside the estimate that it prints: `python benchmarks/memory.py [--json FILE]`.

Each row is a process of its own: a synthetic scan of one size and number type, 1 to 4 modalities, 2 to 120 classes, a
small network with random weights (patch 64×64×32), native or OpenVINO, one thread. The peak is VmHWM of that process.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from veloxseg import machine
from veloxseg.files import write_json

# side, stored type, modalities, classes, options; voxels of 1 mm, where RESAMPLED of 1.4 mm, which the network has as 1
RESAMPLED = "resampled"
ROWS = [
    (64, "int16", 2, 2, ()),
    (192, "int16", 2, 2, (RESAMPLED,)),
    (256, "float32", 1, 3, (RESAMPLED,)),
    (128, "float32", 1, 2, ()),
    (128, "int16", 4, 3, ()),
    (192, "float64", 2, 2, ()),
    (192, "uint8", 1, 120, ()),
    (256, "int16", 2, 4, ("--probabilities",)),
    (320, "float32", 2, 2, ()),
    (320, "int16", 2, 2, ("--max-ram", "0.7")),
    (448, "int16", 2, 2, ()),
    (448, "float64", 1, 2, ()),
    (640, "int16", 1, 2, ()),
    (1024, "int16", 1, 2, ()),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--most", type=int, default=512, help="the largest side to try")
    arguments = parser.parse_args()
    rows = []
    for side, kind, modalities, classes, options in ROWS:
        if side <= arguments.most:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(Path(folder), side, kind, modalities, classes, options))
            print(rows[-1], flush=True)
    if arguments.json:
        command = f"python benchmarks/memory.py --most {arguments.most}"
        write_json(arguments.json, {"command": command, "machine": machine.describe(), "rows": rows})


def measure(folder: Path, side: int, kind: str, modalities: int, classes: int, options: tuple[str, ...]) -> dict:
    names = ["ct", "pet", "t1", "t2"][:modalities]
    spacing, options = (1.4, options[1:]) if RESAMPLED in options else (1.0, options)
    write_model(folder / "model", names, classes)
    for name in names:
        write_scan(folder / f"{name}.nii", side, kind, spacing, air=-1000 if name == "ct" else 0)
    inputs = [text for name in names for text in ("-i", f"{name}={folder / f'{name}.nii'}")]
    command = ["predict", "-m", str(folder / "model"), *inputs, "-o", str(folder / "out"), "--threads", "1", *options]
    program = f"from veloxseg import cli, machine; cli.main({command!r}); print('PEAK', machine.peak_rss_mb())"
    for _ in range(2):  # the first run converts the model by torch, once
        shutil.rmtree(folder / "out", ignore_errors=True)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    estimate = re.search(r"([0-9.]+) GiB of memory \(([0-9.]+) with", done.stdout)
    peak = re.search(r"PEAK ([0-9.]+)", done.stdout)
    row = {"side": side, "spacing": spacing, "type": kind, "modalities": modalities, "classes": classes, "options": list(options)}
    if not (estimate and peak and (folder / "out" / "ct.json").is_file()):
        return {**row, "refused": done.stderr.strip()[-200:]}
    printed, held = float(estimate[2 if "--max-ram" in options else 1]), float(peak[1]) / 1024
    return {**row, "estimate_gib": printed, "peak_gib": round(held, 3), "peak_of_estimate": round(held / printed, 2)}


def write_model(folder: Path, names: list[str], classes: int) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.models import build_plan, save_model
    from veloxseg.prepare.plan import ModalityPlan, Normalisation

    scheme = Normalisation(scheme="none")
    kinds = {"ct": "ct", "pet": "pet", "t1": "mr", "t2": "mr"}
    plan = build_plan(
        classes,
        modalities=tuple(ModalityPlan(name=name, kind=kinds[name], normalisation=scheme) for name in names),
        spacing=(1.0, 1.0, 1.0),
    )
    save_model(folder, plan)


def write_scan(path: Path, side: int, kind: str, spacing: float, air: int) -> None:
    """A ball of noise that touches all sides, so that nothing is cropped away, written plane by plane."""
    import nibabel

    header = nibabel.Nifti1Header()
    header.set_data_shape((side, side, side))
    header.set_data_dtype(kind)
    header.set_sform(np.diag([spacing, spacing, spacing, 1]), 1)
    header["vox_offset"], header["magic"] = 352, b"n+1"
    random, place = np.random.default_rng(0), np.linspace(-1, 1, side)
    with open(path, "wb") as file:
        file.write(header.binaryblock + bytes(4))
        for z in place:
            ball = place[:, None] ** 2 + place**2 + z**2 < 1
            plane = np.where(ball, random.integers(1, 100, (side, side)), max(air, 0) if kind == "uint8" else air)
            file.write(np.asfortranarray(plane.astype(kind)).tobytes(order="F"))


if __name__ == "__main__":
    main()
