"""Cross-validation in one go: a model for each fold, a mask of every case by the model that has not seen it, a report.

    RUN/fold_0, fold_1, …   a training each            RUN/out_of_fold/   masks on the scans' own grid
    RUN/ensemble.json       RUN is a MODEL of them     RUN/report/        one evaluation over all these masks

Each fold keeps its last epoch, unless a setting says otherwise: an epoch that was chosen by the cases that are scored
would flatter the score. A run that was stopped goes on where it was.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from veloxseg.console import logged, say, warn
from veloxseg.dataset.cases import Selection
from veloxseg.dataset.layouts import open_dataset
from veloxseg.errors import ConfigError, DatasetError, OutputError, VeloxSegError
from veloxseg.evaluate import evaluate_folder, write_report
from veloxseg.evaluate.component_sizes import print_sizes
from veloxseg.evaluate.terminal import print_policy, print_tables
from veloxseg.files import writable_folder
from veloxseg.model_folder import write_ensemble
from veloxseg.predict.batch import predict_cases
from veloxseg.predict.inputs import find_cases
from veloxseg.predict.predictor import Predictor
from veloxseg.prepare.store import Prepared
from veloxseg.train.loop import train
from veloxseg.train.run_folder import Run

__all__ = ["choose_folds", "train_folds"]

DEVICES = {"gpu": "cuda", "mps": "mps"}  # of an accelerator, for prediction


def choose_folds(prepared: Prepared, words: Sequence[str]) -> list[int]:
    """`all`, or numbers of folds."""
    if list(words) == ["all"]:
        prepared.split(0)  # refuses data without folds
        return list(range(len(prepared.folds)))
    if bad := [word for word in words if not (word.isdecimal() and len(word) < 6)]:
        raise ConfigError(f"--folds {bad[0]!r} is neither a number nor all; write --folds all or --folds 0 2")
    folds = list(dict.fromkeys(int(word) for word in words))
    for fold in folds:
        prepared.split(fold)
    return folds


def train_folds(
    prepared: str | Path,
    folder: str | Path,
    settings: dict[str, Any],
    folds: Sequence[str] = ("all",),
    *,
    resume: bool = False,
    accelerator: str = "auto",
) -> tuple[dict[str, str], int]:
    """Trains the folds, predicts, evaluates; returns case → message of those that failed, and how many cases there are.

    >>> train_folds("prepared", "run", {"max_minutes": 20})
    """
    data, folder = Prepared.open(prepared), Path(folder)
    chosen = choose_folds(data, folds)
    held_out = _held_out(data, chosen)
    _check_scans(Path(prepared), held_out)
    if Run(folder).exists:
        raise OutputError(f"{folder} holds a training of one split; choose another folder for --folds")
    writable_folder(folder)
    cases = [name for names in held_out.values() for name in names]
    with logged(Run(folder).log):
        say(f"{len(chosen)} folds, one after the other, {len(cases)} cases to score")
        for number, fold in enumerate(chosen, 1):
            say(f"fold {fold} ({number} of {len(chosen)})")
            _train_fold(prepared, folder / f"fold_{fold}", settings | {"fold": fold}, resume, accelerator)
        write_ensemble(folder, [f"fold_{fold}" for fold in chosen])
        failures: dict[str, str] = {}
        for fold, names in held_out.items():
            failures |= _predict_fold(Path(prepared), folder, fold, names, DEVICES.get(accelerator, "cpu"))
        _report(Path(prepared), folder, cases)
    return failures, len(cases)


def _held_out(data: Prepared, folds: Sequence[int]) -> dict[int, tuple[str, ...]]:
    """Fold → the cases that its model predicts; a case that several folds hold out is the first one's."""
    taken: set[str] = set()
    held_out: dict[int, tuple[str, ...]] = {}
    for fold in folds:
        held_out[fold] = tuple(name for name in data.split(fold).validation if name not in taken)
        taken.update(held_out[fold])
    return {fold: names for fold, names in held_out.items() if names}


def _check_scans(prepared: Path, held_out: dict[int, tuple[str, ...]]) -> None:
    """The scans that will be predicted are there: said before hours of training, not after."""
    known = {case.name: case for case in open_dataset(prepared).cases}
    for name in (name for names in held_out.values() for name in names):
        if name not in known or not all(path.exists() for path in known[name].images.values()):
            raise DatasetError(f"the scans of {name}, which {prepared} was made from, are not there; prepare them anew")


def _train_fold(prepared: str | Path, folder: Path, settings: dict[str, Any], resume: bool, accelerator: str) -> None:
    begun = resume and Run(folder).exists
    asked = settings if begun else {"select": "last", **settings}
    train(prepared, folder, asked, resume=resume, accelerator=accelerator)


def _predict_fold(prepared: Path, folder: Path, fold: int, names: tuple[str, ...], device: str) -> dict[str, str]:
    predictor = Predictor([folder / f"fold_{fold}"], device=device)
    cases = find_cases([str(prepared)], predictor.plan.names, Selection(split="all", names=names))
    try:
        return predict_cases(predictor, cases, folder / "out_of_fold")
    except VeloxSegError as error:  # a case alone raises it; the cases of the other folds are worth a report
        if len(cases) > 1:
            raise
        warn(f"{cases[0].name}: {error}")
        return {cases[0].name: str(error)}


def _report(prepared: Path, folder: Path, names: Sequence[str]) -> None:
    evaluation = evaluate_folder(
        folder / "out_of_fold", prepared, selection=Selection(split="all", names=tuple(names)), names=["out of fold"]
    )
    print_tables(evaluation)
    print_policy(evaluation)
    print_sizes(evaluation)
    say(f"report: {write_report(evaluation, folder / 'report', None)}")
    say(f"`veloxseg predict -m {folder}` predicts by all folds together")
