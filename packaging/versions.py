"""The oldest versions that pyproject.toml allows, and the newest of the registry: `make test-versions`.

    python packaging/versions.py [lowest core] [lowest] [newest] [--json packaging/versions.json]

Each job has an empty environment of its own: the lower bound of every dependency, for the core alone and with the
extras of `dev`; or whatever is newest. torch is always that of constraints.txt: others bring gigabytes of CUDA. The
tests in TESTS run there (warnings are no errors: newer packages warn of what is to come), and a case is predicted by a
model that the development install wrote, whose mask must be the same. A test that only lacks an extra is counted apart.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.models import build_plan, build_scans, save_model
from veloxseg.image import read_label, write

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TESTS = ["tests/image", "tests/dataset", "tests/phantom", "tests/evaluate", "tests/prepare"]
TOOLS = ["pytest", "pytest-timeout", "hypothesis", "psutil"]  # of `dev`, for environments without the rest of it
SHOWN = "numpy scipy safetensors nibabel isal pydicom highdicom matplotlib pillow torch openvino onnxruntime simpleitk"
LACKS = re.compile(r"No module named|MissingDependencyError|could not import")


@dataclass(frozen=True)
class Job:
    """One environment."""

    lowest: bool
    extras: str  # as behind the project's name
    tools: tuple[str, ...] = ()


JOBS = {
    "lowest core": Job(lowest=True, extras="", tools=tuple(TOOLS)),
    "lowest": Job(lowest=True, extras="[dev]"),
    "newest": Job(lowest=False, extras="[dev]"),
}


def requirements(extras: list[str]) -> Iterator[str]:
    """What the project depends on, extras within extras included."""
    groups = PROJECT["optional-dependencies"]
    for line in (*PROJECT["dependencies"], *(line for extra in extras for line in groups[extra])):
        if line.startswith("veloxseg["):
            for extra in re.findall(r"\w+", line.partition("[")[2]):
                yield from (line for line in groups[extra] if not line.startswith("veloxseg["))
        else:
            yield line


def constraints(job: Job) -> list[str]:
    """A line for pip for every package that the job fixes."""
    (torch,) = re.findall(r"^torch==.*", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    lines = requirements(["dev"] if job.extras else [])
    bounds = [line.replace(">=", "==") for line in lines if ">=" in line and not line.startswith("torch>")]
    return [torch, *(re.sub(r"\[.*?\]", "", bound) for bound in bounds)] if job.lowest else [torch]


def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)


def install(job: Job, folder: Path) -> Path:
    """An environment with the wheel in it, and its Python."""
    (folder / "limits.txt").write_text("\n".join(constraints(job)) + "\n", encoding="utf-8")
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    project = f"{next((folder.parent / 'wheel').glob('*.whl'))}{job.extras}"
    done = run(
        python, "-m", "pip", "install", "--progress-bar", "off", "-c", folder / "limits.txt", project, *job.tools
    )
    if done.returncode:
        said = (done.stdout + done.stderr).partition("The conflict is caused by")  # or whatever else it ends with
        raise RuntimeError("pip: " + "".join(said[1:] if said[1] else said)[-1500:])
    return python


def test(python: Path, report: Path) -> dict[str, Any]:
    """Counts of tests, and the names of those that fail."""
    options = ("-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "--continue-on-collection-errors")
    run(python, "-m", "pytest", *options, f"--junitxml={report}", *TESTS, cwd=ROOT)
    counts, failed = {"passed": 0, "skipped": 0, "without an extra": 0}, {}
    for case in ElementTree.parse(report).iter("testcase"):
        trouble = case.find("failure") if case.find("failure") is not None else case.find("error")
        if trouble is not None and LACKS.search((trouble.get("message") or "") + (trouble.text or "")):
            counts["without an extra"] += 1
        elif trouble is not None:
            failed[f"{case.get('classname')}.{case.get('name')}"] = (trouble.get("message") or "")[:200]
        else:
            counts["skipped" if case.find("skipped") is not None else "passed"] += 1
    return counts | {"failed": failed}


def predicts_the_same(python: Path, folder: Path, model: Path, scans: list[str]) -> bool:
    masks = []
    for name, interpreter in (("here", sys.executable), ("there", str(python))):
        mask = folder / f"{name}.nii.gz"
        done = run(interpreter, "-m", "veloxseg", "predict", "-m", model, *scans, "-o", mask, cwd=folder)
        if done.returncode:
            raise RuntimeError(f"predict: {done.stderr[-1500:]}")
        masks.append(read_label(mask).array)
    return bool(masks[0].any() and (masks[0] == masks[1]).all())


def versions(python: Path) -> dict[str, str]:
    listed = json.loads(run(python, "-m", "pip", "list", "--format=json").stdout)
    return {entry["name"].lower(): entry["version"] for entry in listed if entry["name"].lower() in SHOWN.split()}


def measure(job: Job, folder: Path, model: Path, scans: list[str]) -> dict[str, Any]:
    folder.mkdir()
    began = time.monotonic()
    try:
        python = install(job, folder)
        found = {"same mask": predicts_the_same(python, folder, model, scans), **test(python, folder / "tests.xml")}
    except RuntimeError as error:
        return {"error": str(error)}
    return {"versions": versions(python), "minutes": round((time.monotonic() - began) / 60, 1), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(JOBS)}; all without any")
    parser.add_argument("--json", type=Path, default=ROOT / "packaging" / "versions.json")
    arguments = parser.parse_args()
    results = json.loads(arguments.json.read_text(encoding="utf-8")) if arguments.json.is_file() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder / "wheel", ROOT).check_returncode()
        model = save_model(folder / "model", build_plan(patch=(64, 64, 32)))
        scans: list[str] = []
        for name, volume in build_scans().items():
            write(volume, folder / f"{name}.nii.gz")
            scans += ["-i", f"{name}={folder / name}.nii.gz"]
        for name in arguments.jobs or JOBS:
            results[name] = measure(JOBS[name], folder / name.replace(" ", "-"), model, scans)
            print(json.dumps({name: results[name]}, indent=2))
            arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    if any(result.get("failed", True) for result in results.values()):
        raise SystemExit("something fails; the JSON says what")


if __name__ == "__main__":
    main()
