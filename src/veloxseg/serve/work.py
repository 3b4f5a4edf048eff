"""What workers do, one function per kind of job. Each computes, and returns what the store should then be told.

What is told happens in one transaction together with the end of the job; before it, only files were made, under names
that the same job would give them again. So a kill at any moment leaves nothing but work to repeat.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.errors import ConfigError, ImageError, VeloxSegError
from veloxseg.evaluate.metrics import dice
from veloxseg.files import digest, read_json, write_json
from veloxseg.image import Volume, read_header, read_label
from veloxseg.image.dicom.file import open_dicom
from veloxseg.predict.predictor import Options, Predictor
from veloxseg.predict.scans import Scans
from veloxseg.serve import archive, documents, intake
from veloxseg.serve.cases import case_row, folder_of_revision
from veloxseg.serve.editing import apply
from veloxseg.serve.edits import check_edits
from veloxseg.serve.jobs import advance, enqueue
from veloxseg.serve.models import Model
from veloxseg.serve.outbox import post
from veloxseg.serve.results import edited, open_result, pet_of, whole_folder, write_revision
from veloxseg.serve.states import set_state, touch
from veloxseg.serve.store import Store
from veloxseg.serve.viewer import label_colours, write_mask_layer, write_scan_layers

__all__ = ["JOBS", "Bench", "Gone", "Lost", "make_result"]

Telling = Callable[[sqlite3.Connection], None]
Report = Callable[[int, int], None]  # windows done, windows in all
SECONDS_BETWEEN_REPORTS = 0.5


class Gone(Exception):
    """The job is no longer ours: its case was deleted, or it was given to another worker."""


class Lost(Exception):
    """The machine that was at the job is gone: it is tried again."""


class Bench:
    """What a worker has at hand: the store, the models, and what it opened before."""

    def __init__(
        self,
        store: Store,
        models: Mapping[str, Model],
        *,
        runtime: str,
        threads: int | None,
        options: Options,
        send: Sequence[str] = (),
        objects: Sequence[str] = (),
        patience: float = 600.0,
    ) -> None:
        self.store, self.models = store, models
        self.runtime, self.threads, self.options = runtime, threads, options
        self.send, self.objects = send, objects  # where results of DICOM studies go, and as what
        self.patience = patience  # seconds for what is missing of a DICOM study
        self._predictors: dict[str, Predictor] = {}
        self._scans: tuple[str, Scans] | None = None

    def check_stop(self) -> None:
        """Called after every window; a worker that may be told to stop raises here."""

    def predictor(self, name: str) -> Predictor:
        """A model, opened once."""
        if name not in self._predictors:
            path = self.models[name].path
            self._predictors[name] = Predictor([path], runtime=self.runtime, threads=self.threads, options=self.options)
        return self._predictors[name]

    def segment(self, row: sqlite3.Row, report: Report) -> str:
        """Makes the model's mask of a case; returns the name of its folder. On a cluster, another machine does it."""
        model = self.model_of(row)
        out = self.store.case_folder(row["id"]) / "out"
        return make_result(self.predictor(model.name), model, self.scans(row), out, report)

    def model_of(self, row: sqlite3.Row) -> Model:
        if row["model"] not in self.models:
            raise ConfigError(f"model {row['model']} is not offered any more; choose another")
        return self.models[row["model"]]

    def scans(self, row: sqlite3.Row) -> Scans:
        """The chosen scans of a case; those of the last case are kept, because edits come one after the other."""
        key = f"{row['id']} {row['chosen']}"
        if self._scans is None or self._scans[0] != key:
            folder = self.store.case_folder(row["id"])
            chosen = json.loads(row["chosen"])
            self._scans = (key, Scans({name: folder / place for name, place in chosen.items()}))
        return self._scans[1]

    def reference(self, row: sqlite3.Row) -> Volume:
        """The grid of a case's mask and where it came from, without voxels."""
        scans, model = self.scans(row), self.model_of(row)
        name = next(n for n in (model.reference, *model.kinds) if n in scans.sources)
        header = read_header(scans.sources[name])
        nothing = np.empty((0, 0, 0), np.float32)
        return Volume(
            array=nothing,
            geometry=header.grid(),
            source=scans.sources[name],
            file_type=header.file_type,
            header=header.keep,
        )


