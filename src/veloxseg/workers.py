"""Work on many cases in processes, such that nothing is ever waited for in vain.

Each worker has its own pipe and is given one case at a time, so the parent knows which case a worker died on
(out of memory, a crash in a library) or hangs on. That case is reported as failed, the worker is replaced and
the rest goes on. Memory is bounded by the number of workers; results should be small. Starting a worker takes as
long as reading several cases, so a `Team` can be given one job after the other.
"""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

from veloxseg.errors import VeloxSegError

__all__ = ["Failure", "Team", "run_all"]

Item = TypeVar("Item")
Result = TypeVar("Result")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS")
START_LIMIT = 300.0  # seconds for a worker to start
TIME_LIMIT = 3600.0  # seconds for one case: a stuck network drive is reported, not waited for


@dataclass(frozen=True)
class Failure:
    """Why a case gave no result."""

    message: str
    expected: bool  # False: a bug or a crash, not bad input


@dataclass
class _Worker(Generic[Item]):
    process: multiprocessing.process.BaseProcess
    pipe: Connection
    item: Item | None = None
    since: float = 0.0
    ready: bool = False  # started and waiting for work


class Team:
    """Workers that stay for several jobs; 0 or 1 of them: the work is done in this process, in order."""

    def __init__(self, workers: int) -> None:
        self.size = workers
        # "spawn" starts clean: a forked copy of a process with threads can deadlock
        self.context = multiprocessing.get_context("spawn")
        self.workers: list[_Worker[Any]] = []

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *_: object) -> None:
        self._end(self.workers)

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item], time_limit: float = TIME_LIMIT
    ) -> Generator[tuple[Item, Result | Failure], None, None]:
        """Yields (item, result) in the order of completion."""
        if self.size <= 1 or len(items) <= 1:
            for item in items:
                yield item, _attempt(function, item)
            return
        waiting = list(reversed(items))
        while len(self.workers) < min(self.size, len(items)):
            self.workers.append(_start(self.context))
        try:
            for worker in self.workers:
                _give(worker, function, waiting)
            while busy := [worker for worker in self.workers if worker.item is not None]:
                wait([w.pipe for w in busy] + [w.process.sentinel for w in busy], timeout=1.0)
                for worker in busy:
                    done: Any = worker.item
                    for result in _collect(worker, time_limit):
                        if isinstance(result, Failure) and not worker.process.is_alive():
                            worker = self._replace(worker)
                        worker.item = None
                        _give(worker, function, waiting)
                        yield done, result
        finally:  # also when the caller stops in between: what a worker is at is of no use then
            self._end([worker for worker in self.workers if worker.item is not None])

    def _replace(self, dead: _Worker[Any]) -> _Worker[Any]:
        dead.pipe.close()
        self.workers[self.workers.index(dead)] = worker = _start(self.context)
        return worker

    def _end(self, workers: list[_Worker[Any]]) -> None:
        for worker in list(workers):
            worker.process.terminate()
            worker.process.join(5)
            worker.pipe.close()
            self.workers.remove(worker)


def run_all(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int, time_limit: float = TIME_LIMIT
) -> Generator[tuple[Item, Result | Failure], None, None]:
    """One job for a team of its own."""
    with Team(workers) as team:
        yield from team.run(function, items, time_limit)


def _attempt(function: Callable[[Item], Result], item: Item) -> Result | Failure:
    try:
        return function(item)
    except VeloxSegError as error:
        return Failure(str(error), expected=True)
    except MemoryError:
        return Failure("not enough memory; use fewer --workers or a coarser --spacing", expected=True)
    except Exception as error:
        return Failure(f"{type(error).__name__}: {error}", expected=False)


def _serve(pipe: Connection) -> None:
    """A worker's life: a function and an item in, one result out, until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    pipe.send(None)  # ready: a slow start is not the case's fault
    while True:
        try:
            function, item = pipe.recv()
        except EOFError:
            return
        pipe.send(_attempt(function, item))


def _start(context: Any) -> _Worker[Any]:
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    with _one_thread_each():
        process.start()
    theirs.close()
    return _Worker(process, ours)


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Workers inherit these: as many processes as cores need no further threads, which only get in the way."""
    before = dict(os.environ)
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name in THREAD_VARIABLES:
            os.environ.pop(name)
            if name in before:
                os.environ[name] = before[name]


def _give(worker: _Worker[Item], function: Callable[[Item], Any], waiting: list[Item]) -> None:
    if waiting:
        worker.item, worker.since = waiting.pop(), time.monotonic()
        with contextlib.suppress(OSError):  # the worker may be dead already; _collect reports it
            worker.pipe.send((function, worker.item))


def _collect(worker: _Worker[Any], time_limit: float) -> tuple[Any, ...]:
    """The worker's result, a Failure if it died or takes too long, nothing if it is still at work."""
    try:
        if worker.pipe.poll():
            if worker.ready:
                return (worker.pipe.recv(),)
            worker.ready = worker.pipe.recv() is None
            worker.since = time.monotonic()
    except (EOFError, OSError):
        worker.process.join(5)
    if not worker.process.is_alive():
        code = worker.process.exitcode
        cause = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        message = f"the worker process died ({cause}); if memory ran out, use fewer --workers"
        return (Failure(message, expected=True),)
    if time.monotonic() - worker.since > (time_limit if worker.ready else max(time_limit, START_LIMIT)):
        worker.process.kill()
        worker.process.join(5)
        message = f"took longer than {time_limit:.0f} s and was stopped; is the drive responding?"
        return (Failure(message, expected=True),)
    return ()
