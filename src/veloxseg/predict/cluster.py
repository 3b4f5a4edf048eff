"""A folder of cases over a Ray cluster: the same files as on one machine, written by the workers themselves.

    cases to do → Ray Dataset of one case per block → pool of workers, a model opened in each → one report per case

Nothing but names and messages travels through Ray, so all nodes need to see the same folders; every node is asked
before the start. A worker that dies is started again where there is room, and its case with it; a case that loses
its worker every time is a failure like any other.
"""

import contextlib
import io
import logging
import os
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veloxseg import __version__
from veloxseg.console import progress, say, warn
from veloxseg.errors import ClusterError, VeloxSegError
from veloxseg.extras import require
from veloxseg.files import writable_folder
from veloxseg.predict.batch import Wanted, describe, largest_estimate, plan_cases, predict_planned, reason
from veloxseg.predict.inputs import InputCase
from veloxseg.predict.outputs import Targets
from veloxseg.predict.predictor import Options, Predictor

__all__ = ["Job", "ask_nodes", "connected", "predict_on_cluster", "quiet_ray", "room"]

ATTEMPTS = 3  # of a case whose worker dies: a node is lost by chance, but hardly three times with one case


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every worker is told. Paths are absolute: a worker starts in a folder of its own."""

    models: tuple[Path, ...]
    runtime: str
    threads: int
    options: Options
    output: Path
    wanted: Wanted

    def open(self) -> Predictor:
        return Predictor(self.models, runtime=self.runtime, threads=self.threads, options=self.options)


def predict_on_cluster(address: str, job: Job, cases: Sequence[InputCase]) -> dict[str, str]:
    """Predicts every case as `predict_cases` does; returns case → message of those that failed."""
    ray = quiet_ray()
    writable_folder(job.output)
    predictor = job.open()
    expected = largest_estimate(predictor, cases)
    say(describe(predictor, cases, expected))
    cases = [replace(case, images={n: path.absolute() for n, path in case.images.items()}) for case in cases]
    todo, failures = plan_cases(predictor, cases, job.output, job.wanted)
    if not todo:
        return failures
    gib = min(expected.gib if expected else 0.0, job.options.max_ram or float("inf"))
    failures |= {case.name: "Ray lost it; start again to try once more" for case, _ in todo}
    with connected(ray, address):
        alive = [node for node in ray.nodes() if node["Alive"]]
        workers = min(room(alive, job.threads, gib), len(todo))
        nodes = [node for node in alive if node["Resources"].get("CPU", 0) >= job.threads]
        seen = [path for case, _ in todo[:1] for path in case.images.values() if path.exists()]
        ask_nodes(ray, nodes, job, predictor.runtime.name, [*job.models, *seen])
        say(f"Ray: {workers} workers on {len(nodes)} nodes")
        for report in progress(_reports(ray, job, todo, workers, gib), "cases", len(todo)):
            if report["said"]:
                say(report["said"].rstrip())
            sys.stderr.write(report["warned"])
            failures[report["case"]] = report["failure"]
            if report["failure"]:
                warn(f"{report['case']}: {report['failure']}")
    return {name: message for name, message in failures.items() if message}


class Ledger:
    """Counts how often each case was begun. It outlives the workers: Ray would repeat a fatal case for ever."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()

    def begin(self, name: str) -> int:
        self.begun[name] += 1
        return self.begun[name]


class Worker:
    """An opened model on some node. It writes the results itself and reports what it would have printed."""

    def __init__(self, job: Job, ledger: Any) -> None:
        self.job, self.ledger, self.predictor = job, ledger, job.open()

    def __call__(self, row: dict[str, Any]) -> dict[str, str]:
        case, target, failure = row["case"], row["target"], ""
        with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(io.StringIO()) as warned:
            try:
                self.predict(case, target)
            except Exception as error:
                failure = reason(error)
        return {"case": case.name, "said": said.getvalue(), "warned": warned.getvalue(), "failure": failure}

    def predict(self, case: InputCase, target: Targets) -> None:
        import ray

        if ray.get(self.ledger.begin.remote(case.name)) > ATTEMPTS:
            raise ClusterError(
                f"its worker died {ATTEMPTS} times; if that was for lack of memory, use --max-ram or larger nodes"
            )
        predict_planned(self.predictor, case, target)


