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

from veloxseg.console import logged, say, warn
from veloxseg.errors import DatasetError, ModelError
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.train.checkpoint import Best, State
from veloxseg.train.display import dice_text, duration
from veloxseg.train.engine import deterministic, seed_step, start_engine, stop_on_signals, worker_count
from veloxseg.train.hints import hints
from veloxseg.train.job import Job
from veloxseg.train.objective import TERMS
from veloxseg.train.patches import PatchLoader, training_loader
from veloxseg.train.schedule import FEW_STEPS
from veloxseg.train.trainer import Trainer
from veloxseg.train.validation import foresee_seconds, known, mean_dice, subset_name, subsets, validate_case

__all__ = ["train"]

FIRST_STEPS = 5  # after so many, it is known how long a step takes
SLOW_STEP = 5.0  # seconds; of such steps one is enough to know


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
    job = Job.open(prepared, folder, settings or {}, resume=resume)
    fabric = start_engine(job.recipe, accelerator=accelerator, devices=devices, nodes=nodes)
    with (
        job.run.claim(fabric, job.stored, resume=resume),
        logged(job.run.log) if fabric.is_global_zero else contextlib.nullcontext(),
        stop_on_signals() as stop,
        deterministic(job.recipe.deterministic),
    ):
        trainer = Trainer(fabric, job, stop)
        announce(trainer)
        with trainer.display:
            run_epochs(trainer)
            finish(trainer)
    return trainer.state


def run_epochs(trainer: Trainer) -> None:
    """Trains, validates and saves, epoch by epoch, from where the training stands to its end."""
    state, pace, fabric, display = trainer.state, trainer.pace, trainer.fabric, trainer.display
    foresee_the_end(trainer)
    loader = training_loader(
        trainer.job.prepared,
        trainer.job.split.train,
        trainer.recipe,
        rank=fabric.global_rank,
        world=fabric.world_size,
        workers=worker_count(trainer.recipe, fabric.device.type),
        epoch=state.epoch,
        start_step=state.step,
    )
    while not state.finished:
        train_epoch(trainer, loader)
        finished = pace.finished(state.epoch + 1)
        wanted = pace.validates(state.epoch + 1, state.validations)
        scores = validate(trainer, trainer.kept) if wanted else None
        improved = end_epoch(trainer, scores)
        display.epoch(state.history, pace.epochs(state.steps), trainer.seconds_left())
        state.finished = finished
        if scores is not None or finished:
            trainer.save(required=finished, improved=improved)
        loader.set_epoch(state.epoch)
    display.draw(state.history)


def train_epoch(trainer: Trainer, loader: PatchLoader) -> None:
    """The steps that are left of the present epoch."""
    state, pace, recipe = trainer.state, trainer.pace, trainer.recipe
    if state.step >= pace.steps_per_epoch or (state.step and pace.time_is_up()):
        return  # the training was stopped between the last step and the validation
    began = time.monotonic()
    try:
        for batch in loader:
            loss = train_step(trainer, batch)
            began, seconds = time.monotonic(), time.monotonic() - began
            state.epoch_seconds += seconds
            trainer.agree()
            trainer.display.step(state.epoch + 1, pace, state.step, loss, trainer.seconds_left())
            say_how_many_steps_fit(trainer)
            trainer.stop_if_wanted()
            if time.monotonic() - trainer.saved >= recipe.save_seconds and state.bad == 0:
                trainer.save()
            if state.step >= pace.steps_per_epoch or pace.time_is_up():
                break
    except DatasetError:
        trainer.stop_if_wanted()  # Ctrl-C reaches the loader's processes, too
        raise


def train_step(trainer: Trainer, batch: dict[str, Any]) -> float:
    """Forward, backward, step. If loss or gradient is not finite, the weights stay as they are."""
    state, recipe, fabric = trainer.state, trainer.recipe, trainer.fabric
    objective, optimiser = trainer.objective, trainer.optimiser
    for group in optimiser.param_groups:
        group["lr"] = trainer.pace.learning_rate(state.steps)
    seed_step(recipe.seed, fabric.global_rank, state.epoch, state.step)
    image, label = fabric.to_device((batch["image"], batch["label"]))
    optimiser.zero_grad(set_to_none=True)
    terms: Tensor = objective.train()(image, label)
    values: list[float] = fabric.all_reduce(terms.detach().clone(), reduce_op="mean").tolist()
    finite = math.isfinite(values[0])
    if finite:
        fabric.backward(terms[0])
        norm = fabric.clip_gradients(
            objective, optimiser, max_norm=recipe.clip_gradients or math.inf, error_if_nonfinite=False
        )
        finite = bool(torch.isfinite(norm))
    if finite:
        optimiser.step()
        if trainer.average is not None:
            trainer.average.update_parameters(trainer.student)
        state.sums = [total + value for total, value in zip(state.sums, values, strict=True)]
        state.counted += 1
    state.step, state.steps = state.step + 1, state.steps + 1
    state.bad = 0 if finite else state.bad + 1
    if state.bad >= recipe.bad_steps:
        raise ModelError(
            f"the loss was not finite in {state.bad} steps in a row (epoch {state.epoch + 1}); earlier weights are in "
            f"{trainer.run.checkpoints}; try a lower learning_rate, clip_gradients=1 or precision=32-true"
        )
    return values[0]


