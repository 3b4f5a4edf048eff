"""`/metrics`: the state of the server as Prometheus text; numbers only."""

import shutil
from typing import Any

from veloxseg.machine import rss_mb
from veloxseg.serve.states import STATES
from veloxseg.serve.store import Store

__all__ = ["metrics_text"]


def metrics_text(store: Store, numbers: dict[str, float]) -> str:
    """Counts of cases and jobs from the store, and what the server counted itself."""
    lines: list[str] = []

    def add(name: str, kind: str, text: str, values: dict[str, float]) -> None:
        lines.extend((f"# HELP veloxseg_{name} {text}", f"# TYPE veloxseg_{name} {kind}"))
        lines.extend(f"veloxseg_{name}{labels} {value:g}" for labels, value in values.items())

    counts = {row["state"]: row["n"] for row in _rows(store, "SELECT state, COUNT(*) AS n FROM cases GROUP BY state")}
    add("cases", "gauge", "Cases by state.", {f'{{state="{state}"}}': counts.get(state, 0) for state in STATES})
    jobs = _rows(store, "SELECT kind, state, COUNT(*) AS n FROM jobs GROUP BY kind, state")
    found = {f'{{kind="{row["kind"]}",state="{row["state"]}"}}': row["n"] for row in jobs}
    add("jobs", "gauge", "Jobs of the cases that are kept, by kind and state.", found)
    spent = _rows(store, "SELECT kind, SUM(finished - started) AS s FROM jobs WHERE state = 'done' GROUP BY kind")
    add("job_seconds", "gauge", "Seconds spent on these jobs.", {f'{{kind="{r["kind"]}"}}': r["s"] for r in spent})
    waiting = _rows(store, "SELECT COUNT(*) AS n FROM outbox WHERE state NOT IN ('sent', 'committed', 'failed')")
    add("outbox_waiting", "gauge", "DICOM objects that are still to be sent.", {"": waiting[0]["n"]})
    add("disk_free_bytes", "gauge", "Free space for the store.", {"": shutil.disk_usage(store.folder).free})
    add("memory_bytes", "gauge", "Memory of the server process.", {"": (rss_mb() or 0) * 2**20})
    for name, value in numbers.items():
        add(name, "counter" if name.endswith("_total") else "gauge", name.replace("_", " ") + ".", {"": value})
    return "\n".join(lines) + "\n"


def _rows(store: Store, query: str) -> list[Any]:
    return store.read(query)
