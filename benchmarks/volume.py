"""Whole volumes on one thread: time and memory against MONAI's sliding window, 4 GiB, cold start; growth.py has more.

    python benchmarks/volume.py                 all parts; some twenty minutes on a quiet machine
    python benchmarks/volume.py cold large      some of them

Every measurement runs in a process of its own. Weights are random: speed and memory do not depend on them. Results
go to benchmarks/volume.json.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
THREADS = 1
VOLUME = (400, 400, 326)
OVERLAP = 0.5


def synthetic_image(shape: tuple[int, ...], channels: int = 2) -> np.ndarray:
    """Normalised noise everywhere: no window can be skipped."""
    random = np.random.default_rng(0)
    image = np.empty((channels, *shape), np.float32)
    for plane in range(shape[0]):
        image[:, plane] = random.standard_normal((channels, *shape[1:]), np.float32)
    return image


def write_model(folder: Path, classes: int) -> Path:
    """Preset B with random weights for a plan of 2 modalities at 1 mm."""
    import torch
    from safetensors.torch import save_file

    from veloxseg.model.config import NetworkConfig
    from veloxseg.model.network import VeloxSeg
    from veloxseg.model_folder import ModelFolder
    from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan

    torch.manual_seed(0)
    config = NetworkConfig(classes=classes)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(VeloxSeg(config).state_dict(), folder / "model.safetensors")
    ct = Normalisation(scheme="clip_zscore", low=-1000, high=1000, mean=0, std=400)
    plan = Plan(
        dataset="benchmark",
        modalities=(
            ModalityPlan(name="ct", kind="ct", normalisation=ct),
            ModalityPlan(name="pet", kind="pet", normalisation=Normalisation(scheme="zscore_body")),
        ),
        reference="ct",
        spacing=(1.0, 1.0, 1.0),
        patch=config.patch,
        windows=config.big_windows,
        labels={"background": 0, **{f"label{i}": i for i in range(1, classes)}},
    )
    ModelFolder(
        path=folder, architecture="veloxseg", network=config.to_json(), plan=plan, provenance={}
    ).write_description()
    return folder


def peak_mb() -> float:
    from veloxseg.machine import peak_rss_mb

    return peak_rss_mb() or float("nan")


def figures(start: float, before: float) -> dict[str, Any]:
    return {"seconds": time.perf_counter() - start, "extra_mb": peak_mb() - before, "peak_mb": peak_mb()}


def child_ours(model: str, shape: list[int], threads: int = THREADS) -> dict[str, Any]:
    """Our sliding window, by the runtime that the folder was exported for: labels of a whole volume."""
    from veloxseg.runtimes import open_runtime
    from veloxseg.predict.sliding import predict_labels
    from veloxseg.model_folder import ModelFolder

    folder = ModelFolder.open(model)
    runtime = open_runtime(folder, threads=threads)
    image = synthetic_image(tuple(shape))
    runtime(np.ascontiguousarray(image[None, :, :96, :96, :96]))
    before, start = peak_mb(), time.perf_counter()
    predict_labels(image, runtime, folder.plan, overlap=OVERLAP)
    return figures(start, before)


def child_monai(model: str, shape: list[int], plain: bool) -> dict[str, Any]:
    """MONAI's sliding window on the eager network, then arg-max."""
    import torch
    from monai.inferers import sliding_window_inference

    from veloxseg.model_folder import ModelFolder
    from veloxseg.model_folder import load_network

    torch.set_num_threads(THREADS)
    network = load_network(ModelFolder.open(model))
    if plain:
        from plain import make_plain

        make_plain(network)
    image = torch.from_numpy(synthetic_image(tuple(shape)))[None]
    with torch.inference_mode():
        network(image[:, :, :96, :96, :96])
        before, start = peak_mb(), time.perf_counter()
        scores = sliding_window_inference(image, (96, 96, 96), 1, network, overlap=OVERLAP, mode="gaussian")
        scores.argmax(1).to(torch.uint8)
        return figures(start, before)


