"""One training of a study, from first weights to scores: `python -m veloxseg.study.worker JOB.json`.

    FOLDER/run/           a plain `veloxseg train` with the job's settings
    FOLDER/training.json  what it took: steps, seconds, memory, parameters, MACs
    FOLDER/masks/         the unseen cases, on the grid that they were prepared on
    FOLDER/scores.json    their scores; the job is done when it is there
    FOLDER/external/      masks of the external cases on their own grid, where there are some

Whatever is there is kept, so a job that was killed goes on. Masks lie on the prepared grid because it is the same for
all rows of a table, whichever modalities they see.
"""

import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.dataset.cases import Selection
from veloxseg.errors import VeloxSegError
from veloxseg.evaluate import evaluate_folder
from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.evaluate.metrics import METRICS
from veloxseg.files import read_json, writable_folder, write_json
from veloxseg.image import Volume, write
from veloxseg.machine import describe, peak_rss_mb
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.prepare.store import Prepared

__all__ = ["Job", "main", "run_job", "structures_of"]

OVERLAP = 0.5  # of windows in prediction, as `predict` has it


@dataclass(frozen=True, kw_only=True)
class Job:
    """A row with one seed, on one split."""

    row: str
    seed: int
    fold: int | None
    prepared: str
    folder: str
    labels: str  # the study's own, on the prepared grid
    settings: dict[str, Any]
    cases: tuple[str, ...]  # that the training does not see
    external: str | None = None
    prune: dict[str, Any] | None = None  # of: a RUN; what; to: how many parameters are kept

    @property
    def name(self) -> str:
        return f"{self.row}, seed {self.seed}" + ("" if self.fold is None else f", fold {self.fold}")

    @property
    def done(self) -> bool:
        files = ["scores.json", *(["external.json"] if self.external is not None else [])]
        return all((Path(self.folder) / name).is_file() for name in files)


def run_job(job: Job) -> None:
    """Trains, predicts and scores what is not done yet."""
    folder = writable_folder(job.folder)
    write_json(folder / "job.json", asdict(job))
    if not (folder / "training.json").is_file():
        write_json(folder / "training.json", train_row(job, folder))
    model = ModelFolder.open(folder / "run")
    if not (folder / "scores.json").is_file():
        predict_prepared(job, model, folder / "masks")
        evaluation = evaluate_folder(
            folder / "masks", job.labels, selection=Selection(names=job.cases), names=[job.row]
        )
        write_json(folder / "scores.json", _scores(job, evaluation))
    if job.external is not None and not (folder / "external.json").is_file():
        predict_external(job.external, folder)
        evaluation = evaluate_folder(
            folder / "external", job.external, selection=Selection(split="all"), names=[job.row]
        )
        write_json(folder / "external.json", _scores(job, evaluation))


def train_row(job: Job, folder: Path) -> dict[str, Any]:
    """A plain training; of a pruned row, one from the weights that pruning left."""
    from veloxseg.train.loop import train

    settings, before = job.settings, {}
    if job.prune is not None:
        from veloxseg.train.prune import pruned_settings

        settings = pruned_settings(job.prune["of"], folder / "pruned", job.prune["what"], job.prune["to"], settings)
        before = {"steps_before": read_json(Path(job.prune["of"]).parent / "training.json")["steps"]}
    state = train(job.prepared, folder / "run", settings, resume=True)
    peak = peak_rss_mb()
    return {
        "steps": state.steps,
        **before,
        "seconds": round(state.seconds, 1),
        "peak_rss_mb": peak,
        "settings": settings,
        **_counts(ModelFolder.open(folder / "run")),
        "machine": describe(),
    }


def _counts(model: ModelFolder) -> dict[str, int]:
    from veloxseg.model.count import macs, macs_as_published, parameters, parameters_as_published

    network, shape = load_network(model), (1, len(model.plan.names), *model.plan.patch)
    return {
        "parameters": parameters(network),
        "parameters_as_published": parameters_as_published(network),
        "macs": macs(network, shape),
        "macs_as_published": macs_as_published(network, shape),
    }


def predict_prepared(job: Job, model: ModelFolder, folder: Path) -> None:
    """Masks of the prepared cases, on the prepared grid."""
    from veloxseg.predict.sliding import predict_labels
    from veloxseg.runtimes.torch import TorchRuntime
    from veloxseg.train.validation import network_image

    writable_folder(folder)
    prepared, runtime = Prepared.open(job.prepared), TorchRuntime(load_network(model))
    for case in job.cases:
        path = folder / f"{case}.nii.gz"
        if not path.is_file():
            image = network_image(prepared, case, model.plan)
            mask = predict_labels(image, runtime, model.plan, overlap=OVERLAP)
            write(Volume(array=mask.astype(np.uint8), geometry=prepared.placement(case).network), path)


def predict_external(external: str, folder: Path) -> None:
    """Masks of every external case on its own grid, as `predict` makes them."""
    from veloxseg.predict.batch import predict_cases
    from veloxseg.predict.inputs import find_cases
    from veloxseg.predict.predictor import Predictor

    predictor = Predictor([folder / "run"], runtime="torch", threads=1)
    cases = find_cases([external], predictor.plan.names, Selection(split="all"))
    if failures := predict_cases(predictor, cases, folder / "external"):
        name, message = next(iter(failures.items()))
        raise VeloxSegError(f"external case {name}: {message}")


def structures_of(evaluation: Evaluation) -> dict[str, dict[str, dict[str, float]]]:
    """Case → structure → metric → value."""
    method, found = evaluation.methods[0], dict[str, dict[str, dict[str, float]]]()
    for structure in evaluation.structures:
        for row in evaluation.select(method, structure):
            found.setdefault(row.case, {})[structure] = {name: row.scores.value(name) for name in METRICS}
    return found


def _scores(job: Job, evaluation: Evaluation) -> dict[str, Any]:
    """What is kept of a run's evaluation: every metric of every case and structure, and every lesion."""
    method = evaluation.methods[0]
    cases = {
        case: {
            structure: {name: None if math.isnan(value) else value for name, value in metrics.items()}
            for structure, metrics in structures.items()
        }
        for case, structures in structures_of(evaluation).items()
    }
    lesions = [
        {"volume_ml": lesion.volume_ml, "dice": lesion.dice}
        for structure in evaluation.structures
        for row in evaluation.select(method, structure)
        for lesion in row.detection.lesions
    ]
    return {"row": job.row, "seed": job.seed, "fold": job.fold, "cases": cases, "lesions": lesions}


def stop_with_the_parent() -> None:
    """If the study is killed, its trainings save and stop too, so that it can be started again at once."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    if hasattr(os, "getppid"):
        threading.Thread(target=watch, daemon=True).start()


def main(arguments: Sequence[str]) -> int:
    from veloxseg.train.engine import Stopped

    stop_with_the_parent()
    value = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    job = Job(**value | {"cases": tuple(value["cases"])})
    failure = Path(job.folder) / "failure.json"
    failure.unlink(missing_ok=True)
    try:
        run_job(job)
    except Stopped:
        return 130
    except VeloxSegError as error:
        write_json(failure, {"message": str(error)})
        return 2
    return 0


def failure_of(job: Job) -> str | None:
    path = Path(job.folder) / "failure.json"
    return str(read_json(path)["message"]) if path.is_file() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
