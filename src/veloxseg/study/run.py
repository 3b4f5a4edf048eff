"""A study: every row × seed × fold trained, as many at a time as there are cores, and the table of what came out.

    STUDY/study.json        what was asked for
    STUDY/labels/           the labels on the prepared grid, with a dataset.json: `evaluate -l STUDY/labels` takes them
    STUDY/runs/ROW/…        one folder for each training (worker.py)
    STUDY/table.md, table.json, figure.png, report.html

Each training is a process with one thread, so that memory and time are its own. A study that was stopped or killed goes
on where it was when the same command is given again; with other --rows, --seeds or --folds it grows. Another length or
other settings are refused, as a table would mix trainings that cannot be compared.
"""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from veloxseg.console import say, warn
from veloxseg.dataset.layouts.brats import nested_regions
from veloxseg.errors import ConfigError, DatasetError, VeloxSegError, shown
from veloxseg.files import claimed, digest, read_json, writable_folder, write_json
from veloxseg.image import Volume, write
from veloxseg.machine import allowed_cores
from veloxseg.prepare.store import Prepared
from veloxseg.study.page import write_pages
from veloxseg.study.table import Row, Table, choose_rows
from veloxseg.study.tables import find_table
from veloxseg.study.worker import Job, failure_of, run_job
from veloxseg.train.folds import choose_folds
from veloxseg.train.recipe import network_settings, trained_plan
from veloxseg.train.run_folder import data_hash
from veloxseg.train.settings import make_recipe, setting_text

__all__ = ["Request", "run_study", "settings_of", "steps_settings"]

FORMAT = 1
ALIKE = ("steps", "minutes", "settings")  # what every training of a study shares
MOST_EPOCHS = 30  # of a training whose steps are given: enough for the warm-up to be a part of it
WARMUP = 1 / 30  # of a training, as the paper's 10 of 300 epochs
STOP_SECONDS = 120.0  # for trainings to save when the study is stopped


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the user asked for."""

    table: str  # a name, or a TOML file
    prepared: Path
    output: Path
    rows: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    folds: tuple[str, ...] = ()
    steps: int | None = None
    minutes: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)  # of every row
    external: Path | None = None
    workers: int | None = None  # None: one for each core; 0: in this process, one after the other


def run_study(request: Request) -> tuple[Path, dict[str, str]]:
    """Trains what is not done, writes the tables; returns the report's path and job → message of those that failed."""
    prepared = Prepared.open(request.prepared)
    table = choose_rows(find_table(request.table, prepared.plan.names), request.rows)
    jobs = plan_jobs(request, table, prepared)
    writable_folder(request.output)
    with claimed(request.output):
        check_same_study(request, table, prepared)
        write_labels(prepared, sorted({case for job in jobs for case in job.cases}), request.output / "labels")
        failures: dict[str, str] = {}
        for wave in ([j for j in jobs if j.prune is None], [j for j in jobs if j.prune is not None]):
            ready = [job for job in wave if not _lacks_its_first(job, failures)]
            failures |= run_jobs(ready, len(allowed_cores()) if request.workers is None else request.workers)
        whole = find_table(request.table, prepared.plan.names)
        return write_pages(whole, request.output, command=_command(request)), failures


# -- what is to be done ----------------------------------------------------------------------------------------------


def plan_jobs(request: Request, table: Table, prepared: Prepared) -> list[Job]:
    """Every training of the study; settings that cannot work are refused before the first one begins."""
    if request.steps is not None and request.minutes is not None:
        raise ConfigError("--steps and --minutes are both given; give one")
    jobs = []
    folds: list[int | None] = [*choose_folds(prepared, request.folds)] if request.folds else [None]
    for row in table.rows:
        for seed in request.seeds:
            for fold in folds:
                settings = settings_of(request, table, row, seed, fold)
                split = prepared.split(fold)
                cases = split.test if fold is None else split.validation
                if not cases:
                    raise DatasetError(f"{request.prepared} has no test case; give --folds all, or prepare more cases")
                folder = run_folder(request.output, row.name, seed, fold)
                job = Job(
                    row=row.name,
                    seed=seed,
                    fold=fold,
                    prepared=str(request.prepared.resolve()),
                    folder=str(folder.resolve()),
                    labels=str((request.output / "labels").resolve()),
                    settings=settings,
                    cases=tuple(cases),
                    external=None if request.external is None else str(request.external.resolve()),
                    prune=_pruning(request, table, row, seed, fold, prepared),
                )
                jobs.append(job)
        _check_network(table, row, jobs[-1].settings, prepared)
    return jobs


def run_folder(study: Path, row: str, seed: int, fold: int | None) -> Path:
    return study / "runs" / row / (f"seed{seed}" if fold is None else f"seed{seed}-fold{fold}")