def child_large(model: str, ct: str, pet: str) -> dict[str, Any]:
    """The whole way from files to a mask, kept below 4 GiB."""
    from veloxseg.predict.predictor import Options, Predictor
    from veloxseg.predict.scans import Scans

    predictor = Predictor([model], threads=THREADS, options=Options(overlap=0.25, max_ram=4.0))
    scans = Scans({"ct": ct, "pet": pet})
    expected = predictor.estimate(scans)
    start = time.perf_counter()
    result = predictor(scans)
    return {
        "shape": list(result.array.shape),
        "classes": len(predictor.plan.labels),
        "seconds": time.perf_counter() - start,
        "peak_gib": peak_mb() / 1024,
        "estimated_gib": expected.frugal_gib,
        "windows_at_most": expected.windows,
        "overlap": 0.25,
        "laps": result.provenance["seconds"],
    }


def child_body(model: str, ct: str, pet: str) -> dict[str, Any]:
    """The whole way from files to a mask on the scanner's grid: every window is computed that is not air."""
    from veloxseg.predict.predictor import Options, Predictor
    from veloxseg.predict.scans import Scans

    predictor = Predictor([model], threads=THREADS, options=Options(overlap=OVERLAP))
    before, start = peak_mb(), time.perf_counter()
    result = predictor(Scans({"ct": ct, "pet": pet}))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "extra_mb": peak_mb() - before, "laps": result.provenance["seconds"]}


def write_body(folder: Path) -> list[str]:
    """A synthetic patient in a scanner's field of view: 460 mm of 816 are body and table, the rest is air."""
    import nibabel
    from scipy.ndimage import affine_transform

    from veloxseg.phantom import petct

    size = (226, 152, VOLUME[2])
    scans = petct.render(petct.draw(0, 0), size).images
    grid = scans["ct"].geometry.affine
    grid[:2, 3] -= grid[[0, 1], [0, 1]] * [(VOLUME[i] - size[i]) // 2 for i in (0, 1)]
    files = []
    for name, outside in (("ct", -1000.0), ("pet", 0.0)):
        source = np.linalg.inv(scans[name].geometry.affine) @ grid
        array = affine_transform(
            scans[name].array, source, output_shape=VOLUME, order=1, cval=outside, output=np.float32
        )
        files.append(str(folder / f"body_{name}.nii"))
        # the plan of this benchmark has 1 mm: voxel for voxel the size of the issue
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), files[-1])
    return files


