"""What the user sees while the program works: a bar on a terminal where rich is installed, plain lines elsewhere, and a
log of both.

A terminal that was closed, or a pipe that nobody reads any more, never stops the work: what would be said is dropped.
"""

import contextlib
import datetime
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from pathlib import Path
from typing import IO, TypeVar

from veloxseg.extras import without

__all__ = ["is_quiet", "logged", "outliving_the_terminal", "progress", "say", "set_quiet", "warn", "write_log"]

T = TypeVar("T")
_quiet = False
_logs: list[IO[str]] = []


def set_quiet(quiet: bool) -> None:
    """`--quiet`: only warnings and errors are printed."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    return _quiet


def say(text: str = "") -> None:
    """A line for the user, on standard output."""
    write_log(text)
    if not _quiet:
        with outliving_the_terminal():
            print(text, flush=True)


def warn(text: str) -> None:
    """A warning, on standard error; never silenced."""
    write_log(f"warning: {text}")
    with outliving_the_terminal():
        print(f"warning: {text}", file=sys.stderr, flush=True)


def write_log(text: str) -> None:
    """A line of the logs that are open; what cannot be written is not worth the work."""
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S")
    for log in _logs:
        with contextlib.suppress(OSError, ValueError):
            log.write(f"{moment} {text}\n")
            log.flush()


@contextlib.contextmanager
def logged(path: Path) -> Iterator[None]:
    """Within it, all that is said is also added to a file, with times (UTC), and so is the error that ends it."""
    with contextlib.ExitStack() as opened:
        try:
            _logs.append(opened.enter_context(open(path, "a", encoding="utf-8", errors="backslashreplace")))
        except OSError as error:
            warn(f"{path} cannot be written ({error.strerror}); the work goes on without it")
            yield
            return
        try:
            yield
        except BaseException as error:
            write_log(f"ended by {type(error).__name__}: {error}".rstrip(": "))
            raise
        finally:
            _logs.pop()


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
    elif sys.stdout.isatty() and not without("rich"):
        from rich.progress import track

        yield from track(items, description=title, total=total)
    else:
        said = time.monotonic()
        for index, item in enumerate(items):
            yield item
            if time.monotonic() - said > 5 or index + 1 == total:
                said = time.monotonic()
                say(f"{title}: {index + 1}" + (f" of {total}" if total else ""))
