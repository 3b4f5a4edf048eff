"""Cases: what a user sees of the store: made, described and deleted here."""

import json
import secrets
import shutil
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veloxseg.files import sha256
from veloxseg.image.formats import without_suffix
from veloxseg.serve.archive import safe_suffix
from veloxseg.serve.jobs import LANE_OF, enqueue
from veloxseg.serve.states import set_state
from veloxseg.serve.store import Store, private_folder

__all__ = [
    "Missing",
    "Wrong",
    "add_file",
    "case_row",
    "create",
    "describe",
    "folder_of_revision",
    "mean_seconds",
    "open_case",
    "remove",
    "remove_strays",
    "start_reading",
]

RATE_OVER = 20  # finished predictions, for the estimate of waiting


class Missing(Exception):
    """There is no such case, file or result."""


class Wrong(Exception):
    """The request does not fit the state of the case."""


def create(store: Store, title: str, *, model: str | None, confirm: bool, source: str, study: str | None = None) -> str:
    """A new case that receives files; its name is random and says nothing."""
    case, now = secrets.token_hex(8), time.time()
    folder = store.case_folder(case)
    private_folder(folder)
    private_folder(folder / "in")
    with store.write() as connection:
        connection.execute(
            "INSERT INTO cases (id, title, source, state, message, model, confirm, found, chosen, warnings, revision,"
            " version, created, changed, arrived, study)"
            " VALUES (?, ?, ?, 'receiving', '', ?, ?, '[]', '{}', '[]', 0, 1, ?, ?, ?, ?)",
            (case, title, source, model, int(confirm), now, now, now, study),
        )
    return case


def open_case(store: Store, scans: Sequence[Path]) -> None:
    """Makes a case of files of this machine, unless the very same files are one already."""
    hashes = [sha256(scan) for scan in scans]
    held: dict[str, set[str]] = {}
    for row in store.read("SELECT case_id, sha256 FROM files"):
        held.setdefault(row["case_id"], set()).add(row["sha256"])
    if not scans or set(hashes) in held.values():
        return
    case = create(store, without_suffix(scans[0].name), model=None, confirm=False, source="web")
    for scan, found in zip(scans, hashes, strict=True):
        stored = f"{secrets.token_hex(8)}{safe_suffix(scan.name)}"
        shutil.copyfile(scan, store.case_folder(case) / "in" / stored)
        add_file(store, case, name=scan.name, stored=stored, size=scan.stat().st_size, digest=found)
    start_reading(store, case)


def case_row(store: Store, case: str) -> sqlite3.Row:
    rows = store.read("SELECT * FROM cases WHERE id = ?", case)
    if not rows:
        raise Missing(f"there is no case {case}")
    return rows[0]


def add_file(
    store: Store, case: str, *, name: str, stored: str, size: int, digest: str, sop: str | None = None
) -> None:
    """A file that lies whole in the case's folder; one of the same name replaces it."""
    with store.write() as connection:
        if connection.execute("SELECT 1 FROM cases WHERE id = ?", (case,)).fetchone() is None:
            raise Missing("the case was deleted meanwhile")
        before = connection.execute(
            "SELECT stored FROM files WHERE case_id = ? AND (name = ? OR sop = ?)", (case, name, sop)
        ).fetchall()
        connection.execute("DELETE FROM files WHERE case_id = ? AND (name = ? OR sop = ?)", (case, name, sop))
        connection.execute(
            "INSERT INTO files (case_id, name, stored, bytes, sha256, sop) VALUES (?, ?, ?, ?, ?, ?)",
            (case, name, stored, size, digest, sop),
        )
        connection.execute(  # what waits was about fewer files
            "DELETE FROM jobs WHERE case_id = ? AND state = 'waiting' AND kind IN ('read', 'predict')", (case,)
        )
        set_state(connection, case, "receiving", arrived=time.time())
    for row in before:
        (store.case_folder(case) / "in" / row["stored"]).unlink(missing_ok=True)


def start_reading(store: Store, case: str) -> None:
    """All files are there: a worker looks at what they are."""
    with store.write() as connection:
        set_state(connection, case, "reading", looked=time.time())
        enqueue(connection, case, "read")


