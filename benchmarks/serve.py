"""What the server costs, in one go: `python benchmarks/serve.py [PART ...]`, some five minutes on a quiet machine.

    packages   what the extra adds
    start      seconds until it listens and until it is ready, torch or not, memory idle and while 300 MB come in
    queue      100 cases in line, and /healthz asked by 100 connections meanwhile
    viewer     400 × 400 × 326 voxels in Chromium without a GPU: seconds until shown, milliseconds of a frame
    pacs       seconds from the last slice of a real study to its SEG in Orthanc (needs root, Orthanc, and the data)

Run it in an environment with the extra `serve` and playwright (`make test-serve` makes one). The model is preset B with
random weights, whose head is set so that few voxels are labelled. All but `pacs` use synthetic scans. Results go to
benchmarks/serve.json.
"""

import argparse
import asyncio
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg import machine
from veloxseg.files import read_json, write_json
from veloxseg.image import Geometry, Volume, write
from veloxseg.serve import Client

HERE = Path(__file__).parent
RESULTS = HERE / "serve.json"
STUDY = HERE.parents[1] / "shared" / "data" / "sts_dicom" / "STS_002"
EXTRA = ("starlette", "uvicorn", "pynetdicom")
CASES, CONNECTIONS = 100, 100
LARGE, SPACING = (400, 400, 326), (1.0, 1.0, 2.0)


# -- what is measured with ---------------------------------------------------------------------------------------------


def write_model(folder: Path) -> Path:
    """Preset B for PET/CT at 2 × 2 × 3.27 mm, in the form that opens fastest. One voxel in a hundred is labelled."""
    import torch
    from safetensors.torch import save_file

    from veloxseg.model.config import NetworkConfig
    from veloxseg.model.network import VeloxSeg
    from veloxseg.model_folder import ModelFolder
    from veloxseg.prepare.plan import ModalityPlan, Normalisation, Plan
    from veloxseg.runtimes.export import export
    from veloxseg.runtimes.native.runtime import is_built

    torch.manual_seed(0)
    config = NetworkConfig(classes=2)
    network = VeloxSeg(config).eval()
    with torch.inference_mode():
        image = torch.randn(1, 2, *config.patch)
        scores = network(image)[0]
        limit = torch.quantile((scores[1] - scores[0]).flatten()[::50], 0.99)
        network.head[0].bias.view(2, -1)[1] -= limit
        assert 0 < (network(image)[0].argmax(0) == 1).float().mean() < 0.1
    plain = folder / "plain"
    plain.mkdir(parents=True)
    save_file(network.state_dict(), plain / "model.safetensors")
    ct = Normalisation(scheme="clip_zscore", low=-1000, high=1000, mean=0, std=400)
    pet = Normalisation(scheme="zscore_body")
    plan = Plan(
        dataset="benchmark",
        modalities=(
            ModalityPlan(name="ct", kind="ct", normalisation=ct),
            ModalityPlan(name="pet", kind="pet", normalisation=pet),
        ),
        reference="ct",
        spacing=(2.0, 2.0, 3.27),
        patch=config.patch,
        windows=config.big_windows,
        labels={"background": 0, "lesion": 1},
    )
    described = ModelFolder(path=plain, architecture="veloxseg", network=config.to_json(), plan=plan, provenance={})
    described.write_description()
    return export(plain, folder / "petct", "native" if is_built() else "openvino")


