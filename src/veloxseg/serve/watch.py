"""Who watches: one look at the store for all open pages, which are told what changed (server-sent events)."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

from veloxseg.serve.cases import describe
from veloxseg.serve.logs import log
from veloxseg.serve.store import Store

__all__ = ["Watch"]

SECONDS = 0.4  # between looks
HEARTBEAT_SECONDS = 15.0  # proxies close a silent connection


class Watch:
    """The cases as they are now; `events` follows them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.cases: dict[str, dict[str, Any]] = {}
        self.texts: dict[str, str] = {}  # the same as JSON, made once for all who watch
        self.stopped = False
        self._round, self._changed = 0, asyncio.Condition()

    async def run(self) -> None:
        """Looks again whenever another connection wrote something."""
        seen = -1
        while not self.stopped:
            try:
                if (version := self.store.data_version()) != seen:
                    await asyncio.to_thread(self.look)  # a hundred cases take a while
                    seen = version
                    await self._wake()
            except sqlite3.Error as error:  # the next look must come
                log("internal error", kind=type(error).__name__, part="watch")
            await asyncio.sleep(SECONDS)

    async def stop(self) -> None:
        self.stopped = True
        await self._wake()

    async def _wake(self) -> None:
        async with self._changed:
            self._round += 1
            self._changed.notify_all()

    def look(self) -> None:
        rows = self.store.read("SELECT * FROM cases ORDER BY created DESC")
        cases, texts = {}, {}
        for row in rows:
            case = row["id"]
            known = self.cases.get(case)
            waits = row["state"] == "waiting"  # its place in line changes without it
            if known is not None and known["version"] == row["version"] and not waits:
                cases[case], texts[case] = known, self.texts[case]
            else:
                cases[case] = describe(self.store, row)
                texts[case] = json.dumps(cases[case])
        self.cases, self.texts = cases, texts

    async def events(self) -> AsyncIterator[str]:
        """First all cases, then each that changes or goes."""
        told: dict[str, str] = {}
        while not self.stopped:
            now = self.texts
            for case in told.keys() - now.keys():
                yield f"event: removed\ndata: {json.dumps({'id': case})}\n\n"
            for case, text in now.items():
                if told.get(case) != text:
                    yield f"event: case\ndata: {text}\n\n"
            told, before = now, self._round
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS), self._changed:
                    await self._changed.wait_for(lambda before=before: self._round != before)  # type: ignore[misc]
            except TimeoutError:
                yield ": still here\n\n"