def settings_of(request: Request, table: Table, row: Row, seed: int, fold: int | None) -> dict[str, Any]:
    """All settings of a training, as `train --set` takes them: the user's, on them the table's, on them the row's."""
    asked: dict[str, Any] = {"threads": 1}
    if fold is not None:
        asked |= {"select": "last", "fold": fold}
    if request.minutes is not None:
        asked["max_minutes"] = request.minutes
    if request.steps is not None:
        asked |= steps_settings(request.steps)
    settings = asked | request.settings | table.settings_of(row) | {"seed": seed}
    if fold is not None and settings.get("select") == "best":
        raise ConfigError("select=best would choose an epoch by the cases that are scored; leave it out with --folds")
    return settings


def steps_settings(steps: int) -> dict[str, Any]:
    """A training of so many steps: epochs of equal length, the last one kept, validated once and coarsely."""
    epochs = max(count for count in range(1, MOST_EPOCHS + 1) if steps % count == 0)
    return {
        "epochs": epochs,
        "steps_per_epoch": steps // epochs,
        "warmup_epochs": epochs * WARMUP,
        "validate_every": epochs,
        "overlap": 0.0,
        "select": "last",
    }


def _pruning(
    request: Request, table: Table, row: Row, seed: int, fold: int | None, prepared: Prepared
) -> dict[str, Any] | None:
    if row.prune is None:
        return None
    to: str | int = row.prune.to
    if to in {other.name for other in table.rows}:
        other = table.row(row.prune.to)
        to = _parameters(settings_of(request, table, other, seed, fold), prepared)
    first = run_folder(request.output, row.prune.of, seed, fold)
    return {"of": str((first / "run").resolve()), "what": row.prune.what, "to": to}


def _parameters(settings: dict[str, Any], prepared: Prepared) -> int:
    import torch

    from veloxseg.model.count import parameters
    from veloxseg.model_folder import build_network

    recipe = make_recipe(settings)
    with torch.device("meta"):
        return parameters(build_network(*network_settings(recipe, trained_plan(prepared.plan, recipe))))


def _check_network(table: Table, row: Row, settings: dict[str, Any], prepared: Prepared) -> None:
    try:
        recipe = make_recipe(settings)
        network_settings(recipe, trained_plan(prepared.plan, recipe))
    except VeloxSegError as error:
        raise ConfigError(f"row {row.name} of {table.name}: {error}") from error


def check_same_study(request: Request, table: Table, prepared: Prepared) -> None:
    """One folder, one table on one data set, and rows that are trained alike: else they could not be compared."""
    path = request.output / "study.json"
    about = {"format": FORMAT, "table": table.name, "data": data_hash(prepared)}
    asked = {name: getattr(request, name) for name in ("rows", "seeds", "folds", *ALIKE)}
    asked["external"] = None if request.external is None else _identity(request.external)
    if path.is_file():
        stored = read_json(path, ConfigError)
        if not isinstance(stored, dict) or {name: stored.get(name) for name in about} != about:
            raise ConfigError(f"{request.output} holds another study, or one of other data; choose another folder")
        before = stored.get("asked")
        if isinstance(before, dict) and any(request.output.glob("runs/*/*/training.json")):
            _check_alike(request.output, before, json.loads(json.dumps(asked)))
            asked["external"] = asked["external"] or before.get("external")
    write_json(path, {**about, "asked": asked, "command": _command(request)})