def remove(store: Store, case: str) -> None:
    """Deletes a case: first from the store, so that nobody sees half of it, then its files."""
    case_row(store, case)
    with store.write() as connection:
        connection.execute("DELETE FROM cases WHERE id = ?", (case,))
    shutil.rmtree(store.case_folder(case), ignore_errors=True)


def remove_strays(store: Store) -> None:
    """Deletes folders whose case is gone, and results that were never finished: something was cut short."""
    known = {row["id"] for row in store.read("SELECT id FROM cases")}
    for folder in (store.folder / "cases").iterdir():
        if folder.name not in known:
            shutil.rmtree(folder, ignore_errors=True)
        for part in folder.glob("out/*/.part-*"):
            shutil.rmtree(part, ignore_errors=True)


def describe(store: Store, row: sqlite3.Row) -> dict[str, Any]:
    """A case as the API tells it."""
    case = row["id"]
    answer: dict[str, Any] = {
        "id": case,
        "title": row["title"],
        "source": row["source"],
        "state": row["state"],
        "message": row["message"],
        "model": row["model"],
        "found": json.loads(row["found"]),
        "chosen": json.loads(row["chosen"]),
        "warnings": json.loads(row["warnings"]),
        "revision": row["revision"],
        "version": row["version"],
        "created": row["created"],
        "changed": row["changed"],
        "files": [
            {"name": file["name"], "bytes": file["bytes"]}
            for file in store.read("SELECT name, bytes FROM files WHERE case_id = ? AND sop IS NULL", case)
        ],
    }
    if row["state"] in ("waiting", "running"):
        answer["queue"] = place_in_line(store, case)
    busy = store.read("SELECT COUNT(*) AS n FROM jobs WHERE case_id = ? AND lane = 'desk' AND finished IS NULL", case)
    answer["working"] = bool(busy[0]["n"])  # whether edits, comparisons or files are being made
    last = store.read(
        "SELECT * FROM jobs WHERE case_id = ? AND finished IS NOT NULL ORDER BY finished DESC LIMIT 1", case
    )
    answer["problem"] = last[0]["message"] if last and last[0]["lane"] == "desk" else ""  # of an edit or a comparison
    answer["outbox"] = [
        {key: sent[key] for key in ("id", "target", "state", "attempts", "message")}
        for sent in store.read("SELECT * FROM outbox WHERE case_id = ? ORDER BY id", case)
    ]
    return answer


def place_in_line(store: Store, case: str) -> dict[str, Any]:
    """How many cases come first, how far this one is, and the seconds left as far as they can be told."""
    own = store.read(
        "SELECT * FROM jobs WHERE case_id = ? AND kind = 'predict' AND finished IS NULL ORDER BY id DESC LIMIT 1", case
    )
    if not own:
        return {"position": 0, "done": 0, "total": 0, "seconds_left": None}
    job = own[0]
    ahead = store.read(
        "SELECT COUNT(*) AS n FROM jobs WHERE lane = ? AND state IN ('waiting', 'running') AND id < ?",
        LANE_OF["predict"],
        job["id"],
    )[0]["n"]
    seconds: float | None = None
    if job["state"] == "running" and job["done"] and job["total"]:
        seconds = (time.time() - job["started"]) * (job["total"] - job["done"]) / job["done"]
    elif (mean := mean_seconds(store)) is not None:
        seconds = mean * (ahead + 1)
    return {"position": ahead, "done": job["done"], "total": job["total"], "seconds_left": seconds}


def mean_seconds(store: Store) -> float | None:
    """What a prediction took lately; None before the first one."""
    mean = store.read(
        "SELECT AVG(finished - started) AS mean FROM (SELECT finished, started FROM jobs"
        " WHERE kind = 'predict' AND state = 'done' ORDER BY id DESC LIMIT ?)",
        RATE_OVER,
    )[0]["mean"]
    return None if mean is None else float(mean)


def folder_of_revision(store: Store, row: sqlite3.Row) -> Path:
    """Where the mask and the numbers of a case's present revision are."""
    found = store.read("SELECT folder FROM revisions WHERE case_id = ? AND number = ?", row["id"], row["revision"])
    if not found:
        raise Missing("the case has no result yet")
    return store.case_folder(row["id"]) / "out" / str(found[0]["folder"])
