"""A store with a case in it, a bench to work at, and (where the extra is installed) a running server."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.models import *  # noqa: F403
from veloxseg.image import write
from veloxseg.predict.predictor import Options
from veloxseg.serve import cases
from veloxseg.serve.models import open_models
from veloxseg.serve.store import Store
from veloxseg.serve.work import Bench
from veloxseg.serve.worker import work_once


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def bench(store: Store, model: Path) -> Bench:
    return Bench(store, open_models([model]), runtime="auto", threads=1, options=Options())


@pytest.fixture
def scans(tmp_path: Path, make_scans) -> dict[str, Path]:
    """A small case as files: a case of a dozen windows."""
    files = {}
    for name, volume in make_scans((48, 40, 30)).items():
        files[name] = tmp_path / f"{name.upper()}_image.nii.gz"
        write(volume, files[name])
    return files


@pytest.fixture
def add_case(store: Store) -> Callable[..., str]:
    """Puts files into a new case, as the server does with an upload."""

    def add(files: dict[str, Path], *, confirm: bool = False, model: str | None = None) -> str:
        case = cases.create(store, "a title", model=model, confirm=confirm, source="web")
        for number, (name, path) in enumerate(files.items()):
            stored = f"{number}{''.join(path.suffixes)}"
            (store.case_folder(case) / "in" / stored).write_bytes(path.read_bytes())
            cases.add_file(store, case, name=name, stored=stored, size=path.stat().st_size, digest="")
        cases.start_reading(store, case)
        return case

    return add


@pytest.fixture
def work(bench: Bench) -> Callable[[], None]:
    """Does all jobs that wait, in this process."""

    def run() -> None:
        while any([work_once(bench, lane, "tester") for lane in ("desk", "network")]):
            pass

    return run


@pytest.fixture
def state(store: Store) -> Callable[[str], dict[str, Any]]:
    return lambda case: cases.describe(store, cases.case_row(store, case))


@dataclass
class Running:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    address: str
    token: str
    folder: Path

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1])

    @property
    def url(self) -> str:
        return f"{self.address}/#token={self.token}"

    def workers(self) -> list[int]:
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in listed]

    def stop(self, how: int = signal.SIGTERM) -> str:
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return (self.folder.parent / "server.log").read_text()


def start_server(folder: Path, model: Path, *more: str) -> Running:
    log = open(folder.parent / "server.log", "a")  # noqa: SIM115
    process = subprocess.Popen(
        [sys.executable, "-m", "veloxseg", "serve", "-m", str(model), "-o", str(folder), "--port", "0", *more],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    log.close()
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.match(r"(https?://\S+)/#token=(\S+)", line):
            return Running(process, found[1], found[2], folder)
    process.stdout.close()
    process.wait(60)
    raise AssertionError((folder.parent / "server.log").read_text())


@pytest.fixture(scope="session")
def quick_model(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """The model in the form that opens fastest."""
    from veloxseg.runtimes.export import export

    return export(model, tmp_path_factory.mktemp("quick") / "quick", FORMS[0])  # noqa: F405


@pytest.fixture
def serve(tmp_path: Path, quick_model: Path) -> Iterator[Callable[..., Running]]:
    """Starts servers in this test's folder; whatever still runs at the end is stopped."""
    pytest.importorskip("starlette", reason="needs the extra serve; `make test-serve` has it")
    started: list[Running] = []

    def start(*more: str, model: Path | None = None) -> Running:
        chosen = model or quick_model
        started.append(start_server(tmp_path / "served", chosen, "--min-free", "0", "--threads", "1", *more))
        return started[-1]

    yield start
    for running in started:
        running.stop(signal.SIGKILL)


def until(condition: Callable[[], Any], seconds: float = 120) -> Any:
    """Waits for something to become true, and returns it."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen in time")


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    return until


@pytest.fixture
def log_lines() -> Callable[[str], list[dict[str, Any]]]:
    return lambda text: [json.loads(line) for line in text.splitlines() if line.startswith("{")]
