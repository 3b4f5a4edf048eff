"""The training loop, on Lightning Fabric.

    for each epoch:  for each batch: forward, backward, step
                     validate on whole volumes, keep the best as MODEL, save

A checkpoint can be taken after any step, and what follows depends on the checkpoint only: patches and dropout
are addressed by (seed, epoch, step), not drawn from a running generator. So a killed training goes on as if
nothing had happened.
"""

import contextlib
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from veloxseg.console import say
from veloxseg.errors import DatasetError, ModelError, OutputError, VeloxSegError
from veloxseg.files import claimed, writable_folder
from veloxseg.modelfolder import ModelFolder
from veloxseg.networks import load_network
from veloxseg.prepare.loader import PatchLoader
from veloxseg.prepare.store import Prepared
from veloxseg.train.data import training_loader
from veloxseg.train.engine import deterministic, seed_step, start_engine, worker_count
from veloxseg.train.objective import TERMS
from veloxseg.train.progress import Display, duration
from veloxseg.train.recipe import Recipe, choose_modalities, network_settings
from veloxseg.train.run import Run, data_hash, reconcile
from veloxseg.train.session import Session
from veloxseg.train.state import Best, State
from veloxseg.train.stopping import stop_on_signals
from veloxseg.train.summary import announce, dice_text, known, write_record
from veloxseg.train.validation import mean_dice, subset_name, subsets, validate_case

__all__ = ["train"]


def train(
    prepared: str | Path,
    folder: str | Path,
    settings: dict[str, Any] | None = None,
    *,
    resume: bool = False,
    accelerator: str = "auto",
    devices: int | str = 1,
    nodes: int = 1,
) -> State:
    """Trains in `folder` by the paper's recipe changed by `settings`; `resume` goes on with what is there.

    >>> train("prepared", "run", {"model": "s", "epochs": 100})
    """
    data, run = Prepared.open(prepared), Run(folder)
    hash_now = data_hash(data)
    if resume and run.exists:
        stored, hash_then = run.read_settings()
        recipe = reconcile(stored, settings or {})
        if hash_now != hash_then:
            raise DatasetError(
                f"{prepared} is not the data that {folder} was started with; prepare it as before, or train anew"
            )
    else:
        recipe = Recipe(**(settings or {}))
    network_settings(
        recipe, choose_modalities(data.plan, recipe.modalities)
    )  # an error now leaves no folder behind
    if not data.split(recipe.fold).train:
        raise DatasetError(
            f"{prepared} has no training case in this split; prepare more cases, or choose a --fold"
        )
    fabric = start_engine(recipe, accelerator=accelerator, devices=devices, nodes=nodes)
    problem: VeloxSegError | None = None
    with contextlib.ExitStack() as claim:
        if fabric.is_global_zero:  # the other processes may come later and find the folder begun
            try:
                writable_folder(folder)
                claim.enter_context(claimed(run.path))
                if run.exists and not resume:
                    raise OutputError(
                        f"{folder} holds a training already; add --continue, or choose another folder"
                    )
                run.write_settings(recipe, hash_now)
            except VeloxSegError as error:
                problem = error
        if (problem := fabric.broadcast(problem)) is not None:
            raise problem
        with stop_on_signals() as stop, deterministic(recipe.deterministic):
            session = Session(fabric, data, run, recipe, stop)
            run_epochs(session)
            finish(session)
    return session.state


def run_epochs(session: Session) -> None:
    state, fabric, recipe = session.state, session.fabric, session.recipe
    announce(session)
    loader = training_loader(
        session.prepared,
        session.split.train,
        recipe,
        rank=fabric.global_rank,
        world=fabric.world_size,
        workers=worker_count(recipe, fabric.device.type),
        epoch=state.epoch,
        start_step=state.step,
    )
    with Display(session.run.path, active=fabric.is_global_zero) as display:
        while not state.finished:
            train_epoch(session, loader, display)
            finished = session.pace.finished(state.epoch + 1)
            wanted = session.pace.validates(state.epoch + 1, state.validations)
            scores = validate(session, session.kept) if wanted else None
            improved = end_epoch(session, scores)
            display.epoch(state.history, session.pace.epochs(state.steps), session.seconds_left())
            state.finished = finished
            if scores is not None or state.finished:
                session.save(required=state.finished, improved=improved)
            loader.set_epoch(state.epoch)
        display.draw(state.history)


def train_epoch(session: Session, loader: PatchLoader, display: Display) -> None:
    """The steps that are left of the present epoch."""
    state, pace, recipe = session.state, session.pace, session.recipe
    if state.step >= pace.steps_per_epoch or (state.step and pace.time_is_up()):
        return  # stopped between the last step and the validation
    began = time.monotonic()
    try:
        for batch in loader:
            loss = train_step(session, batch)
            began, seconds = time.monotonic(), time.monotonic() - began
            state.epoch_seconds += seconds
            pace.step_seconds = state.epoch_seconds / state.step
            display.step(state.epoch + 1, pace, state.step, loss, session.seconds_left())
            session.stop_if_wanted()
            if time.monotonic() - session.saved >= recipe.save_seconds and state.bad == 0:
                session.save()
            if state.step >= pace.steps_per_epoch or pace.time_is_up():
                break
    except DatasetError:
        session.stop_if_wanted()  # Ctrl-C reaches the loader's processes, too
        raise


