"""What a prediction costs by nnU-Net's own command on a CPU, and by the same fold converted to a MODEL.

    python benchmarks/nnunet_predict.py RESULTS [RESULTS ...] -i IMAGES -o WORK [--fold 0] [--json FILE]

RESULTS are folders of nnUNet_results, IMAGES one in nnU-Net's naming. The commands, without mirroring:

    nnUNetv2_predict_from_modelfolder -m RESULTS -f FOLD -device cpu --disable_tta -npp 1 -nps 1
    veloxseg convert RESULTS --fold FOLD -o MODEL; veloxseg predict -m MODEL

nnU-Net takes as many threads as the machine has processors; so does `veloxseg predict`. CPU seconds are told besides
those on the clock, because they depend less on what else the machine does. Memory is that of the largest process. It
needs veloxseg[nnunet].
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from veloxseg import machine
from veloxseg.files import write_json
from veloxseg.image import read_label


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("-i", "--images", type=Path, required=True)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--fold", default="0")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {results.name: compare(options, results) for results in options.results}
    if options.json:
        cases = len(list(options.images.glob("*_0000.nii.gz")))
        write_json(options.json, {"machine": machine.describe(), "cases": cases, "models": found})


def compare(options: argparse.Namespace, results: Path) -> dict[str, Any]:
    work = options.output / results.name
    theirs, ours, model = work / "nnunet", work / "ours", work / "model"
    for folder in (theirs, ours, model):
        shutil.rmtree(folder, ignore_errors=True)
    there = Path(sys.executable).parent
    convert = ["convert", str(results), "--fold", options.fold, "-o", str(model)]
    subprocess.run([str(there / "veloxseg"), *convert], check=True)
    files = ["-i", str(options.images.absolute())]
    stock = ["-m", str(results.absolute()), "-f", options.fold]
    stock += ["-device", "cpu", "--disable_tta", "-npp", "1", "-nps", "1"]
    answer = {
        "nnunet": measure([str(there / "nnUNetv2_predict_from_modelfolder"), *files, "-o", str(theirs), *stock]),
        "converted": measure([str(there / "veloxseg"), "predict", "-m", str(model), *files, "-o", str(ours)]),
        "differing_voxels": differing(theirs, ours),
        "model_mb": round(sum(path.stat().st_size for path in model.rglob("*") if path.is_file()) / 1e6, 1),
    }
    print(f"{results.name}: {json.dumps(answer)}", flush=True)
    return answer


def measure(command: list[str]) -> dict[str, float]:
    """Seconds and memory of a command and the processes that it starts."""
    folders = {f"nnUNet_{name}": "." for name in ("raw", "preprocessed", "results")}  # nnU-Net complains without
    began = time.perf_counter()
    patient = {"OMP_WAIT_POLICY": "passive"}  # threads that spin while others compute would count as work
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **folders, **patient})
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise SystemExit(f"{command[0]} failed")
    cpu, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    return {"seconds": round(seconds, 1), "cpu_seconds": round(cpu, 1), "memory_mb": round(memory)}


def differing(theirs: Path, ours: Path) -> str:
    pairs = [(read_label(path), read_label(ours / path.name)) for path in sorted(theirs.glob("*.nii.gz"))]
    wrong = sum(int((one.array != other.array).sum()) for one, other in pairs)
    return f"{wrong} of {sum(one.array.size for one, _ in pairs)}"


if __name__ == "__main__":
    main()
