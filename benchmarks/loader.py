"""Preparing and loading against a straightforward MONAI pipeline, on the same data, in one run.

MONAI: LoadImage → Orientation → Spacing → ResampleToMatch → CropForeground → normalise, cached in memory by
CacheDataset; then RandCropByPosNegLabel (2 crops per volume, 1:1) and a flip along z. Ours: `prepare` (fingerprint,
plan, alignment check, preprocessing to disk), then `patch_loader` with the same crops and flip. Each side runs in
its own process, takes one case first, so that nothing is imported while the clock runs (our workers are started
and import within it), and is measured ROUNDS times in turn with the other; medians. Memory is the greatest peak of
the process tree's proportional set size, which counts mapped pages too.

    python benchmarks/loader.py [--json benchmarks/loader.json]

Data: the sarcoma PET/CT cases beside the project (VELOXSEG_SHARED, default ../shared) without STS_019.
"""

import argparse
import dataclasses
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SHARED = Path(os.environ.get("VELOXSEG_SHARED", Path(__file__).parents[2] / "shared"))
SPACING, PATCH, BATCH, SEED = (2.0, 2.0, 3.27), (64, 64, 64), 4, 0
ROUNDS = 3
SECONDS = 5.0  # of loading that are measured, after a warm-up


def table(folder: Path) -> Path:
    path = folder / "cases.json"
    description = {
        "name": "sts",
        "root": str((SHARED / "data" / "sts_petct").resolve()),
        "labels": {"background": 0, "tumour": 1},
        "images": {"ct": "{case}/CT_image.nii.gz", "pet": "{case}/PET_image.nii.gz"},
        "label": "{case}/CT_mask.nii.gz",
        "exclude": ["STS_019"],
    }
    path.write_text(json.dumps(description))
    return path


def rates(count: int, what: str, started: float, cpu: float) -> dict[str, float]:
    """Per second of the clock and of this process; the second does not mind what else the machine does."""
    return {
        f"{what}_per_second": count / (time.perf_counter() - started),
        f"{what}_per_cpu_second": count / (time.process_time() - cpu),
    }


def load(loader_epochs: Any) -> dict[str, float]:
    """Loads for SECONDS, after one epoch that starts workers and fills caches."""
    next_epoch = iter(loader_epochs)
    for _ in next(next_epoch):
        pass
    count, started, cpu = 0, time.perf_counter(), time.process_time()
    for epoch in next_epoch:
        for batch in epoch:
            count += len(batch["image"])
            if time.perf_counter() - started > SECONDS:
                return rates(count, "patches", started, cpu)
    raise AssertionError("epochs never end")


def ours_prepare(folder: Path, workers: int) -> dict[str, Any]:
    from veloxseg.dataset.layouts import open_dataset
    from veloxseg.prepare.prepare import Settings, prepare

    dataset = open_dataset(table(folder))
    one = dataclasses.replace(dataset, cases=dataset.cases[:1])
    prepare(one, folder / "warm", Settings(spacing=SPACING, patch=PATCH))
    shutil.rmtree(folder / "prepared", ignore_errors=True)
    started, cpu = time.perf_counter(), time.process_time()
    prepare(dataset, folder / "prepared", Settings(spacing=SPACING, patch=PATCH, seed=SEED, workers=workers))
    return rates(len(dataset.cases), "cases", started, cpu)


def ours_load(folder: Path, workers: int) -> dict[str, Any]:
    from veloxseg.train.patches import PatchDataset, patch_loader
    from veloxseg.prepare.store import Prepared

    prepared = Prepared.open(folder / "prepared")
    names = [case.name for case in prepared.cases]
    loader = patch_loader(PatchDataset(prepared, names, PATCH, SEED, 2 * 24), BATCH, workers)

    def epochs() -> Any:
        for epoch in range(1_000_000):
            loader.set_epoch(epoch)
            yield loader

    return load(epochs())