def run_child(name: str, *arguments: Any) -> dict[str, Any]:
    command = [sys.executable, __file__, f"child-{name}", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return value


def against_monai(models: dict[str, Path], body: list[str]) -> dict[str, Any]:
    """Interleaved, three times each; medians."""
    names = ("veloxseg", "veloxseg_openvino", "monai", "monai_plain", "body")
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(3):
        runs["body"].append(run_child("body", str(models["native"]), *body))
        runs["veloxseg"].append(run_child("ours", str(models["native"]), VOLUME))
        runs["veloxseg_openvino"].append(run_child("ours", str(models["openvino"]), VOLUME))
        runs["monai"].append(run_child("monai", str(models["weights"]), VOLUME, False))
        runs["monai_plain"].append(run_child("monai", str(models["weights"]), VOLUME, True))
    found: dict[str, Any] = {
        side: {key: statistics.median(run[key] for run in rows) for key in rows[0] if key != "laps"}
        for side, rows in runs.items()
    }
    found["body"]["laps"] = runs["body"][-1]["laps"]
    for side in ("monai", "monai_plain"):
        found[side]["time_against_veloxseg"] = found[side]["seconds"] / found["veloxseg"]["seconds"]
        found[side]["time_against_veloxseg_on_a_body"] = found[side]["seconds"] / found["body"]["seconds"]
        found[side]["extra_memory_against_veloxseg"] = found[side]["extra_mb"] / found["veloxseg"]["extra_mb"]
    return {
        "volume": [2, *VOLUME],
        "overlap": OVERLAP,
        "body_is": "a synthetic patient of this size from files to a mask: cropped to the body; "
        "MONAI computes every window of the volume, as in its tutorials, so its time is that above",
        "veloxseg_is": "our sliding window with the native kernels; veloxseg_openvino: the same with OpenVINO",
        "monai_is": "sliding_window_inference on our eager network, with its rewrites for CPUs",
        "monai_plain_is": "the same without these rewrites (benchmarks/plain.py)",
        **found,
    }


def threads(models: dict[str, Path]) -> dict[str, Any]:
    """One and two threads on the same volume, interleaved, three times each; medians."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for count, found in seconds.items():
            found.append(run_child("ours", str(models["native"]), VOLUME, count)["seconds"])
    one, two = (statistics.median(found) for found in seconds.values())
    return {"volume": [2, *VOLUME], "overlap": OVERLAP, "one": one, "two": two, "ratio": one / two}


def large(folder: Path) -> dict[str, Any]:
    """512 x 512 x 800 voxels, CT and PET as files, four classes.

    The content is a rod from corner to corner: nothing is cropped, but most windows are air and skipped, which saves
    time; memory does not depend on it.
    """
    import nibabel

    from veloxseg.runtimes.export import export

    model = write_model(folder / "four", 4)
    export(model, folder / "four-native", "native")
    shape = (512, 512, 800)
    random = np.random.default_rng(0)
    for name, inside, outside in (("ct", 40, -1000), ("pet", 20, 0)):
        array = np.full(shape, outside, np.int16, order="F")
        for z in range(shape[2]):
            x = int(z / shape[2] * (shape[0] - 24))
            array[x : x + 24, x : x + 24, z] = inside + random.integers(-10, 10, (24, 24))
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), folder / f"{name}.nii")
        del array
    files = [str(folder / f"{name}.nii") for name in ("ct", "pet")]
    return run_child("large", str(folder / "four-native"), *files)


def cold(models: dict[str, Path], folder: Path) -> dict[str, Any]:
    """`veloxseg predict` on one case of 96 cubed, from typing to done; the second figure has a compiled cache."""
    import nibabel

    random = np.random.default_rng(0)
    for name in ("ct", "pet"):
        array = random.integers(-100, 100, (96, 96, 96)).astype(np.int16) + (100 if name == "pet" else 0)
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), folder / f"small_{name}.nii.gz")
    cache = tempfile.mkdtemp(dir=folder)
    command = [sys.executable, "-m", "veloxseg", "predict", "-m", str(models["native"]), "--threads", "1"]
    command += ["-i", f"ct={folder / 'small_ct.nii.gz'}", "-i", f"pet={folder / 'small_pet.nii.gz'}"]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    seconds = []
    for number in range(5):
        start = time.perf_counter()
        subprocess.run(
            [*command, "-o", str(folder / f"cold{number}")], check=True, capture_output=True, env=environment
        )
        seconds.append(time.perf_counter() - start)
    command[1:1] = ["-X", "importtime"]
    listing = subprocess.run(
        [*command, "-o", str(folder / "cold")], check=True, capture_output=True, text=True, env=environment
    ).stderr
    imported = [line.rsplit("|", 1)[-1].strip() for line in listing.splitlines() if line.startswith("import time:")]
    return {
        "first_seconds": seconds[0],
        "median_seconds": statistics.median(seconds[1:]),
        "imports_torch": any(name == "torch" or name.startswith("torch.") for name in imported),
        "modules_imported": len(imported),
    }


def main(parts: list[str]) -> None:
    wanted = parts or ["cold", "large", "monai", "threads"]
    path = HERE / "volume.json"
    results = json.loads(path.read_text()) if path.is_file() else {}
    with tempfile.TemporaryDirectory() as temporary:
        from veloxseg.runtimes.export import export

        folder = Path(temporary)
        models = {"weights": write_model(folder / "two", 2)}
        for form in ("native", "openvino"):
            models[form] = export(models["weights"], folder / f"two-{form}", form)
        work = {
            "cold": lambda: cold(models, folder),
            "large": lambda: large(folder),
            "monai": lambda: against_monai(models, write_body(folder)),
            "threads": lambda: threads(models),
        }
        for part in wanted:
            results[part] = work[part]()
            results["machine"] = {"processor": platform.processor() or platform.machine(), "threads": THREADS}
            path.write_text(json.dumps(results, indent=2) + "\n")
            print(part, json.dumps(results[part], indent=2), flush=True)


CHILDREN = {"ours": child_ours, "monai": child_monai, "large": child_large, "body": child_body}

if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].startswith("child-"):
        print(json.dumps(CHILDREN[sys.argv[1].removeprefix("child-")](*json.loads(sys.argv[2]))))
    else:
        main(sys.argv[1:])
