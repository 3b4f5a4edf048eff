"""What an attack is, and the one judge of all of them.

An attack tells the program one lie. It has held if the program did its work and left the inputs as they were, or if it
refused in one line of its own and left no output. A judge that is the same for all keeps a generator to a few lines.
"""

import contextlib
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from veloxseg.errors import VeloxSegError
from veloxseg.files import sha256

LONGEST_LINE = 1200  # paths are long; a header that is printed whole is longer


def nothing_wrong() -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One lie and how it is told."""

    told: str  # the lie in words
    act: Callable[[], object]  # calls the program; what it returns is an exit code if it is a number
    inputs: tuple[Path, ...] = ()  # files and folders that stay as they are
    output: Path | None = None  # a file or folder of which nothing is left after a refusal
    wrong: Callable[[], str] = nothing_wrong  # says what is wrong with the result of a success, or nothing
    tries: int = 1  # how many lies, kills or flips it counts for


@dataclass(frozen=True)
class Verdict:
    """`outcome` is done or refused; `failure` says why the attack has not held, and is empty if it has."""

    outcome: str
    failure: str = ""


def veloxseg(*arguments: object) -> Callable[[], int]:
    """The command `veloxseg`, run in this process."""

    def act() -> int:
        from veloxseg.cli import main

        try:
            return main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse's own refusals
            return end.code if isinstance(end.code, int) else 1

    return act


def judge(attack: Attack) -> Verdict:
    before = [contents(path) for path in attack.inputs]
    raised: BaseException | None = None
    code: object = 0
    with said_to_stderr() as said, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, as on the command line
        try:
            code = attack.act()
        except Exception as error:
            raised = error
    refused = isinstance(raised, VeloxSegError) or (raised is None and code == 2)
    failure = (
        _bad_end(raised, code)
        or _bad_words(said[0], raised)
        or _changed(attack, before)
        or (_left(attack) if refused else attack.wrong())
    )
    return Verdict("refused" if refused else "done", failure)


def contents(path: Path) -> dict[str, str]:
    """The hash of each file below `path`."""
    files = [path] if path.is_file() else [part for part in sorted(path.rglob("*")) if part.is_file()]
    return {str(part): sha256(part) for part in files}


@contextlib.contextmanager
def said_to_stderr() -> Iterator[list[str]]:
    """What is written to standard output and error meanwhile, below Python too; error's is given at the end."""
    said = [""]
    out, into = os.pipe()  # a pipe and not a file, since some attacks forbid files to grow

    def read() -> None:
        with open(out, "rb") as pipe:
            said[0] = pipe.read().decode(errors="replace")

    reader = threading.Thread(target=read)
    reader.start()
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    os.dup2(into, 2)
    os.close(into)
    try:
        yield said
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, handle in enumerate(kept, start=1):
            os.dup2(handle, number)
            os.close(handle)
        reader.join()


def _bad_end(raised: BaseException | None, code: object) -> str:
    if raised is not None and not isinstance(raised, VeloxSegError):
        return "not an error of ours: " + "".join(traceback.format_exception(raised)[-6:])
    if isinstance(code, int) and not isinstance(code, bool) and code not in (0, 2):
        return f"exit code {code}"
    return ""


def _bad_words(said: str, raised: BaseException | None) -> str:
    lines = said.splitlines() if raised is None else [*said.splitlines(), *str(raised).split("\n")]
    if "internal error" in said or "Traceback" in said:
        return said[-2000:]
    if raised is not None and ("\n" in str(raised) or len(str(raised)) > LONGEST_LINE):
        return f"not one line: {str(raised)[:2000]}"
    if long := [line for line in lines if len(line) > LONGEST_LINE]:
        return f"a line of {len(long[0])} characters: {long[0][:300]}"
    return ""


def _changed(attack: Attack, before: list[dict[str, str]]) -> str:
    for path, hashes in zip(attack.inputs, before, strict=True):
        if (now := contents(path)) != hashes:
            return f"the input {path} has changed: {sorted(set(hashes.items()) ^ set(now.items()))[:4]}"
    return ""


def _left(attack: Attack) -> str:
    left = sorted(contents(attack.output)) if attack.output is not None and attack.output.exists() else []
    return f"a refusal left {left[:4]}" if left else ""
