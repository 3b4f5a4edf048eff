"""Keeps one worker per lane alive: starts it, puts its job back when it dies, starts another.

A worker that cannot even start, because a model is damaged, tells why on standard output; the first such message ends
the server with that line.
"""

import json
import secrets
import subprocess
import sys
import threading
import time
from typing import IO

from veloxseg.serve.jobs import LANES, release
from veloxseg.serve.logs import log
from veloxseg.serve.settings import Settings
from veloxseg.serve.store import Store

__all__ = ["Supervisor"]

PAUSE_SECONDS = 1.0  # before a dead worker is replaced
STOP_SECONDS = 20.0  # for the window at hand


class Supervisor:
    """The workers of a server."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.ready = dict.fromkeys(LANES, False)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.restarts = 0
        self.problem: str | None = None  # why a worker could not start
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._keep, args=(lane,), daemon=True) for lane in LANES]

    def start(self) -> None:
        """Whatever was running when the last server ended waits again; then the workers start."""
        for lane in LANES:
            release(self.store, lane)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Lets every worker finish its window and put its job back."""
        self._stopping.set()
        for process in list(self.processes.values()):
            if process.poll() is None:
                process.terminate()
        for thread in self._threads:
            thread.join(STOP_SECONDS)
        for process in list(self.processes.values()):
            if process.poll() is None:
                process.kill()
                process.wait()

    def _keep(self, lane: str) -> None:
        while not self._stopping.is_set():
            process = self._launch(lane)
            assert process.stdout is not None
            self._listen(lane, process.stdout)
            code = process.wait()
            self.ready[lane] = False
            release(self.store, lane)
            if not self._stopping.is_set():
                self.restarts += 1
                log("worker ended", lane=lane, code=code)
                self._stopping.wait(PAUSE_SECONDS)
        self.store.close()

    def _launch(self, lane: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "veloxseg.serve.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.processes[lane] = process
        line = json.dumps(self.settings.for_worker(lane, secrets.token_hex(4)))
        try:
            assert process.stdin is not None
            process.stdin.write(line.encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            time.sleep(PAUSE_SECONDS)
        return process

    def _listen(self, lane: str, output: IO[bytes]) -> None:
        """Reads what a worker says about itself, until it ends."""
        for line in output:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if said.get("ready"):
                self.ready[lane] = True
            elif "error" in said:
                self.problem = str(said["error"])
