"""Trains, is killed, and trains on, many times over: `python killing.py PREPARED RUN KILLS SEED`.

Each life is a fork of this process, which has imported everything but never trained. A life counts the moments at
which it could die (before a step, before and after syncing and renaming, amid writing a file) and dies by
SIGKILL at one drawn beforehand. At the end it trains undisturbed. Prints where it was killed, as JSON.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401 — so that it is not imported in every life
import safetensors.torch  # noqa: F401
from tiny_training import TINY

from veloxseg.console import set_quiet
from veloxseg.model.config import PRESETS
from veloxseg.train import loop
from veloxseg.train.display import Display

SETTINGS = {
    "model": "tiny",
    "batch": 2,
    "epochs": 12,
    "warmup_epochs": 1,
    "validate_every": 3,
    "overlap": 0,
    "save_seconds": 0,
    "ema": 0.9,
    "threads": 1,
}


def live(prepared: str, run: str, kind: str, moments: int | None, report: int) -> None:
    """One life; with `moments` it dies at the last of so many that have `kind` in their name."""
    left = [moments]

    def moment(name: str) -> None:
        if left[0] is not None and kind in name:
            left[0] -= 1
            if left[0] <= 0:
                os.write(report, name.encode())
                os.kill(os.getpid(), signal.SIGKILL)

    def around(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **more: Any) -> Any:
            moment(f"before {name}")
            result = function(*arguments, **more)
            moment(f"after {name}")
            return result

        return wrapped

    def write_bytes(path: Path, data: bytes) -> int:
        with open(path, "wb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            moment("amid write")
            file.write(data[len(data) // 2 :])
        return len(data)

    os.fsync, os.replace = around(os.fsync, "fsync"), around(os.replace, "rename")
    Path.write_bytes = write_bytes  # type: ignore[method-assign,assignment]
    loop.train_step = around(loop.train_step, "step")
    loop.validate = around(loop.validate, "validation")
    loop.train(prepared, run, SETTINGS, resume=True)


def main() -> None:
    prepared, run, kills, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    PRESETS["tiny"] = TINY
    set_quiet(True)
    Display.draw = lambda *_: None  # type: ignore[method-assign,assignment]
    Display._tensorboard = lambda *_: None  # type: ignore[method-assign,assignment]
    chance, deaths = random.Random(seed), []
    while True:
        kind, most = chance.choice([("", 26), ("", 26), ("amid write", 3), ("rename", 8)])
        moments = chance.randint(1, most) if len(deaths) < kills else None
        out, report = os.pipe()
        if (child := os.fork()) == 0:
            try:
                live(prepared, run, kind, moments, report)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        os.close(report)
        where = os.read(out, 100).decode()
        os.close(out)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status):
                sys.exit("a life ended with an error")
            break
        deaths.append(where)
    print(json.dumps(deaths))


if __name__ == "__main__":
    main()
