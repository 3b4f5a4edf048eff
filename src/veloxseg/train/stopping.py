"""SIGTERM and Ctrl-C become a wish that the loop grants after its step; a second Ctrl-C stops at once."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

__all__ = ["Stop", "Stopped", "stop_on_signals"]


@dataclass
class Stop:
    """Whether the user, or the machine's queue, wants the training to end."""

    wanted: bool = False


class Stopped(Exception):
    """Training ended early at the user's wish; everything is saved. The message says how to go on."""


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    stop = Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.wanted and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.wanted = True

    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
