"""The wheel in an empty environment: `make test-install`.

Builds the wheel, installs it with the constraints and nothing else, predicts a case there without torch, and compares
the mask byte for byte with that of this environment. Prints sizes and seconds as JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from support.models import build_plan, build_scans, save_model
from veloxseg.image import read_label, write
from veloxseg.machine import describe

ROOT = Path(__file__).parents[2]
LIMIT_MB = 400  # what the core may weigh, by du
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def run(*words: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(map(str, words))}\n{done.stderr[-3000:]}")
    return done.stdout


def megabytes(folder: Path) -> int:
    return int(run("du", "-sm", folder).split()[0])


def measure(folder: Path) -> dict[str, object]:
    run(sys.executable, *PIP, "wheel", "--no-deps", "-w", folder / "wheel", ROOT)
    (wheel,) = (folder / "wheel").iterdir()
    venv.create(folder / "empty", with_pip=True)
    python = folder / "empty" / "bin" / "python"
    packages = next((folder / "empty" / "lib").glob("python3*")) / "site-packages"
    before, began = megabytes(packages), time.monotonic()
    run(python, *PIP, "install", "-c", ROOT / "constraints.txt", wheel)
    seconds = time.monotonic() - began
    known = json.loads(run(python, "-m", "veloxseg", "info", "--json"))
    model = save_model(folder / "model", build_plan(patch=(64, 64, 32)))
    scans = []
    for name, volume in build_scans().items():
        write(volume, folder / f"{name}.nii.gz")
        scans += ["-i", f"{name}={folder / name}.nii.gz"]
    masks = {}
    for name, interpreter in (("empty", python), ("development", sys.executable)):
        masks[name] = folder / name / "mask.nii.gz"
        masks[name].parent.mkdir(exist_ok=True)
        run(interpreter, "-m", "veloxseg", "predict", "-m", model, *scans, "-o", masks[name])
    if not read_label(masks["empty"]).array.any():
        raise SystemExit("the mask is empty, so that comparing says nothing")
    return {
        "machine": describe(),
        "wheel_mb": round(wheel.stat().st_size / 2**20, 2),
        "installed_mb": megabytes(packages) - before,
        "pip_and_setuptools_mb": before,
        "install_seconds": round(seconds, 1),
        "extras": known["extras"],
        "runtimes": {name: state == "yes" for name, state in known["runtimes"].items()},
        "masks_equal": masks["empty"].read_bytes() == masks["development"].read_bytes(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(Path(temporary))
    text = json.dumps(found, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    if any(found["extras"].values()) or not found["masks_equal"]:  # type: ignore[attr-defined]
        raise SystemExit("an extra was installed, or the masks differ")
    if found["installed_mb"] >= LIMIT_MB:  # type: ignore[operator]
        raise SystemExit(f"{found['installed_mb']} MB were installed, which is not less than {LIMIT_MB}")


if __name__ == "__main__":
    main()