def write_case(folder: Path, shape: tuple[int, int, int], spacing: tuple[float, float, float]) -> list[Path]:
    """A body with noise and a hot spot; the PET is four times as coarse in the plane, as PETs are."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    paths = []
    for name, coarser in (("ct", 1), ("pet", 4)):
        size = (shape[0] // coarser, shape[1] // coarser, shape[2])
        grid = np.ogrid[tuple(slice(-1, 1, n * 1j) for n in size)]
        body = (grid[0] / 0.8) ** 2 + (grid[1] / 0.6) ** 2 + 0 * grid[2] < 1
        noise = random.standard_normal(size, np.float32)
        hot = (grid[0] - 0.3) ** 2 + grid[1] ** 2 + grid[2] ** 2 < 0.01
        inside = 40 + 20 * noise if name == "ct" else 1 + 0.3 * np.abs(noise) + 8 * hot
        array = np.where(body, inside, -1000 if name == "ct" else 0).astype(np.float32)
        steps = (spacing[0] * coarser, spacing[1] * coarser, spacing[2])
        affine = np.diag([*steps, 1.0])
        affine[:2, 3] = [(coarser - 1) / 2 * step for step in spacing[:2]]  # the same corner
        paths.append(folder / f"{name}.nii.gz")
        write(Volume(array=array, geometry=Geometry(shape=size, affine=affine)), paths[-1])
    return paths


@contextmanager
def serving(folder: Path, model: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server with the settings that users have; gives the process and the address with the token."""
    command = [sys.executable, "-m", "veloxseg", "serve", "-m", str(model), "-o", str(folder), "--port", "0", *more]
    command += ["--remove-smaller", "1", "--min-free", "0"]
    with open(folder.with_suffix(".log"), "w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        yield process, next(line.strip() for line in process.stdout if line.startswith("http"))
    finally:
        process.terminate()
        process.wait(60)


def until(condition: Callable[[], Any], seconds: float = 200) -> Any:
    """Waits for something to be true, and returns it."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        try:
            if found := condition():
                return found
        except OSError:
            pass
        time.sleep(0.02)
    raise SystemExit("it did not happen in time")


def ready(url: str) -> bool:
    with urllib.request.urlopen(url.partition("/#")[0] + "/readyz"):
        return True


def memory_mb(process: int, what: str) -> float:
    found = re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    return round(int(found[1]) / 1024, 1) if found else float("nan")


def children(process: int) -> list[int]:
    return [int(pid) for one in Path(f"/proc/{process}/task").glob("*/children") for pid in one.read_text().split()]


# -- the parts -----------------------------------------------------------------------------------------------------------


def packages(folder: Path, model: Path) -> dict[str, Any]:
    def needed(names: set[str]) -> set[str]:
        found, todo = set[str](), set(names)
        while todo:
            found.add(name := todo.pop())
            for line in importlib.metadata.requires(name) or ():
                word = re.split(r"[ ;<>=!~\[(]", line)[0].lower()
                if "extra ==" not in line and word not in found and installed(word):
                    todo.add(word)
        return found

    added = needed(set(EXTRA)) - needed({"veloxseg"})
    return {"added": len(added), "names": sorted(added)}


def installed(name: str) -> bool:
    try:
        return bool(importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return False


def start(folder: Path, model: Path) -> dict[str, Any]:
    began = time.monotonic()
    with serving(folder / "start", model) as (process, url):
        found: dict[str, Any] = {"listening_s": round(time.monotonic() - began, 2)}
        until(lambda: ready(url))
        found["ready_s"] = round(time.monotonic() - began, 2)
        everybody = [process.pid, *children(process.pid)]
        found["torch"] = any("libtorch" in Path(f"/proc/{pid}/maps").read_text() for pid in everybody)
        time.sleep(2)
        found["idle_mb"] = memory_mb(process.pid, "VmRSS")
        piece, client = folder / "piece.bin", Client(url)
        piece.write_bytes(np.random.default_rng(0).bytes(530_000))
        case, began = client.create(), time.monotonic()
        for number in range(566):  # a study of slices
            client.upload(case, piece, f"{number}.dcm")
        found["receiving_300mb_s"] = round(time.monotonic() - began, 1)
        found["receiving_peak_mb"] = memory_mb(process.pid, "VmHWM")
        return found


def queue(folder: Path, model: Path) -> dict[str, Any]:
    """All cases are sent before the first can be done; who asks about health asks once a second and connection."""
    files = write_case(folder / "small", (96, 96, 40), (2.0, 2.0, 3.27))
    with serving(folder / "queue", model) as (_, url):
        client = Client(url)
        until(lambda: ready(url))
        began, sent = time.monotonic(), []
        for _ in range(CASES):
            sent.append(client.create())
            for file in files:
                client.upload(sent[-1], file)
            client.start(sent[-1])
        times = asyncio.run(ask_health(url, client))
        states = {case["id"]: case["state"] for case in client.cases()}
        return {
            "cases": CASES,
            "lost": sum(states.get(case) != "done" for case in sent) + len(states.keys() - set(sent)),
            "seconds": round(time.monotonic() - began, 1),
            "connections": CONNECTIONS,
            "answers": len(times),
            "p50_ms": round(float(np.percentile(times, 50)), 2),
            "p99_ms": round(float(np.percentile(times, 99)), 2),
            "most_ms": round(max(times), 2),
        }


async def ask_health(url: str, client: Client, seconds: float = 250) -> list[float]:
    """Milliseconds of each answer until nothing is in line any more."""
    host, port = re.findall(r"//(.*):(\d+)/", url)[0]
    request = f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    times: list[float] = []
    done = asyncio.Event()

    async def ask(number: int) -> None:
        await asyncio.sleep(number / CONNECTIONS)
        reader, writer = await asyncio.open_connection(host, int(port))
        while not done.is_set():
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head.lower())[0]))
            times.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(1 - (time.perf_counter() - began) % 1)
        writer.close()

    async def watch() -> None:
        give_up = time.monotonic() + seconds
        busy = {"receiving", "reading", "waiting", "running"}
        while time.monotonic() < give_up:
            await asyncio.sleep(2)
            cases = await asyncio.to_thread(client.cases)
            if not busy & {case["state"] for case in cases}:
                break
        done.set()

    await asyncio.gather(watch(), *(ask(number) for number in range(CONNECTIONS)))
    return times


# what a random network labels looks like nothing in the world, so lesions are put over an empty mask
LESIONS = [
    {
        "op": "brush",
        "label": 0,
        "radius_mm": 100,
        "voxels": [[x, y, z] for x in range(50, 400, 100) for y in range(50, 400, 100) for z in range(25, 326, 50)],
    },
    *(
        {"op": "brush", "label": 1, "radius_mm": 4 + n, "voxels": [[100 + 20 * n, 150 + 9 * n, 20 + 28 * n]]}
        for n in range(11)
    ),
]
FRAMES = """async () => {
  const viewer = window.veloxsegViewer, { look, volume } = viewer, times = [], intervals = [];
  const canvases = [...document.querySelectorAll('#planes canvas')].map((canvas) => canvas.getContext('2d'));
  let seed = 1;
  const random = (n) => { seed = (seed * 48271) % 2147483647; return Math.floor((0.2 + 0.6 * seed / 2147483647) * n); };
  const next = () => new Promise(requestAnimationFrame);
  for (let i = 0; i < 60; i++) {   // every plane changes, and is painted to the last pixel
    look.cross = volume.grid.shape.map(random);
    viewer.projection.number += 1;
    await next();
    const began = performance.now();
    viewer.paint();
    for (const context of canvases) context.getImageData(0, 0, 1, 1);
    times.push(performance.now() - began);
  }
  let before = await next();
  for (let i = 0; i < 120; i++) {  // as a user scrolls
    look.cross = [look.cross[0], look.cross[1], 60 + i];
    viewer.draw();
    const now = await next();
    intervals.push(now - before); before = now;
  }
  return { times: times.slice(5), intervals };
}"""


def viewer(folder: Path, model: Path) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    files = write_case(folder / "large", LARGE, SPACING)
    with serving(folder / "viewer", model) as (_, url), sync_playwright() as started:
        client = Client(url)
        case = client.segment(files)
        client.edit(case, LESIONS)
        plain = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--disable-3d-apis", *plain])
        page = browser.new_page(viewport={"width": 1500, "height": 950})
        page.goto(url)
        page.wait_for_selector("#link.on")
        page.goto("about:blank")
        page.goto(f"{url.partition('#')[0]}#case={case}")
        shown = until(lambda: page.evaluate("performance.getEntriesByName('shown')[0]?.startTime"))
        page.wait_for_timeout(2000)
        told = page.evaluate(FRAMES)
        browser.close()
    return {
        "voxels": list(LARGE),
        "shown_s": round(shown / 1000, 2),
        "frame_median_ms": round(float(np.median(told["times"])), 1),
        "frame_p95_ms": round(float(np.percentile(told["times"], 95)), 1),
        "scrolling_interval_ms": round(float(np.median(told["intervals"])), 1),
    }


def pacs(folder: Path, model: Path) -> dict[str, Any]:
    """Orthanc listens at all addresses, so all of it happens in a network of its own."""
    absent = [name for name in ("Orthanc", "unshare", "ip") if shutil.which(name, path=search_path()) is None]
    if absent or os.geteuid() != 0 or not STUDY.is_dir():
        return {"skipped": f"needs root, {STUDY.name}, and {', '.join(absent) or 'nothing else'}"}
    inside = f'ip link set lo up && exec "{sys.executable}" "{__file__}" --inside "{folder}" "{model}"'
    environment = {**os.environ, "PATH": search_path()}
    done = subprocess.run(["unshare", "-n", "sh", "-c", inside], env=environment, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"failed": done.returncode}


def search_path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


def pacs_inside(folder: Path, model: Path) -> dict[str, Any]:
    """The study is in Orthanc, which sends it to us; it is over when Orthanc has the SEG. The quiet period is 10 s."""
    storage = folder / "orthanc"
    storage.mkdir()
    address, ports = "http://127.0.0.1:8042", {"HttpPort": 8042, "DicomPort": 4242}
    settings = {"DicomAet": "ORTHANC", "DicomAlwaysAllowStore": True, "Plugins": [], **ports}
    settings |= {"StorageDirectory": str(storage), "IndexDirectory": str(storage)}
    settings |= {"DicomModalities": {"veloxseg": ["VELOXSEG", "127.0.0.1", 11112]}}
    write_json(folder / "orthanc.json", settings)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def ask(path: str, data: bytes | None = None) -> Any:
        with urllib.request.urlopen(address + path, data=data, timeout=120) as answer:
            return json.loads(answer.read())

    node = ("--dicom", "VELOXSEG:11112", "--allow", "ORTHANC@127.0.0.1", "--send", "ORTHANC@127.0.0.1:4242")
    orthanc = subprocess.Popen(["Orthanc", str(folder / "orthanc.json")], **quiet)
    try:
        with serving(folder / "pacs", model, *node) as (_, url):
            until(lambda: ask("/system") and ready(url))
            slices = sorted(path for name in ("CT", "PET") for path in (STUDY / name / "image").iterdir())
            for path in slices:
                ask("/instances", path.read_bytes())
            before = len(ask("/instances"))
            began = time.monotonic()
            ask("/modalities/veloxseg/store", json.dumps(ask("/studies")).encode())
            last = time.monotonic()
            until(lambda: len(ask("/instances")) > before)
            seconds = time.monotonic() - last
            return {"slices": before, "sent_in_s": round(last - began, 1), "quiet_s": 10, "seg_s": round(seconds, 1)}
    finally:
        orthanc.terminate()
        orthanc.wait(60)


PARTS = {"packages": packages, "start": start, "queue": queue, "viewer": viewer, "pacs": pacs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=(*PARTS, []), metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--inside", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(pacs_inside(*arguments.inside)))
        return
    results = read_json(RESULTS)["parts"] if RESULTS.is_file() and arguments.parts else {}
    with tempfile.TemporaryDirectory() as name:
        model = write_model(Path(name) / "model")
        for part in arguments.parts or PARTS:
            began, load = time.monotonic(), round(os.getloadavg()[0], 1)
            results[part] = {**PARTS[part](Path(name), model), "load_before": load}
            print(f"{part}: {json.dumps(results[part])}  ({time.monotonic() - began:.0f} s)", flush=True)
    write_json(RESULTS, {"command": "python benchmarks/serve.py", "machine": machine.describe(), "parts": results})


if __name__ == "__main__":
    main()
