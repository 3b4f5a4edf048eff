"""A worker process: takes the jobs of one lane from the store, one after the other, until it is told to stop.

It is started by the server (`supervise.py`), which sends the settings as the first line of standard input and then
keeps that pipe open: when the server ends, however it ends, the pipe closes and the worker ends too. SIGTERM lets it
finish the window at hand, put the job back in its place, and leave.
"""

import contextlib
import json
import os
import signal
import sqlite3
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from veloxseg.console import set_quiet
from veloxseg.errors import VeloxSegError
from veloxseg.predict.predictor import Options
from veloxseg.serve.jobs import finish, give_back, lose, take
from veloxseg.serve.logs import log
from veloxseg.serve.models import open_models
from veloxseg.serve.store import Store
from veloxseg.serve.work import JOBS, Bench, Gone, Lost, Report, in_one_line, tell_failure

__all__ = ["main", "work_once"]

IDLE_SECONDS = 0.1  # between looks at an empty queue
GIVE_WAY = 5  # niceness: the server, which answers within milliseconds, comes first; others may not starve the worker


class Stopped(Exception):
    """The worker was asked to stop in the middle of a job."""


class StoppableBench(Bench):
    """A bench whose worker looks up from its work after every window."""

    stopping = threading.Event()
    places: Any = None  # of a cluster

    def segment(self, row: sqlite3.Row, report: Report) -> str:
        if self.places is None:
            return super().segment(row, report)
        out = self.store.case_folder(row["id"]) / "out"
        return str(self.places.segment(self.model_of(row), self.scans(row), out, report))

    def check_stop(self) -> None:
        if self.stopping.is_set():
            raise Stopped


def main() -> int:
    settings = json.loads(sys.stdin.readline())
    os.nice(GIVE_WAY)
    set_quiet(True)
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which tells its workers
    signal.signal(signal.SIGTERM, lambda *_: StoppableBench.stopping.set())
    lane, name = settings["lane"], settings["name"]
    try:
        if lane == "network" and settings["ray"]:
            from veloxseg.serve.cluster import work_on_cluster

            work_on_cluster(settings, lambda: _say_ready(lane), lambda places: _work(settings, lane, name, places))
        else:
            _work(settings, lane, name)
    except VeloxSegError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 2
    return 0


def _work(settings: dict[str, Any], lane: str, name: str, places: Any = None) -> None:
    """Takes jobs until the worker is told to stop; with `places`, nodes of a cluster predict."""
    bench = open_bench(settings)
    bench.places = places
    if places is None:
        for model in bench.models if lane == "network" else ():
            bench.predictor(model)
        _say_ready(lane)
    while not StoppableBench.stopping.is_set():
        if (places is not None and not places.is_up()) or not work_once(bench, lane, name):
            StoppableBench.stopping.wait(IDLE_SECONDS)
    bench.store.close()


def _say_ready(lane: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: StoppableBench.stopping.set())  # Ray has put one of its own in its place
    print(json.dumps({"ready": True}), flush=True)
    log("worker ready", lane=lane)


def open_bench(settings: dict[str, Any]) -> StoppableBench:
    """Opens what the server names in its settings."""
    return StoppableBench(
        Store(Path(settings["folder"])),
        open_models(settings["models"]),
        runtime=settings["runtime"],
        threads=settings["threads"],
        options=Options(**settings["options"]),
        send=settings["send"],
        objects=settings["objects"],
        patience=settings["patience"],
    )


def work_once(bench: Bench, lane: str, worker: str) -> bool:
    """Does the next job of a lane; False if there is none."""
    job = take(bench.store, lane, worker)
    if job is None:
        return False
    began = time.monotonic()
    try:
        outcome = _attempt(bench, job)
    except Stopped:
        give_back(bench.store, job)
        log("job put back", job=job["id"], kind=job["kind"])
        return True
    except Lost:
        lose(bench.store, job)
        log("machine lost", job=job["id"], kind=job["kind"])
        return True
    seconds = round(time.monotonic() - began, 3)
    log("job ended", job=job["id"], case=job["case_id"], kind=job["kind"], outcome=outcome, seconds=seconds)
    return True


def _attempt(bench: Bench, job: sqlite3.Row) -> str:
    """Does one job and tells the store; "done", "failed", or "dropped" if it was no longer ours."""
    try:
        tell = JOBS[job["kind"]](bench, job)
    except (Stopped, Lost):
        raise
    except Gone:
        return "dropped"
    except Exception as error:
        if not bench.store.read("SELECT 1 FROM cases WHERE id = ?", job["case_id"]):
            return "dropped"  # its files went away with the case
        message = in_one_line(error, bench.store, job["case_id"])
        if message.startswith("internal error"):
            frame = traceback.extract_tb(error.__traceback__)[-1]  # where, and never what: a text may quote a tag
            log("internal error", kind=type(error).__name__, file=Path(frame.filename).name, line=frame.lineno or 0)
        with bench.store.write() as connection:
            if finish(connection, job, "failed", message):
                tell_failure(connection, job, message)
        return "failed"
    with bench.store.write() as connection:
        if not finish(connection, job):
            return "dropped"
        tell(connection)
    return "done"


def _end_with_the_server() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
