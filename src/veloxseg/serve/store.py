"""The store: one SQLite file in WAL mode, and a folder per case beside it. Whatever was accepted is in here.

    cases      what a user sees: state, model, scans that were recognised
    files      what was received, under names of ours
    jobs       what workers do; a job that was running when its worker died is waiting again
    revisions  the masks of a case: number 0 is the model's, each further one has a list of edits
    outbox     what is still to be sent to another DICOM node

Every connection belongs to one thread. Writes are durable (synchronous=FULL) before anybody is told that they are done.
A store of an older version is upgraded step by step when it is opened; one of a newer version is refused.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from veloxseg.errors import OutputError, shown

__all__ = ["UPGRADES", "Store"]

NAME = "store.sqlite"
WAIT_SECONDS = 30.0  # for another writer
# each step takes a store from one version to the next; published steps are never changed
UPGRADES = (
    """
    CREATE TABLE cases (
        id TEXT PRIMARY KEY, title TEXT NOT NULL, source TEXT NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL,
        model TEXT, confirm INTEGER NOT NULL, found TEXT NOT NULL, chosen TEXT NOT NULL, warnings TEXT NOT NULL,
        revision INTEGER NOT NULL, version INTEGER NOT NULL, created REAL NOT NULL, changed REAL NOT NULL
    );
    CREATE TABLE files (
        id INTEGER PRIMARY KEY, case_id TEXT NOT NULL REFERENCES cases(id) ON DELETE CASCADE, name TEXT NOT NULL,
        stored TEXT NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL, UNIQUE (case_id, name)
    );
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY, case_id TEXT NOT NULL REFERENCES cases(id) ON DELETE CASCADE, kind TEXT NOT NULL,
        lane TEXT NOT NULL, arguments TEXT NOT NULL, state TEXT NOT NULL, worker TEXT NOT NULL,
        attempts INTEGER NOT NULL, done INTEGER NOT NULL, total INTEGER NOT NULL, message TEXT NOT NULL,
        created REAL NOT NULL, started REAL, finished REAL
    );
    CREATE INDEX waiting_jobs ON jobs (state, lane, id);
    CREATE INDEX jobs_of_case ON jobs (case_id);
    CREATE TABLE revisions (
        case_id TEXT NOT NULL REFERENCES cases(id) ON DELETE CASCADE, number INTEGER NOT NULL, edits TEXT NOT NULL,
        folder TEXT NOT NULL, created REAL NOT NULL, PRIMARY KEY (case_id, number)
    );
    """,
    """
    ALTER TABLE cases ADD COLUMN study TEXT;
    ALTER TABLE cases ADD COLUMN arrived REAL;
    ALTER TABLE cases ADD COLUMN looked REAL;
    ALTER TABLE files ADD COLUMN sop TEXT;
    CREATE INDEX cases_by_study ON cases (study);
    CREATE UNIQUE INDEX files_by_sop ON files (case_id, sop);
    CREATE TABLE outbox (
        id INTEGER PRIMARY KEY, case_id TEXT NOT NULL REFERENCES cases(id) ON DELETE CASCADE, target TEXT NOT NULL,
        path TEXT NOT NULL, sop_class TEXT NOT NULL, sop TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL,
        next REAL NOT NULL, transaction_uid TEXT NOT NULL, message TEXT NOT NULL, changed REAL NOT NULL,
        UNIQUE (target, sop)
    );
    """,
)


class Store:
    """The store in `folder`; made if it is not there, upgraded if it is old."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        private_folder(folder)
        self.path = folder / NAME
        self._local = threading.local()
        self._upgrade()

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = sqlite3.connect(self.path, timeout=WAIT_SECONDS, isolation_level=None)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")
            connection.execute("PRAGMA secure_delete=ON")  # what a case was called is gone with the case
            self._local.connection = connection
        return connection

    def close(self) -> None:
        """Closes the connection of this thread."""
        if (connection := getattr(self._local, "connection", None)) is not None:
            connection.close()
            del self._local.connection

    def read(self, query: str, *values: Any) -> list[sqlite3.Row]:
        return self._connection().execute(query, values).fetchall()

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or nothing, durable at the end."""
        connection = self._connection()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def data_version(self) -> int:
        """A number that changes whenever another connection wrote something."""
        return int(self._connection().execute("PRAGMA data_version").fetchone()[0])

    def case_folder(self, case: str) -> Path:
        return self.folder / "cases" / case

    def _upgrade(self) -> None:
        """Applies the steps that this store has not seen, each in a transaction of its own."""
        try:
            (found,) = self._connection().execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            raise OutputError(
                f"{shown(self.path)} is no store of veloxseg ({error}); restore it from a copy, or choose another -o"
            ) from error
        if found > len(UPGRADES):
            raise OutputError(
                f"{shown(self.path)} has version {found}, this program knows {len(UPGRADES)}; install a newer veloxseg"
            )
        for version in range(found, len(UPGRADES)):
            with self.write() as connection:
                for statement in UPGRADES[version].split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={version + 1}")
        os.chmod(self.path, 0o600)
        private_folder(self.folder / "cases")


def private_folder(folder: Path) -> None:
    """Makes a folder that only its owner can look into; an existing one is closed to others too."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError as error:
        raise OutputError(
            f"cannot write in {shown(folder)}: {error.strerror or error}; choose another folder with -o"
        ) from error
