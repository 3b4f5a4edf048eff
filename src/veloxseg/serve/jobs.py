"""Jobs: what the workers do, one after the other in each lane.

The lane "network" predicts, and holds the model open. The lane "desk" does what takes a moment (reading what was
received, applying edits, writing files), so that nobody waits for a long prediction to see a lesion erased.

A worker takes a job under its own name. When it dies, the server puts the job back; a worker that was given up for
dead and still finishes is not believed, because the job no longer bears its name.
"""

import json
import sqlite3
import time
from typing import Any

from veloxseg.serve.states import set_state
from veloxseg.serve.store import Store

__all__ = ["LANES", "LANE_OF", "advance", "enqueue", "finish", "give_back", "lose", "recover", "release", "take"]

LANE_OF = {"predict": "network", "read": "desk", "revise": "desk", "compare": "desk", "write": "desk", "send": "desk"}
LANES = ("network", "desk")
MOST_ATTEMPTS = 10  # a case that ends its worker every time is reported, not tried forever


def enqueue(connection: sqlite3.Connection, case: str, kind: str, **arguments: Any) -> int:
    """Adds a job, within a transaction."""
    cursor = connection.execute(
        "INSERT INTO jobs (case_id, kind, lane, arguments, state, worker, attempts, done, total, message, created)"
        " VALUES (?, ?, ?, ?, 'waiting', '', 0, 0, 0, '', ?)",
        (case, kind, LANE_OF[kind], json.dumps(arguments), time.time()),
    )
    return int(cursor.lastrowid or 0)


def take(store: Store, lane: str, worker: str) -> sqlite3.Row | None:
    """The first waiting job of a lane, now this worker's; None if there is none."""
    if not store.read("SELECT 1 FROM jobs WHERE state = 'waiting' AND lane = ? LIMIT 1", lane):
        return None  # without a write, which would wake everybody who watches the store
    with store.write() as connection:
        found = connection.execute(
            "SELECT id, case_id, kind FROM jobs WHERE state = 'waiting' AND lane = ? ORDER BY id LIMIT 1", (lane,)
        ).fetchone()
        if found is None:
            return None
        connection.execute(
            "UPDATE jobs SET state = 'running', worker = ?, started = ?, attempts = attempts + 1, done = 0"
            " WHERE id = ?",
            (worker, time.time(), found["id"]),
        )
        if found["kind"] == "predict":
            set_state(connection, found["case_id"], "running")
        return connection.execute("SELECT * FROM jobs WHERE id = ?", (found["id"],)).fetchone()


def advance(store: Store, job: sqlite3.Row, done: int, total: int) -> bool:
    """Tells how far a job is; False if it is no longer this worker's, because its case was deleted or given away."""
    with store.write() as connection:
        changed = connection.execute(
            "UPDATE jobs SET done = ?, total = ? WHERE id = ? AND worker = ? AND state = 'running'",
            (done, total, job["id"], job["worker"]),
        ).rowcount
        connection.execute("UPDATE cases SET version = version + 1 WHERE id = ?", (job["case_id"],))
    return bool(changed)


def finish(connection: sqlite3.Connection, job: sqlite3.Row, state: str = "done", message: str = "") -> bool:
    """Ends a job within a transaction; False if it is no longer this worker's, and nothing of it may count."""
    changed = connection.execute(
        "UPDATE jobs SET state = ?, message = ?, finished = ? WHERE id = ? AND worker = ? AND state = 'running'",
        (state, message, time.time(), job["id"], job["worker"]),
    ).rowcount
    return bool(changed)


def give_back(store: Store, job: sqlite3.Row) -> None:
    """A worker that is told to stop puts its job back in its place; that was no attempt."""
    with store.write() as connection:
        _requeue(connection, [job], counts=False)


def recover(store: Store) -> None:
    """A server starts: what ran when the last one ended waits again. That was not the fault of any case."""
    with store.write() as connection:
        left = connection.execute("SELECT * FROM jobs WHERE state = 'running'").fetchall()
        _requeue(connection, left, counts=False)


def release(store: Store, lane: str) -> list[int]:
    """The worker of a lane is gone: what it was at waits again. Returns the jobs that were tried too often."""
    with store.write() as connection:
        left = connection.execute("SELECT * FROM jobs WHERE state = 'running' AND lane = ?", (lane,)).fetchall()
        return _lose(connection, left)


def lose(store: Store, job: sqlite3.Row) -> None:
    """The machine that was at a job is gone: the job waits again, unless it was tried too often."""
    with store.write() as connection:
        _lose(connection, [job])


def _lose(connection: sqlite3.Connection, left: list[sqlite3.Row]) -> list[int]:
    spent = [job for job in left if job["attempts"] >= MOST_ATTEMPTS]
    _requeue(connection, [job for job in left if job["attempts"] < MOST_ATTEMPTS], counts=True)
    for job in spent:
        message = f"the worker died {job['attempts']} times over this case; if memory ran out, crop the scans"
        finish(connection, job, "failed", message)
        if job["kind"] in ("predict", "read"):
            set_state(connection, job["case_id"], "failed", message)
    return [int(job["id"]) for job in spent]


def _requeue(connection: sqlite3.Connection, jobs: list[sqlite3.Row], *, counts: bool) -> None:
    for job in jobs:
        connection.execute(
            "UPDATE jobs SET state = 'waiting', worker = '', started = NULL, done = 0, attempts = ?"
            " WHERE id = ? AND worker = ? AND state = 'running'",
            (job["attempts"] - (not counts), job["id"], job["worker"]),
        )
        if job["kind"] == "predict":
            set_state(connection, job["case_id"], "waiting")
