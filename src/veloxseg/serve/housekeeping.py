"""What a server does by the clock: results that are old enough are deleted."""

import asyncio
import sqlite3
import time
from typing import TYPE_CHECKING

from veloxseg.serve.cases import remove
from veloxseg.serve.logs import log

if TYPE_CHECKING:
    from veloxseg.serve.server import Server

__all__ = ["delete_old", "keep_house"]

SECONDS = 600.0  # between rounds
DAY = 86_400.0


async def keep_house(server: "Server") -> None:
    while True:
        try:
            await asyncio.to_thread(delete_old, server)
        except (OSError, sqlite3.Error) as error:  # the next round must come
            log("internal error", kind=type(error).__name__, part="housekeeping")
        await asyncio.sleep(SECONDS)


def delete_old(server: "Server") -> int:
    """Deletes cases that nothing happened to for so many days, whatever their state; 0 days: never."""
    if server.settings.keep_days <= 0:
        return 0
    limit = time.time() - server.settings.keep_days * DAY
    old = server.store.read("SELECT id FROM cases WHERE changed < ? AND state NOT IN ('waiting', 'running')", limit)
    for row in old:
        remove(server.store, row["id"])
        log("case deleted by age", case=row["id"])
    return len(old)
