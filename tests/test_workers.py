"""Work in processes: results come back, and a worker that dies or hangs is reported."""

import os
import signal
import time

from veloxseg.errors import DatasetError
from veloxseg.workers import Failure, run_all


def work(item: int) -> int:
    if item == 1:
        raise DatasetError("this one is bad")
    if item == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if item == 3:
        raise ZeroDivisionError("a bug")
    if item == 4:
        time.sleep(60)
    return item * item


def test_each_item_gives_a_result_or_says_why_not() -> None:
    started = time.monotonic()
    results = dict(run_all(work, [0, 1, 2, 3, 4, 5, 6], workers=2, time_limit=4.0))
    assert time.monotonic() - started < 30
    assert [results[i] for i in (0, 5, 6)] == [0, 25, 36]
    assert results[1] == Failure("this one is bad", expected=True)
    dead, bug, stuck = results[2], results[3], results[4]
    assert isinstance(dead, Failure)
    assert "died (signal 9)" in dead.message
    assert isinstance(bug, Failure)
    assert not bug.expected
    assert isinstance(stuck, Failure)
    assert "took longer than 4 s" in stuck.message


def test_one_worker_runs_here_in_order() -> None:
    assert list(run_all(work, [5, 0, 6], workers=1)) == [(5, 25), (0, 0), (6, 36)]


def nothing(_: int) -> None:
    return None


def test_a_result_may_be_none() -> None:
    assert [result for _, result in run_all(nothing, [0, 1, 2], workers=2)] == [None] * 3


def threads(_: int) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def test_workers_use_one_thread_and_leave_our_settings_alone() -> None:
    before = dict(os.environ)
    assert {result for _, result in run_all(threads, [0, 1], workers=2)} == {"1"}
    assert dict(os.environ) == before
