"""How time and memory of a whole prediction grow: with the volume, threads, modalities and classes.

    python benchmarks/growth.py                  up to 512 cubed; two minutes on a quiet machine
    python benchmarks/growth.py --most 1024      the largest as well, five minutes: 13 GB of memory and 3 GB of disk
    python benchmarks/growth.py volume classes   some of the parts

Each row is a process of its own that goes from int16 files of noise, in which no window can be skipped, to a mask:
preset B with random weights, native kernels. Other settings than the row's own are one thread, two modalities, two
classes. Volumes from 768 cubed on have one modality, overlap 0.25 and hold one scan at a time (`max_ram`).
Results: benchmarks/growth.json and benchmarks/growth.png.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg import machine
from veloxseg.files import read_json, write_json

HERE = Path(__file__).parent
NAMES = {"ct": "ct", "pet": "pet", "t1": "mr", "t2": "mr"}
BASE = {"side": 192, "threads": 1, "modalities": 2, "classes": 2, "overlap": 0.5, "max_ram": None}
LARGE = {"modalities": 1, "overlap": 0.25, "max_ram": 14.0}  # from 768 on
PARTS = {
    "volume": [{"side": side} for side in (64, 96, 128, 192, 256, 384, 512)]
    + [{"side": side, **LARGE} for side in (768, 1024)],
    "threads": [{"threads": threads} for threads in (1, 2)],
    "modalities": [{"modalities": modalities} for modalities in (1, 2, 3, 4)],
    "classes": [{"classes": classes} for classes in (2, 3, 10, 30, 60, 120)],
    "slab": [{"classes": 30, "shape": (length, 128, 128)} for length in (128, 256, 512, 1024)],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="PART")
    parser.add_argument("--most", type=int, default=512, help="the largest side to try")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(predict(**json.loads(options.child))))
        return
    path = HERE / "growth.json"
    results = read_json(path) if path.is_file() else {}
    results["machine"] = machine.describe()
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"{part} is no part; choose from {', '.join(PARTS)}")
        results[part] = [measure(row) for row in PARTS[part] if row.get("side", 0) <= options.most]
        write_json(path, results)
    plot(results)


def measure(settings: dict[str, Any]) -> dict[str, Any]:
    row = BASE | settings
    shape = row.pop("shape", (row["side"],) * 3)
    with tempfile.TemporaryDirectory() as temporary:
        folder, names = Path(temporary), list(NAMES)[: row["modalities"]]
        write_model(folder / "model", names, row["classes"])
        for number, name in enumerate(names):
            write_scan(folder / f"{name}.nii", shape, number)
        options = {key: row[key] for key in ("threads", "overlap", "max_ram")}
        child = json.dumps({"folder": str(folder), "names": names, **options})
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, __file__, "--child", child], capture_output=True, text=True, env=environment, check=False
        )
    if done.returncode:
        raise SystemExit(f"{row} failed:\n{done.stderr}")
    found = {"shape": list(shape), **row, **json.loads(done.stdout.splitlines()[-1])}
    found["ms_per_window"] = 1e3 * found["laps"]["windows_and_resampling"] / found["windows"]
    found["ns_per_voxel"] = 1e9 * found["seconds"] / float(np.prod(shape))
    print(found, flush=True)
    return found


def predict(folder: str, names: list[str], threads: int, overlap: float, max_ram: float | None) -> dict[str, Any]:
    """From files to a mask. `program_mb` is what the process holds before it, with the model opened and tried."""
    from veloxseg.predict.predictor import Options, Predictor
    from veloxseg.predict.scans import Scans

    predictor = Predictor(
        [f"{folder}/model"], runtime="native", threads=threads, options=Options(overlap=overlap, max_ram=max_ram)
    )
    scans = Scans({name: f"{folder}/{name}.nii" for name in names})
    windows = predictor.estimate(scans).windows
    program, start, work = machine.peak_rss_mb() or float("nan"), time.perf_counter(), time.process_time()
    result = predictor(scans)
    return {
        "windows": windows,
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - work,
        "laps": result.provenance["seconds"],
        "program_mb": program,
        "peak_mb": machine.peak_rss_mb() or float("nan"),
    }


def write_model(folder: Path, names: list[str], classes: int) -> None:
    import torch
    from safetensors.torch import save_file

    from veloxseg.model.config import NetworkConfig
    from veloxseg.model.network import VeloxSeg
    from veloxseg.model_folder import ModelFolder
    from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan

    torch.manual_seed(0)
    config, scheme = NetworkConfig(in_channels=(1,) * len(names), classes=classes), Normalisation(scheme="none")
    folder.mkdir()
    save_file(VeloxSeg(config).state_dict(), folder / "model.safetensors")
    plan = Plan(
        dataset="growth",
        modalities=tuple(ModalityPlan(name=name, kind=NAMES[name], normalisation=scheme) for name in names),
        reference=names[0],
        spacing=(1.0, 1.0, 1.0),
        patch=config.patch,
        windows=config.big_windows,
        labels={"background": 0, **{f"label{i}": i for i in range(1, classes)}},
    )
    ModelFolder(
        path=folder, architecture="veloxseg", network=config.to_json(), plan=plan, provenance={}
    ).write_description()


def write_scan(path: Path, shape: tuple[int, ...], seed: int) -> None:
    """Noise, plane by plane."""
    import nibabel

    header = nibabel.Nifti1Header()
    header.set_data_shape(shape)
    header.set_data_dtype("int16")
    header.set_sform(np.eye(4), 1)
    header["vox_offset"], header["magic"] = 352, b"n+1"
    random = np.random.default_rng(seed)
    with open(path, "wb") as file:
        file.write(header.binaryblock + bytes(4))
        for _ in range(shape[2]):
            file.write(random.integers(1, 100, shape[:2], np.int16).tobytes())


# ---- the picture --------------------------------------------------------------------------------------------

BLUE, RED = "#1f77b4", "#d62728"


def plot(results: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullFormatter

    panels = {
        "volume": ("side of a cube", lambda row: row["side"], "volume"),
        "threads": ("threads", lambda row: row["threads"], "threads (192³)"),
        "modalities": ("modalities", lambda row: row["modalities"], "modalities (192³)"),
        "classes": ("classes", lambda row: row["classes"], "classes (192³)"),
        "slab": ("rows along x", lambda row: row["shape"][0], "length, 30 classes (n × 128²)"),
    }
    shown = [part for part in panels if part in results]
    figure, axes = pyplot.subplots(2, len(shown), figsize=(3.4 * len(shown), 6), layout="constrained", squeeze=False)
    for column, part in enumerate(shown):
        label, across, title = panels[part]
        x = [across(row) for row in results[part]]
        time_axes, memory_axes = axes[:, column]
        time_axes.plot(x, [row["seconds"] for row in results[part]], "o-", color=BLUE)
        memory_axes.plot(x, [(row["peak_mb"] - row["program_mb"]) / 1024 for row in results[part]], "o-", color=RED)
        time_axes.set_title(title, fontsize=10)
        memory_axes.set_xlabel(label)
        for one in (time_axes, memory_axes):
            one.spines[["top", "right"]].set_visible(False)
            if part == "volume":
                one.set(xscale="log", yscale="log")
                one.yaxis.set_major_formatter("{x:g}")
                one.yaxis.set_minor_formatter(NullFormatter())
                one.set_xticks(x, labels=[f"{side}³" for side in x], fontsize=7, rotation=45, minor=False)
                one.set_xticks([], minor=True)
            else:
                one.set_ylim(0, 1.1 * max(one.get_lines()[0].get_ydata()))
                if part in ("threads", "modalities"):
                    one.set_xticks(x)
    axes[0, 0].set_ylabel("seconds, from files to mask")
    axes[1, 0].set_ylabel("GiB besides the program")
    title = "Preset B, native kernels: one thread, two modalities,\ntwo classes, overlap 0.5 where not named"
    figure.suptitle(title, fontsize=10)
    figure.savefig(HERE / "growth.png", dpi=110)


if __name__ == "__main__":
    main()
