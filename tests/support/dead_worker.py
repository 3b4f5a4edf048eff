"""A loader whose worker does not answer, in a process of its own: `python dead_worker.py PREPARED killed|untold|stuck`.

killed: the worker dies; untold: it dies before torch has noted its process; stuck: it hangs, with a limit of half a
second. torch tells of a death by an exception in a signal handler, wherever the process is at that moment: in pytest's
own process that may be in the middle of pytest-xdist, which then loses a whole process of tests. Printed are the
seconds until the error, and its words; where there is none, or another one, the exit code is not 0.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from torch.utils.data._utils import signal_handling

from veloxseg.errors import DatasetError
from veloxseg.prepare.store import Prepared
from veloxseg.train import patches

PATCH = (16, 16, 8)


class Deadly(patches.PatchDataset):
    def __getitem__(self, address: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}


class Stuck(patches.PatchDataset):
    def __getitem__(self, address: Any) -> dict[str, Any]:
        time.sleep(120)
        return {}


def main(folder: str, fate: str) -> None:
    prepared = Prepared.open(Path(folder))
    if fate == "untold":
        register = signal_handling._set_worker_pids
        signal_handling._set_worker_pids = lambda key, pids: register(key, ())
    if fate == "stuck":
        patches.WORKER_TIMEOUT = 0.5
    dataset = (Stuck if fate == "stuck" else Deadly)(prepared, [c.name for c in prepared.cases], PATCH, 0, 8)
    began = time.monotonic()
    try:
        list(patches.patch_loader(dataset, 4, 1))
    except DatasetError as error:
        print(f"{time.monotonic() - began:.1f} {error}")
    else:
        sys.exit("the loader ended without an error")


if __name__ == "__main__":
    main(*sys.argv[1:])
