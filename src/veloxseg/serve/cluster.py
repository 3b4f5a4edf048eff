"""`veloxseg serve --ray`: cases are predicted on the nodes of a Ray cluster, as many at a time as there is room for.

    server and store here  ←  this worker, one thread per node's place  →  a predictor on a node, which writes the files

Only names and progress travel through Ray. The nodes see the folder of -o under the same path, but never open the store
in it: SQLite is not for network file systems. A node that is lost costs its cases an attempt; they are done elsewhere.
"""

import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from veloxseg.predict.batch import Wanted
from veloxseg.predict.cluster import Job, ask_nodes, connected, quiet_ray, room
from veloxseg.predict.predictor import Options, Predictor
from veloxseg.predict.scans import Scans
from veloxseg.serve.logs import log
from veloxseg.serve.models import Model, open_models
from veloxseg.serve.work import Gone, Lost, Report, make_result

__all__ = ["Places", "work_on_cluster"]

LOOK_SECONDS = 0.3  # between questions how far a case is


class Board:
    """Where nodes write how far they are, and read whether to go on. It lives beside the worker that asks."""

    def __init__(self) -> None:
        self.done: dict[str, tuple[int, int]] = {}
        self.stopped: set[str] = set()

    def tell(self, key: str, done: int, total: int) -> bool:
        self.done[key] = done, total
        return key not in self.stopped

    def look(self, key: str) -> tuple[int, int]:
        return self.done.get(key, (0, 0))

    def stop(self, key: str) -> None:
        self.stopped.add(key)

    def forget(self, key: str) -> None:
        self.done.pop(key, None)
        self.stopped.discard(key)


class Place:
    """An opened model on some node."""

    def __init__(self, jobs: dict[str, Job], board: Any) -> None:
        self.jobs, self.board = jobs, board
        self.models = open_models([job.models[0] for job in jobs.values()])
        self.predictors: dict[str, Predictor] = {}

    def is_here(self) -> bool:
        return True

    def segment(self, key: str, name: str, sources: dict[str, str], out: str) -> str | None:
        """The folder of the mask; None if nobody wants it any more."""
        import ray

        def report(done: int, total: int) -> None:
            if not ray.get(self.board.tell.remote(key, done, total)):
                raise Gone

        if name not in self.predictors:
            self.predictors[name] = self.jobs[name].open()
        scans = Scans({modality: Path(place) for modality, place in sources.items()})
        try:
            return make_result(self.predictors[name], self.models[name], scans, Path(out), report)
        except Gone:
            return None


class Places:
    """All places of the cluster; each thread of the worker has one of its own."""

    def __init__(self, ray: Any, settings: dict[str, Any]) -> None:
        self.ray, self.own = ray, threading.local()
        threads = settings["threads"] or 1
        shared = Path(settings["folder"]) / "cases"
        self.jobs = {
            model.name: Job(
                models=(model.path,),
                runtime=settings["runtime"],
                threads=threads,
                options=Options(**settings["options"]),
                output=shared,
                wanted=Wanted(),
            )
            for model in open_models(settings["models"]).values()
        }
        alive = [node for node in ray.nodes() if node["Alive"]]
        self.count = room(alive, threads, settings["options"]["max_ram"] or 0.0)
        able = [node for node in alive if node["Resources"].get("CPU", 0) >= threads]
        for job in self.jobs.values():
            ask_nodes(ray, able, job, job.open().runtime.name, list(job.models))
        self.threads = threads
        self.board = ray.remote(num_cpus=0)(Board).remote()
        log("cluster", nodes=len(able), places=self.count)

    def is_up(self) -> bool:
        """Whether this thread's place answers; one whose node was lost waits here until there is room for another."""
        if getattr(self.own, "place", None) is None:
            self.own.place = self.ray.remote(num_cpus=self.threads)(Place).remote(self.jobs, self.board)
            self.own.answer = self.own.place.is_here.remote()
        try:
            if not self.ray.wait([self.own.answer], timeout=LOOK_SECONDS)[0]:
                return False
            return bool(self.ray.get(self.own.answer))
        except self.ray.exceptions.RayError:
            self.own.place = None
            return False

    def segment(self, model: Model, scans: Scans, out: Path, report: Report) -> str:
        """Has a node make the mask, and passes on how far it is; whoever asks may end it by raising in `report`."""
        key = secrets.token_hex(8)
        sources = {name: str(path) for name, path in scans.sources.items()}
        answer = self.own.place.segment.remote(key, model.name, sources, str(out))
        try:
            while not self.ray.wait([answer], timeout=LOOK_SECONDS)[0]:
                report(*self.ray.get(self.board.look.remote(key)))
            found = self.ray.get(answer)
        except BaseException as error:
            self.board.stop.remote(key)
            if isinstance(error, self.ray.exceptions.RayTaskError):
                raise error.as_instanceof_cause() from None
            if isinstance(error, self.ray.exceptions.RayError):
                self.own.place = None
                raise Lost from error
            raise
        self.board.forget.remote(key)
        if found is None:
            raise Gone
        return str(found)


def work_on_cluster(settings: dict[str, Any], say_ready: Any, work: Any) -> None:
    """Connects, and lets as many threads as there are places take jobs; `work(places)` is what each of them does."""
    ray = quiet_ray()
    with connected(ray, settings["ray"]):
        places = Places(ray, settings)
        say_ready()
        with ThreadPoolExecutor(places.count) as pool:
            for done in [pool.submit(work, places) for _ in range(places.count)]:
                done.result()