def read(bench: Bench, job: sqlite3.Row) -> Telling:
    """Looks at what was received, and decides what to do with it."""
    store, case = bench.store, job["case_id"]
    row, folder = case_row(store, case), store.case_folder(case)
    files = store.read("SELECT * FROM files WHERE case_id = ? ORDER BY id", case)
    notes = []
    for file in files:
        stored = folder / "in" / file["stored"]
        if archive.is_zip(stored):
            notes += archive.unpack(stored, stored.with_suffix(".unpacked"))
    first = bench.models.get(row["model"]) or next(iter(bench.models.values()))
    found = intake.look_at(folder, intake.received(folder, [dict(file) for file in files]), tuple(first.kinds))
    if row["source"] == "dicom" and time.time() - row["arrived"] < bench.patience:
        found = intake.without_gaps(found)
    if not found:
        raise ImageError("none of the files is an image; send NIfTI, NRRD, MetaImage, a DICOM series or a zip of these")
    wanted = None if row["source"] == "dicom" else row["model"]  # a scan that comes late may suit another model
    decision = intake.decide(found, bench.models, wanted)
    warnings = [*notes, *(f"{one.text}: {text}" for one in found for text in one.warnings)]
    state, message = decision.state, decision.message
    if state == "waiting" and row["confirm"]:
        state, message = "choose", "check which scan is which"
    if state == "incomplete" and row["source"] == "dicom" and time.time() - row["arrived"] < bench.patience:
        state = "receiving"  # what is missing may still come

    def tell(connection: sqlite3.Connection) -> None:
        now = connection.execute("SELECT MAX(id) FROM files WHERE case_id = ?", (case,)).fetchone()[0]
        if now != files[-1]["id"]:
            return  # more has arrived meanwhile: the case is looked at again
        columns = {
            "found": json.dumps([one.to_json() for one in found]),
            "chosen": json.dumps(decision.chosen),
            "warnings": json.dumps(warnings),
            "model": decision.model,
        }
        set_state(connection, case, state, message, **columns)
        if state == "waiting":
            enqueue(connection, case, "predict")

    return tell


def predict(bench: Bench, job: sqlite3.Row) -> Telling:
    """The model's mask, and all that the page shows."""
    store, case = bench.store, job["case_id"]
    row = case_row(store, case)
    name = bench.segment(row, _reporter(bench, job))
    warnings = read_json(store.case_folder(case) / "out" / name / "record.json")["warnings"]
    masks = [one for one in json.loads(row["found"]) if one["role"] == "mask" and not one["problem"]]

    def tell(connection: sqlite3.Connection) -> None:
        now = connection.execute("SELECT state FROM cases WHERE id = ?", (case,)).fetchone()
        if now["state"] != "running":
            return  # more has arrived meanwhile: this mask is of a part only
        number = _add_revision(connection, case, [], name)
        set_state(connection, case, "done", revision=number, warnings=json.dumps(warnings))
        for mask in masks:
            enqueue(connection, case, "compare", key=mask["key"], optional=True)
        if row["source"] == "dicom" and bench.send:
            enqueue(connection, case, "send", targets=list(bench.send), objects=list(bench.objects))

    return tell


def make_result(predictor: Predictor, model: Model, scans: Scans, out: Path, report: Report) -> str:
    """Predicts and writes all files of the model's own mask below `out`; returns their folder. Knows no store."""
    request = predictor.request(scans)[:16]
    name, place = f"{request}/{_edits_name([])}", out / request
    if not (out / name).is_dir():
        result = predictor(scans, report)
        result = replace(result, provenance={**result.provenance, "request": request, "model": model.name})

        def show(folder: Path) -> None:
            view = write_scan_layers(scans, result.geometry, folder)
            write_json(folder / "view.json", view | {"labels": label_colours(model.labels)})

        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        whole_folder(place / "view", show)
        whole_folder(place / _edits_name([]), lambda folder: write_revision(result, pet_of(scans), [], folder))
        scans.release()
    return name


def revise(bench: Bench, job: sqlite3.Row) -> Telling:
    """The mask after a list of edits: number, statistics and files of their own."""
    store, case = bench.store, job["case_id"]
    row = case_row(store, case)
    edits = check_edits(json.loads(job["arguments"])["edits"])
    present = folder_of_revision(store, row)
    out, model = present.parent, bench.model_of(row)
    name = _edits_name([edit.__dict__ for edit in edits])
    if not (out / name).is_dir():
        result = open_result(out / _edits_name([]), model.labels, bench.reference(row))
        values = [value for value in model.labels.values() if value]
        array = apply(result.array, edits, result.geometry, values)
        after = edited(result, array, model.labels)
        whole_folder(out / name, lambda folder: write_revision(after, pet_of(bench.scans(row)), edits, folder))
    compared = store.case_folder(case) / "reference" / "key.json"
    key = read_json(compared)["key"] if compared.is_file() else None

    def tell(connection: sqlite3.Connection) -> None:
        number = _add_revision(connection, case, [edit.__dict__ for edit in edits], f"{out.name}/{name}")
        connection.execute("UPDATE cases SET revision = ? WHERE id = ?", (number, case))
        touch(connection, case)
        if key is not None:
            enqueue(connection, case, "compare", key=key)

    return tell


