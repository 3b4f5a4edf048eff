"""A connection that does not say what it wants within a while is closed; uvicorn alone would wait forever."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["PatientProtocol"]

SECONDS = 20.0  # for a whole request head


class PatientProtocol(H11Protocol):  # type: ignore[misc]
    """uvicorn's protocol, with a clock that runs while a request head is incomplete."""

    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wind()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wind()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _wind(self) -> None:
        """Starts the clock where a head is awaited, stops it where one has come."""
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._clock is None:
            self._clock = self.loop.call_later(SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _give_up(self) -> None:
        self._clock = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.transport.close()
