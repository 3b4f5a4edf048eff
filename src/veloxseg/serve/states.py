"""The states that a case goes through.

    receiving → reading → waiting → running → done
                   ├→ choose       several scans could be meant, or the user asked to confirm: never guessed
                   ├→ incomplete   a modality that the model needs is missing
                   └→ failed       one line says why

A new file, or a new choice, leads from any of the last states back into the line.
"""

import sqlite3
import time
from typing import Any

__all__ = ["BUSY", "STATES", "set_state", "touch"]

STATES = ("receiving", "reading", "choose", "incomplete", "waiting", "running", "done", "failed")
BUSY = ("receiving", "reading", "waiting", "running")  # what counts towards the limit of the queue


def set_state(connection: sqlite3.Connection, case: str, state: str, message: str = "", **columns: Any) -> None:
    """Moves a case on, within a transaction; further columns are set too."""
    assert state in STATES, state
    values = {"state": state, "message": message, "changed": time.time(), **columns}
    names = ", ".join(f"{name} = ?" for name in values)
    connection.execute(f"UPDATE cases SET {names}, version = version + 1 WHERE id = ?", (*values.values(), case))


def touch(connection: sqlite3.Connection, case: str) -> None:
    """Something about the case changed: watchers and ETags notice."""
    connection.execute("UPDATE cases SET version = version + 1, changed = ? WHERE id = ?", (time.time(), case))
