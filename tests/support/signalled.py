"""Trains and gets a signal during the third step: `python signalled.py PREPARED RUN SETTINGS NUMBER`.

A process of its own, since only a main thread receives signals, and a test runner may run tests in another one.
Prints the words with which the training stopped, and whether the signal's usual effect is back, as JSON.
"""

import json
import signal
import sys
from typing import Any

from tiny_training import TINY

from veloxseg.model.config import PRESETS
from veloxseg.train import loop
from veloxseg.train.engine import Stopped


def main() -> None:
    prepared, run, settings, number = sys.argv[1:]
    PRESETS["tiny"] = TINY
    original, count = loop.train_step, 0

    def step(*arguments: Any) -> float:
        nonlocal count
        count += 1
        if count == 3:
            signal.raise_signal(int(number))
        return original(*arguments)

    loop.train_step = step
    try:
        loop.train(prepared, run, json.loads(settings))
    except Stopped as stopped:
        restored = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        print(json.dumps({"words": str(stopped), "restored": restored}))


if __name__ == "__main__":
    main()