def validate(trainer: Trainer, network: nn.Module, available: tuple[str, ...] | None = None) -> list[dict[str, float]]:
    """Dice of every validation case, by structure. The processes share the cases."""
    began = time.monotonic()
    names, fabric = trainer.validated, trainer.fabric
    scores: dict[str, dict[str, float]] = {}
    for number, name in enumerate(names[fabric.global_rank :: fabric.world_size], 1):
        trainer.display.note(f"validation, case {number * fabric.world_size} of {len(names)}")
        scores[name] = validate_case(
            network,
            trainer.job.prepared,
            name,
            trainer.job.plan,
            overlap=trainer.recipe.overlap,
            device=str(fabric.device),
            available=available,
        )
        if fabric.world_size == 1:
            trainer.stop_if_wanted()
    for source in range(fabric.world_size):
        scores |= fabric.broadcast(scores, src=source)
    trainer.pace.validation_seconds = time.monotonic() - began
    return [scores[name] for name in names]


def end_epoch(trainer: Trainer, scores: list[dict[str, float]] | None) -> bool:
    """Closes the epoch: its row of history, the best. Says whether its weights are the best so far."""
    state, pace = trainer.state, trainer.pace
    row: dict[str, Any] = {
        "epoch": state.epoch + 1,
        "learning_rate": pace.learning_rate(state.steps - 1),
        **{n: total / state.counted if state.counted else None for n, total in zip(TERMS, state.sums, strict=True)},
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
    if scores is None or state.bad > 0 or not _wins(trainer, row["validation_dice"]):
        return False
    state.best = Best(state.epoch, state.steps, row["validation_dice"], parts)
    return True


def _wins(trainer: Trainer, dice: float | None) -> bool:
    """The latest epoch wins if the recipe says so, or if there is nothing to compare by."""
    best = trainer.state.best
    if trainer.recipe.select == "last" or best is None or best.dice is None:
        return True
    return dice is not None and dice > best.dice


def finish(trainer: Trainer) -> None:
    """The end: Dice with modalities missing if the network was trained for it, a last word, run.json."""
    best, run = trainer.state.best, trainer.run
    trainer.fabric.barrier()  # until the first process has written MODEL
    if trainer.recipe.modality_dropout > 0 and best is not None and trainer.validated:
        network = load_network(ModelFolder.open(run.model)).to(trainer.fabric.device)
        dice = {
            subset_name(names): known(mean_dice(validate(trainer, network, names)))
            for names in subsets(trainer.job.plan.names)
        }
        say("Dice by available modalities: " + ", ".join(f"{n} {dice_text(d)}" for n, d in dice.items()))
        if trainer.fabric.is_global_zero:
            trainer.write_model(network, missing_modalities=dice)
    if best is not None:
        took = duration(trainer.elapsed())
        say(f"done in {took}: Dice {dice_text(best.dice)} after epoch {best.epoch}; model in {run.model}")
    trainer.write_record()


# -- what is said before and at the beginning ------------------------------------------------------------------------


def announce(trainer: Trainer) -> None:
    state, job = trainer.state, trainer.job
    say(
        f"{job.recipe.model}: {trainer.parameters / 1e6:.2f} M parameters, modalities {', '.join(job.plan.names)}, "
        f"patch {'×'.join(map(str, job.plan.patch))}, {len(job.split.train)} training and {len(job.split.validation)} "
        f"validation cases, {trainer.pace.steps_per_epoch} steps per epoch, {trainer.fabric.device}"
    )
    if job.stored.why and not state.steps:
        say(f"chosen by veloxseg: {'; '.join(job.stored.why)} (--set changes it)")
    if not job.split.validation:
        say("no validation case in this split: the last epoch becomes the model")
    if job.stored.first_weights is not None and not state.steps and trainer.fabric.is_global_zero:
        job.stored.first_weights.tell(job.plan)
    if not state.steps:
        for hint in hints(job):
            say(f"hint: {hint}")
    if state.steps:
        say(f"going on after epoch {state.epoch}, step {state.step}")
    if (extension := job.extension) is not None and state.steps <= extension.steps:
        say(
            f"the training is {extension.words}; the schedule is planned anew: the rate goes on "
            f"at {trainer.pace.learning_rate(state.steps):.1e} and ends at {job.recipe.final_learning_rate:.1e}"
        )
    trainer.write_record()


def foresee_the_end(trainer: Trainer) -> None:
    """A timed training must know how long its last validation takes before it was ever measured."""
    pace, job, fabric = trainer.pace, trainer.job, trainer.fabric
    if not pace.timed or pace.validation_cases is not None:
        return
    device, names = str(fabric.device), job.split.validation
    seconds = foresee_seconds(
        trainer.kept, job.prepared, names, job.plan, overlap=trainer.recipe.overlap, device=device
    )
    seconds = fabric.broadcast([each / fabric.world_size for each in seconds])  # the first process's, for all
    pace.foresee_validation(seconds)
    if pace.validation_cases != len(names):
        warn(
            f"validating all {len(names)} cases would take about {duration(sum(seconds))} of the "
            f"{duration(60 * (job.recipe.max_minutes or 0))}, so {pace.validation_cases} are validated; "
            "give more minutes for all, or evaluate the model afterwards"
        )


def say_how_many_steps_fit(trainer: Trainer) -> None:
    """Early in a timed training, once: after five steps, or after the first one if steps are slow."""
    steps, pace = trainer.state.steps, trainer.pace
    early = steps < FIRST_STEPS and pace.step_seconds < SLOW_STEP and not pace.time_is_up()
    if not pace.timed or trainer.told_steps or early:
        return
    trainer.told_steps = True
    fitting = pace.all_steps(steps)
    say(f"a step takes {pace.step_seconds:.2g} s, so about {fitting} fit; the end takes {duration(pace.end_seconds)}")
    if fitting < FEW_STEPS:
        warn(
            f"about {fitting} steps in {duration(60 * (trainer.recipe.max_minutes or 0))} teach next to nothing, "
            f"{FEW_STEPS} are the least; give more minutes, a lighter --model such as s, or prepare a smaller --patch"
        )