def _check_alike(study: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Rows, seeds and folds may be added; what every training shares stays as it was."""
    for name in ALIKE:
        if name in before and before[name] != now[name]:
            word = {"settings": "--set"}.get(name, f"--{name}")
            raise ConfigError(
                f"{study} holds trainings with {word} {_asked_text(before[name])}, and {_asked_text(now[name])} is "
                "asked for: one table would mix them; give the same again, or choose another folder"
            )
    if bool(before.get("folds")) != bool(now["folds"]):
        raise ConfigError(
            f"{study} holds trainings {'in folds' if before.get('folds') else 'on the 6:2:2 split'}, which have learnt "
            "from other cases: one table would mix them; choose another folder"
        )
    if before.get("external") and now["external"] and before["external"] != now["external"]:
        raise ConfigError(f"{study} holds masks of other external cases; give the same again, or choose another folder")


def _identity(cases: Path) -> str:
    """The same for the same files, wherever they lie: a hash of their names and sizes."""
    files = sorted(path for path in cases.rglob("*") if path.is_file()) if cases.is_dir() else [cases]
    return digest([[path.relative_to(cases).as_posix(), path.stat().st_size] for path in files])


def _asked_text(value: Any) -> str:
    """
    >>> _asked_text({"batch": 2, "crops": 1}), _asked_text(None), _asked_text(600)
    ('batch=2 crops=1', 'no value', '600')
    """
    if isinstance(value, dict):
        return shown(" ".join(f"{name}={setting_text(v)}" for name, v in value.items())) or "no value"
    return "no value" if value is None else shown(value)


def write_labels(prepared: Prepared, cases: Iterable[str], folder: Path) -> None:
    """The labels as files, on the grid and with the values of the prepared cases.

    A soft-max over the labels of BraTS (`prepare --as brats2021`) is scored by WT, TC and ET, as the paper does.
    """
    import numpy as np

    writable_folder(folder)
    plan = prepared.plan
    regions = plan.regions or nested_regions(plan.labels)
    labels: dict[str, Any] = {"background": 0}
    labels |= {name: list(values) for name, values in regions.items()} if regions is not None else {}
    labels |= {} if regions is not None else {name: v for name, v in plan.labels.items() if v}
    if plan.ignore_label is not None:
        labels = {name: value for name, value in labels.items() if value != plan.ignore_label}
        labels["ignore"] = plan.ignore_label
    write_json(folder / "dataset.json", {"labels": labels, "file_ending": ".nii.gz"})
    for case in cases:
        if not (folder / f"{case}.nii.gz").is_file():
            array = np.asarray(prepared.label(case))
            write(Volume(array=array, geometry=prepared.placement(case).network), folder / f"{case}.nii.gz")


# -- doing it --------------------------------------------------------------------------------------------------------


def run_jobs(jobs: Sequence[Job], workers: int) -> dict[str, str]:
    """Runs what is not done, `workers` at a time; job → message of those that failed, which never stop the others."""
    waiting = [job for job in jobs if not job.done]
    if len(waiting) < len(jobs):
        say(f"{len(jobs) - len(waiting)} of {len(jobs)} trainings are done already")
    failures: dict[str, str] = {}
    if workers == 0:
        for job in waiting:
            try:
                run_job(job)
            except VeloxSegError as error:
                failures[job.name] = str(error)
        return failures
    running: dict[subprocess.Popen[bytes], tuple[Job, float]] = {}
    done = len(jobs) - len(waiting)
    with _terminated_as_interrupted():
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    job = waiting.pop(0)
                    say(f"begins: {job.name}")
                    running[_start(job)] = (job, time.monotonic())
                time.sleep(0.2)
                for process in [process for process in running if process.poll() is not None]:
                    job, began = running.pop(process)
                    done += 1
                    _tell(job, process.returncode, time.monotonic() - began, f"{done} of {len(jobs)}", failures)
        except BaseException:
            _stop(running)
            raise
    return failures


def _start(job: Job) -> "subprocess.Popen[bytes]":
    folder = writable_folder(job.folder)
    order = folder / "job.json"
    write_json(order, dataclasses.asdict(job))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with open(folder / "output.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "veloxseg.study.worker", str(order)],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the study, which lets its trainings save
        )


def _tell(job: Job, code: int, seconds: float, count: str, failures: dict[str, str]) -> None:
    if code == 0:
        say(f"{count} done: {job.name}, {seconds / 60:.1f} minutes")
        return
    failures[job.name] = failure_of(job) or f"ended with code {code}; see {job.folder}/output.log"
    warn(f"{count} failed: {job.name}: {failures[job.name]}")


def _stop(running: "dict[subprocess.Popen[bytes], tuple[Job, float]]") -> None:
    for process in running:
        process.terminate()
    give_up = time.monotonic() + STOP_SECONDS
    for process in running:
        try:
            process.wait(max(0.1, give_up - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


class _terminated_as_interrupted:
    """SIGTERM ends a study as Ctrl-C does: its trainings save first."""

    def __enter__(self) -> None:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        self.before = signal.signal(signal.SIGTERM, interrupt)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGTERM, self.before)


def _lacks_its_first(job: Job, failures: dict[str, str]) -> bool:
    """Whether the row that a pruned one starts from was not trained."""
    if job.prune is None or (Path(job.prune["of"]) / "model").is_dir():
        return False
    failures[job.name] = "the row that it is pruned from was not trained"
    return True


def _command(request: Request) -> str:
    """The command as it was given, with the folders' names alone: a path of a machine belongs in no report."""
    words = ["veloxseg study", request.table if not request.table.endswith(".toml") else Path(request.table).name]
    words += ["PREPARED", "-o", "STUDY"]
    for name in ("rows", "seeds", "folds"):
        if values := getattr(request, name):
            words += [f"--{name}", *map(str, values)]
    words += [] if request.steps is None else ["--steps", str(request.steps)]
    words += [] if request.minutes is None else ["--minutes", f"{request.minutes:g}"]
    words += [] if request.external is None else ["--external", "CASES"]
    if request.settings:
        words += ["--set", *(f"{name}={setting_text(value)}" for name, value in request.settings.items())]
    return " ".join(words)