def compare(bench: Bench, job: sqlite3.Row) -> Telling:
    """The mask beside a reference mask: overlap per label, and the reference as the page shows it."""
    store, case = bench.store, job["case_id"]
    row, key = case_row(store, case), json.loads(job["arguments"])["key"]
    revision, model, reference = folder_of_revision(store, row), bench.model_of(row), bench.reference(row)
    try:
        truth = read_label(store.case_folder(case) / key, reference=reference)
    except VeloxSegError:
        if json.loads(job["arguments"]).get("optional"):  # it came with the scans, and belongs to another one
            return lambda connection: touch(connection, case)
        raise
    mask = read_label(revision / "mask.nii.gz").array
    ml = reference.geometry.voxel_ml
    scores = {}
    for name, value in model.labels.items():
        if value:
            one, other = mask == value, truth.array == value
            shared = int(np.count_nonzero(one & other))
            both = int(np.count_nonzero(one)), int(np.count_nonzero(other))
            overlap = dice(one, other)
            scores[name] = {
                "dice": None if np.isnan(overlap) else round(overlap, 6),
                "true_positive_ml": round(shared * ml, 4),
                "false_positive_ml": round((both[0] - shared) * ml, 4),
                "false_negative_ml": round((both[1] - shared) * ml, 4),
            }
    folder = store.case_folder(case) / "reference"
    folder.mkdir(exist_ok=True, mode=0o700)
    highest = max(model.labels.values())
    known = np.where(np.isin(truth.array, list(model.labels.values())), truth.array, 0)
    write_mask_layer(known, reference.geometry, folder / "reference.view.gz", highest)
    write_json(folder / "key.json", {"key": key})
    write_json(revision / "compare.json", {"labels": scores})
    return lambda connection: touch(connection, case)


def write(bench: Bench, job: sqlite3.Row) -> Telling:
    """One of the files that are made when they are asked for."""
    store, case, name = bench.store, job["case_id"], json.loads(job["arguments"])["name"]
    row = case_row(store, case)
    folder = folder_of_revision(store, row)
    if not (folder / name).is_file():
        result = open_result(folder, bench.model_of(row).labels, bench.reference(row))
        documents.DOCUMENTS[name].write(result, bench.scans(row), folder / name)
    return lambda connection: touch(connection, case)


def send(bench: Bench, job: sqlite3.Row) -> Telling:
    """Makes the DICOM objects of the present revision, and puts them into the outbox."""
    store, case, wanted = bench.store, job["case_id"], json.loads(job["arguments"])
    row = case_row(store, case)
    folder = folder_of_revision(store, row)
    made = []
    for name in (f"{kind}.dcm" for kind in wanted["objects"]):
        if not (folder / name).is_file():
            result = open_result(folder, bench.model_of(row).labels, bench.reference(row))
            documents.DOCUMENTS[name].write(result, bench.scans(row), folder / name)
        tags = open_dicom(folder / name, ["SOPClassUID", "SOPInstanceUID"])
        place = str((folder / name).relative_to(store.case_folder(case)))
        made.append((place, str(tags.SOPClassUID), str(tags.SOPInstanceUID)))

    def tell(connection: sqlite3.Connection) -> None:
        for target in wanted["targets"]:
            for one in made:
                post(connection, case, target, *one)
        touch(connection, case)

    return tell


JOBS: dict[str, Callable[[Bench, sqlite3.Row], Telling]] = {
    "read": read,
    "predict": predict,
    "revise": revise,
    "compare": compare,
    "write": write,
    "send": send,
}
OF_THE_CASE = ("read", "predict")  # when one of these fails, the case has failed


def tell_failure(connection: sqlite3.Connection, job: sqlite3.Row, message: str) -> None:
    """What a failed job means for its case."""
    if job["kind"] in OF_THE_CASE:
        set_state(connection, job["case_id"], "failed", message)
    else:
        touch(connection, job["case_id"])


def in_one_line(error: Exception, store: Store, case: str) -> str:
    """Why a job failed, without names of folders of this machine."""
    if isinstance(error, MemoryError):
        return "not enough memory; crop the scans, or start the server with --max-ram"
    if not isinstance(error, VeloxSegError):
        return f"internal error: {type(error).__name__}"
    folder = store.case_folder(case)
    return str(error).replace(f"{folder}/", "").replace(str(folder), "the case").replace(str(store.folder), "the store")


def _edits_name(edits: list[Any]) -> str:
    return digest([{**edit} for edit in edits])[:16]


def _add_revision(connection: sqlite3.Connection, case: str, edits: list[Any], folder: str) -> int:
    row = connection.execute("SELECT MAX(number) FROM revisions WHERE case_id = ?", (case,)).fetchone()
    number = 0 if row[0] is None else int(row[0]) + 1
    connection.execute(
        "INSERT INTO revisions (case_id, number, edits, folder, created) VALUES (?, ?, ?, ?, ?)",
        (case, number, json.dumps(edits), folder, time.time()),
    )
    return number


def _reporter(bench: Bench, job: sqlite3.Row) -> Report:
    """Writes progress to the store now and then, and ends a job that is not ours any more."""
    said = [0.0]

    def report(done: int, total: int) -> None:
        now = time.monotonic()
        if now - said[0] > SECONDS_BETWEEN_REPORTS or done == total:
            said[0] = now
            if not advance(bench.store, job, done, total):
                raise Gone
        bench.check_stop()

    return report
