"""Log lines: JSON on standard error, one event each, without patients, names of files, or paths.

Only numbers and words of ours are logged: ids of cases and jobs, kinds, states, counts, seconds.
"""

import json
import sys
import time

from veloxseg.console import outliving_the_terminal

__all__ = ["log"]


def log(event: str, **facts: str | int | float | None) -> None:
    """One line, such as {"time": "2026-11-18T04:00:00Z", "event": "job ended", "seconds": 1.5}."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    with outliving_the_terminal():
        print(json.dumps({"time": now, "event": event, **facts}), file=sys.stderr, flush=True)