def monai(folder: Path, workers: int) -> dict[str, Any]:
    import warnings

    warnings.simplefilter("ignore")
    from monai.data import CacheDataset, DataLoader
    from monai.transforms import (
        Compose,
        ConcatItemsd,
        CropForegroundd,
        EnsureChannelFirstd,
        LoadImaged,
        NormalizeIntensityd,
        Orientationd,
        RandCropByPosNegLabeld,
        RandFlipd,
        ResampleToMatchd,
        ScaleIntensityRanged,
        SelectItemsd,
        Spacingd,
        SpatialPadd,
    )
    from monai.utils import set_determinism

    from veloxseg.dataset.layouts import open_dataset

    set_determinism(SEED)
    files = [{**case.images, "label": case.label} for case in open_dataset(table(folder)).cases]
    keys = ["ct", "pet", "label"]
    low, high, mean, std = -84.0, 195.0, 33.0, 34.6  # clip and z-score of our plan
    pipeline = Compose(
        [
            LoadImaged(keys, image_only=True),
            EnsureChannelFirstd(keys),
            Orientationd(keys, axcodes="RAS", labels=None),
            Spacingd(["ct", "label"], SPACING, mode=("bilinear", "nearest")),
            ResampleToMatchd("pet", key_dst="ct", mode="bilinear"),
            CropForegroundd(keys, source_key="ct", select_fn=lambda x: x > -500, margin=2, allow_smaller=True),
            ScaleIntensityRanged("ct", low, high, (low - mean) / std, (high - mean) / std, clip=True),
            NormalizeIntensityd("pet", nonzero=True),
            ConcatItemsd(["ct", "pet"], "image"),
            SelectItemsd(["image", "label"]),
            SpatialPadd(["image", "label"], PATCH),
            RandCropByPosNegLabeld(["image", "label"], "label", PATCH, pos=1, neg=1, num_samples=2),
            RandFlipd(["image", "label"], prob=0.5, spatial_axis=2),
        ]
    )
    pipeline(files[0])
    started, cpu = time.perf_counter(), time.process_time()
    dataset = CacheDataset(files, pipeline, cache_rate=1.0, num_workers=max(1, workers), progress=False)
    prepared = rates(len(files), "cases", started, cpu)
    loader = DataLoader(
        dataset,
        batch_size=BATCH // 2,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        drop_last=True,
    )

    def epochs() -> Any:
        while True:
            yield loader

    return {**prepared, **load(epochs())}


PARTS = {"ours_prepare": ours_prepare, "ours_load": ours_load, "monai": monai}


def measure(part: str, folder: Path, workers: int) -> dict[str, Any]:
    """Runs a part in its own process and watches the memory of all its processes."""
    import psutil

    arguments = [sys.executable, __file__, "--part", part, "--folder", str(folder), "--workers", str(workers)]
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    peak = 0

    def watch() -> None:
        nonlocal peak
        root = psutil.Process(child.pid)
        while child.poll() is None:
            total = 0
            try:
                for process in (root, *root.children(recursive=True)):
                    total += process.memory_full_info().pss
            except psutil.Error:
                continue
            peak = max(peak, total)
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = child.communicate()
    watcher.join()
    if child.returncode:
        raise SystemExit(f"{part} failed")
    result = json.loads(output.splitlines()[-1])
    if workers > 1:  # the clock of one process says nothing about several
        result = {key: value for key, value in result.items() if "cpu" not in key}
    return {**result, "peak_pss_mb": peak / 2**20}


def summary(part: str, workers: int, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians, and least and greatest of the rates by the clock."""
    row: dict[str, Any] = {"part": part, "workers": workers}
    for key in rounds[0]:
        values = [one[key] for one in rounds]
        if key == "peak_pss_mb":
            row[key] = round(max(values))
            continue
        row[key] = round(statistics.median(values), 2)
        if key.endswith("_per_second"):
            row[f"{key}_range"] = [round(min(values), 2), round(max(values), 2)]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", default="benchmarks/loader.json")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        from veloxseg.console import set_quiet

        set_quiet(True)
        print(json.dumps(PARTS[arguments.part](arguments.folder, arguments.workers)))
        return
    rows = []
    for workers in (0, 2):
        with tempfile.TemporaryDirectory() as folder:
            measured: dict[str, list[dict[str, Any]]] = {part: [] for part in PARTS}
            for _ in range(ROUNDS):
                for part in PARTS:
                    measured[part].append(measure(part, Path(folder), workers))
            for part, rounds in measured.items():
                rows.append(summary(part, workers, rounds))
                print(rows[-1], flush=True)
    value = {
        "command": "python benchmarks/loader.py",
        "data": "sts_petct, 25 cases, to 2 × 2 × 3.27 mm, patches 64³, batches of 4 (2 volumes × 2 crops)",
        "seed": SEED,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "versions": {name: __import__(name).__version__ for name in ("torch", "monai", "numpy")},
        "load_average_at_end": round(os.getloadavg()[0], 2),
        "rows": rows,
    }
    Path(arguments.json).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