def train_step(session: Session, batch: dict[str, Any]) -> float:
    """Forward, backward, step. If loss or gradient is not finite, the weights stay as they are."""
    state, recipe, fabric = session.state, session.recipe, session.fabric
    objective, optimiser = session.objective, session.optimiser
    for group in optimiser.param_groups:
        group["lr"] = session.pace.learning_rate(state.steps)
    seed_step(recipe.seed, fabric.global_rank, state.epoch, state.step)
    image, label = fabric.to_device((batch["image"], batch["label"]))
    optimiser.zero_grad(set_to_none=True)
    terms = objective.train()(image, label)
    values = average_over_processes(session, terms.detach())
    finite = math.isfinite(values[0])
    if finite:
        fabric.backward(terms[0])
        norm = fabric.clip_gradients(
            objective, optimiser, max_norm=recipe.clip_gradients or math.inf, error_if_nonfinite=False
        )
        finite = bool(torch.isfinite(norm))
    if finite:
        optimiser.step()
        if session.average is not None:
            session.average.update_parameters(session.student)
        state.sums = [total + value for total, value in zip(state.sums, values, strict=True)]
        state.counted += 1
    state.step, state.steps = state.step + 1, state.steps + 1
    state.bad = 0 if finite else state.bad + 1
    if state.bad >= recipe.bad_steps:
        raise ModelError(
            f"the loss was not finite in {state.bad} steps in a row (epoch {state.epoch + 1}); earlier weights are in "
            f"{session.run.checkpoints}; try a lower learning_rate, clip_gradients=1 or precision=32-true"
        )
    return values[0]


def average_over_processes(session: Session, terms: Tensor) -> list[float]:
    """The loss terms, averaged over all processes; a wish to stop and the time travel along, so that all agree."""
    more = terms.new_tensor([float(session.stop.wanted), session.elapsed()])
    values: list[float] = session.fabric.all_reduce(torch.cat([terms, more]), reduce_op="mean").tolist()
    session.pace.elapsed = values.pop()
    session.stop.wanted = values.pop() > 0
    return values


def validate(
    session: Session, network: nn.Module, available: tuple[str, ...] | None = None
) -> list[dict[str, float]]:
    """Dice of every validation case, by structure. The processes share the cases."""
    began = time.monotonic()
    names, fabric = session.split.validation, session.fabric
    scores: dict[str, dict[str, float]] = {}
    for name in names[fabric.global_rank :: fabric.world_size]:
        scores[name] = validate_case(
            network,
            session.prepared,
            name,
            session.plan,
            overlap=session.recipe.overlap,
            device=str(fabric.device),
            available=available,
        )
        if fabric.world_size == 1:
            session.stop_if_wanted()
    for source in range(fabric.world_size):
        scores |= fabric.broadcast(scores, src=source)
    session.pace.validation_seconds = time.monotonic() - began
    return [scores[name] for name in names]


def end_epoch(session: Session, scores: list[dict[str, float]] | None) -> bool:
    """Closes the epoch: its row of history, the best. Says whether its weights are the best so far."""
    state, pace = session.state, session.pace
    row: dict[str, Any] = {
        "epoch": state.epoch + 1,
        "learning_rate": pace.learning_rate(state.steps - 1),
        **{
            n: total / state.counted if state.counted else None
            for n, total in zip(TERMS, state.sums, strict=True)
        },
        "validation_dice": None,
        "seconds": round(state.epoch_seconds, 3),
    }
    parts: dict[str, float | None] = {}
    if scores:
        parts = {name: known(mean_dice([{name: case[name]} for case in scores])) for name in scores[0]}
        row["validation_dice"] = known(mean_dice(scores))
        row |= {f"dice:{name}": value for name, value in parts.items()}
    state.history.append(row)
    state.epoch, state.step, state.sums, state.counted = state.epoch + 1, 0, [0.0] * len(TERMS), 0
    state.validations += scores is not None
    state.epoch_seconds = 0.0
    if scores is None or state.bad > 0 or not _wins(session, row["validation_dice"]):
        return False
    state.best = Best(state.epoch, state.steps, row["validation_dice"], parts)
    return True


def _wins(session: Session, dice: float | None) -> bool:
    """The latest wins if the recipe says so, or if there is nothing to compare by."""
    best = session.state.best
    if session.recipe.select == "last" or best is None or best.dice is None:
        return True
    return dice is not None and dice > best.dice


def finish(session: Session) -> None:
    """The end: Dice with modalities missing if the network was trained for it, run.json, a last word."""
    best, run = session.state.best, session.run
    session.fabric.barrier()  # until the first process has written MODEL
    if session.recipe.modality_dropout > 0 and best is not None and session.split.validation:
        network = load_network(ModelFolder.open(run.model)).to(session.fabric.device)
        dice = {
            subset_name(names): known(mean_dice(validate(session, network, names)))
            for names in subsets(session.plan.names)
        }
        say("Dice by available modalities: " + ", ".join(f"{n} {dice_text(d)}" for n, d in dice.items()))
        if session.fabric.is_global_zero:
            session.write_model(network, missing_modalities=dice)
    write_record(session)
    if best is not None:
        say(
            f"done in {duration(session.elapsed())}: Dice {dice_text(best.dice)} after epoch {best.epoch}; "
            f"model in {run.model}"
        )