def _reports(
    ray: Any, job: Job, cases: Sequence[tuple[InputCase, Targets]], workers: int, gib: float
) -> Iterable[dict[str, str]]:
    """The reports, in the order in which they come."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False
    context.max_errored_blocks = -1  # a case that Ray itself fails at does not end the others
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    here = _on_node(ray.get_runtime_context().get_node_id())
    ledger = ray.remote(num_cpus=0)(Ledger).options(scheduling_strategy=here).remote()
    items = [{"case": case, "target": target} for case, target in cases]
    return (
        ray.data.from_items(items, override_num_blocks=len(items))
        .map(
            Worker,
            fn_constructor_args=(job, ledger),
            # one case at a time, so that none waits behind a long one while another worker has nothing to do
            compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
            num_cpus=job.threads,
            memory=int(gib * (1 << 30)),
        )
        .iter_rows()
    )


@contextlib.contextmanager
def connected(ray: Any, address: str) -> Iterator[None]:
    try:
        host, colon, port = address.rpartition(":")
        if colon and port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        with no_standard_error():  # it says there, below Python, that it read RAY_BACKEND_LOG_LEVEL
            ray.init(address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # of many types, by what is wrong
        raise ClusterError(
            f"no Ray cluster to be had at {address!r} ({_first_line(error)}); check that `ray status` works on its "
            "head node, or compute on this machine with --ray local"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def room(nodes: Sequence[dict[str, Any]], threads: int, gib: float) -> int:
    """How many workers fit on the nodes, by cores and by the memory that a case is estimated to need."""
    sizes = [(node["Resources"].get("CPU", 0.0), node["Resources"].get("memory", 0.0) / (1 << 30)) for node in nodes]
    room = sum(int(min(cores // threads, memory // gib if gib else cores)) for cores, memory in sizes)
    if room == 0:
        found = ", ".join(f"{cores:g} cores and {memory:.1f} GiB" for cores, memory in sizes)
        raise ClusterError(
            f"a worker needs {threads} cores and {gib:.1f} GiB, and no node has both (found {found}); "
            "use fewer --threads, --max-ram, or a larger node"
        )
    return room


def ask_nodes(ray: Any, nodes: Sequence[dict[str, Any]], job: Job, runtime: str, seen: list[Path]) -> None:
    """Every node opens the model and looks at the folders, before any computes."""
    with tempfile.NamedTemporaryFile(dir=job.output, prefix=".part-") as mark:
        answers = []  # all are asked before the first is waited for
        for node in nodes:
            task = ray.remote(num_cpus=0)(_trouble).options(scheduling_strategy=_on_node(node["NodeID"]))
            answers.append(task.remote(job, runtime, seen, Path(mark.name), __version__))
        for node, answer in zip(nodes, answers, strict=True):
            try:
                trouble = ray.get(answer)
            except ray.exceptions.RayError as error:
                trouble = f"cannot start a worker ({_first_line(error)}); install veloxseg[ray] there"
            if trouble:
                raise ClusterError(f"node {node['NodeName']} {trouble}")


def _trouble(job: Job, runtime: str, seen: list[Path], mark: Path, version: str) -> str:
    """Why a worker on this node could not do what the one who asks can do; empty if it could."""
    if version != __version__:
        return f"has veloxseg {__version__}, and {version} is expected; install the same version on all nodes"
    for path in seen:
        if not path.exists():
            return f"does not see {path}; put models and scans on a file system that all nodes share"
    if not mark.exists():
        return f"does not see what is written in {job.output}; choose a folder that all nodes share with -o"
    try:
        writable_folder(job.output)
        found = job.open().runtime.name
    except VeloxSegError as error:
        return f"cannot do its work: {error}"
    if found != runtime:
        return f"would compute by {found}, and {runtime} is expected; install the same packages on all nodes"
    return ""


def _on_node(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def quiet_ray() -> Any:
    """ray with ray.data. It reads these variables when imported, and hands them to a cluster that it starts."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it would report usage over the network
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # of the part that is not Python
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")  # news of other processes
    require("ray", "--ray")
    import ray
    import ray.data

    return ray


@contextlib.contextmanager
def no_standard_error() -> Iterator[None]:
    """Standard error goes nowhere for a while, also what is written there by code that is not Python."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
