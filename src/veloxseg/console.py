"""What the user sees while the program works: rich progress on a terminal, plain lines elsewhere.

A terminal that was closed, or a pipe that nobody reads any more, never stops the work: what would be said is dropped.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

__all__ = ["is_quiet", "outliving_the_terminal", "progress", "say", "set_quiet", "warn"]

T = TypeVar("T")
_quiet = False


def set_quiet(quiet: bool) -> None:
    """`--quiet`: only warnings and errors are printed."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    return _quiet


def say(text: str = "") -> None:
    """A line for the user, on standard output."""
    if not _quiet:
        with outliving_the_terminal():
            print(text, flush=True)


def warn(text: str) -> None:
    """A warning, on standard error; never silenced."""
    with outliving_the_terminal():
        print(f"warning: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def outliving_the_terminal() -> Iterator[None]:
    """Around what is shown to the user: an output whose terminal or reader is gone leads nowhere from then on."""
    try:
        yield
    except OSError:  # EIO of a closed terminal, EPIPE of a closed pipe, ENOSPC of a log file
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
                    os.dup2(nowhere.fileno(), stream.fileno())


def progress(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """Passes `items` on, with a live bar on a terminal and a line every few seconds elsewhere."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    if _quiet:
        yield from items
    elif sys.stdout.isatty():
        from rich.progress import track

        yield from track(items, description=title, total=total)
    else:
        said = time.monotonic()
        for index, item in enumerate(items):
            yield item
            if time.monotonic() - said > 5 or index + 1 == total:
                said = time.monotonic()
                say(f"{title}: {index + 1}" + (f" of {total}" if total else ""))
