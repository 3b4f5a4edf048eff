"""What is trained, and where it stands: networks, optimiser, state and time; how they are saved and restored."""

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from veloxseg.console import warn
from veloxseg.errors import ModelError, OutputError
from veloxseg.model_folder import build_network, differing_names
from veloxseg.train.checkpoint import (
    State,
    is_full,
    join,
    load_checkpoint,
    load_newest,
    make_room,
    newest_state,
    prune,
    save_checkpoint,
    split,
)
from veloxseg.train.display import Display
from veloxseg.train.engine import Stop, Stopped, seed_step
from veloxseg.train.first_weights import load_first_weights
from veloxseg.train.job import Job
from veloxseg.train.objective import build_objective
from veloxseg.train.optimiser import OPTIMISERS
from veloxseg.train.patches import steps_per_pass
from veloxseg.train.run_folder import machine
from veloxseg.train.schedule import Pace
from veloxseg.train.validation import subsets

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Trainer"]

WRITE_SPEED = 1e8  # bytes per second, a slow disk's: how long saving takes before it was ever measured
BYTES_SAVED = 16  # per parameter: itself and two moments in the checkpoint, and itself in MODEL


class Trainer:
    """A job on its way, built anew or from the newest checkpoint if the run has one."""

    def __init__(self, fabric: "Fabric", job: Job, stop: Stop) -> None:
        self.fabric, self.job, self.stop = fabric, job, stop
        self.run, self.recipe, self.machine = job.run, job.recipe, machine(fabric.world_size)

        seed_step(self.recipe.seed, 0, 0, 0)  # every process has the same first weights
        objective = build_objective(job.architecture, job.network, job.plan, self.recipe)
        recipe = self.recipe
        optimiser = OPTIMISERS[recipe.optimiser](objective, recipe.learning_rate, recipe.weight_decay)
        self.take_first_weights(objective.student)
        self.objective, self.optimiser = fabric.setup(objective, optimiser)
        self.average = _moving_average(self.student, self.recipe.ema) if self.recipe.ema else None
        self.state = State()
        self.pace = Pace(self.recipe, steps_per_pass(self.recipe, len(job.split.train)))
        self.pace.saving_seconds = 0.5 + BYTES_SAVED * self.parameters / WRITE_SPEED
        if self.recipe.modality_dropout > 0:
            self.pace.closing_validations = len(subsets(job.plan.names))
        self.saved_step: int | None = None  # of the newest checkpoint that is whole
        self.unwritten: nn.Module | None = None  # the best network, while a full disk keeps it from being MODEL
        self.told_steps = False  # whether it was said how many steps fit into the time
        self.restore()
        self.began, self.saved = job.began, time.monotonic()
        self.display = Display(self.run.path, active=fabric.is_global_zero)

    @property
    def student(self) -> nn.Module:
        return self.objective.module.student

    @property
    def kept(self) -> nn.Module:
        """The network that is validated and becomes MODEL: the moving average if there is one."""
        return self.student if self.average is None else self.average.module

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.student.parameters())

    @property
    def validated(self) -> tuple[str, ...]:
        """The cases that are validated: all, but in a timed training only those that there is time for."""
        return self.job.split.validation[: self.pace.validation_cases]

    # -- time --------------------------------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Seconds of work, earlier sessions included."""
        return self.state.seconds + time.monotonic() - self.began

    def seconds_left(self) -> float:
        return self.pace.seconds_left(self.state.steps)

    def agree(self) -> None:
        """After a step: one process's wish to stop is that of all, and so are the longest times; all decide alike."""
        pace, stop = self.pace, self.stop
        step_seconds = self.state.epoch_seconds / self.state.step
        own = [float(stop.wanted), self.elapsed(), step_seconds, pace.validation_seconds, pace.saving_seconds]
        most = self.fabric.all_reduce(torch.tensor(own, device=self.fabric.device), reduce_op="max").tolist()
        wanted, pace.elapsed, pace.step_seconds, pace.validation_seconds, pace.saving_seconds = most
        stop.wanted = wanted > 0

    def stop_if_wanted(self) -> None:
        if self.stop.wanted:
            self.save(required=True)
            raise Stopped(
                f"stopped and saved after {self.state.steps} steps in {self.run.path}; "
                "the same command with --continue goes on"
            )

    # -- saving ------------------------------------------------------------------------------------------------------

    def save(self, *, required: bool = False, improved: bool = False) -> None:
        """A checkpoint, and MODEL if `improved`. A full disk is a warning only, unless this is the last chance."""
        now = time.monotonic()
        self.state.seconds, self.began, self.saved = self.elapsed(), now, now
        self.state.pace = {name: value for name, value in asdict(self.pace).items() if name != "recipe"}
        if not self.fabric.is_global_zero:
            return
        problem = self.write(self.write_checkpoint)
        if (best := self.kept if improved else self.unwritten) is not None:
            failed = self.write(lambda: self.write_model(best))
            self.unwritten = copy.deepcopy(best) if failed else None
            problem = problem or failed
        self.pace.saving_seconds = time.monotonic() - now
        if problem is None:
            prune(self.run.checkpoints, self.state.best.step if self.state.best else None)
        elif required:
            raise problem
        else:
            warn(f"{problem}; training goes on, the previous checkpoint is kept")

    def write(self, write: Callable[[], None]) -> OutputError | None:
        """Writes, on a full disk in the room of older checkpoints; gives the error if that is not enough either."""
        while True:
            try:
                write()
            except (OutputError, OSError) as error:
                if is_full(error) and make_room(self.run.checkpoints, self.needed_steps()):
                    continue
                if isinstance(error, OutputError):
                    return error
                return OutputError(f"cannot write in {self.run.path}: {error.strerror}; free space, then --continue")
            return None

    def needed_steps(self) -> set[int]:
        """The checkpoints that are never given up: the newest whole one, and the best unless MODEL holds it."""
        best, needed = self.state.best, set() if self.saved_step is None else {self.saved_step}
        return needed if best is None or self.run.model_is(best) else needed | {best.step}

    def write_checkpoint(self) -> None:
        save_checkpoint(self.run.checkpoints, self.state.steps, self.state.to_json(), self.tensors())
        self.saved_step = self.state.steps

    def tensors(self) -> dict[str, Tensor]:
        average = {} if self.average is None else self.average.state_dict()
        return join(objective=self.objective.module.state_dict(), optimiser=self.moments(), average=average)

    def moments(self) -> dict[str, Tensor]:
        """The optimiser's tensors as `<parameter>.<exp_avg, exp_avg_sq, step or momentum>`."""
        return {
            f"{name}.{key}": value
            for name, parameter in self.objective.module.named_parameters()
            for key, value in self.optimiser.state.get(parameter, {}).items()
        }

    def write_model(self, network: nn.Module, **more: Any) -> None:
        best, job = self.state.best, self.job
        assert best is not None
        provenance = {
            "veloxseg": self.machine["veloxseg"],
            "torch": self.machine["torch"],
            "trained": self.machine["started"],
            "data_sha256": job.data,
            "learning": job.learning().to_json(),
            "model": self.recipe.model,
            "seed": self.recipe.seed,
            "fold": self.recipe.fold,
            "epochs": best.epoch,
            "steps": best.step,
            "validation": {"cases": len(self.validated), "dice": best.dice, "structures": best.structures},
            **({} if job.stored.first_weights is None else {"first_weights": job.stored.first_weights.summary()}),
            **more,
        }
        self.run.write_model(network, job.architecture, job.network, job.plan, provenance)

    def write_record(self) -> None:
        """run.json: versions, seed, data, timings, outcome."""
        if not self.fabric.is_global_zero:
            return
        state, best, cases = self.state, self.state.best, self.job.split
        self.run.write_record(
            {
                **self.machine,
                "seed": self.recipe.seed,
                "data_sha256": self.job.data,
                "dataset": self.job.plan.dataset,
                "cases": {"train": len(cases.train), "validation": len(cases.validation)},
                "device": str(self.fabric.device),
                "processes": self.fabric.world_size,
                "finished": state.finished,
                "epochs": state.epoch,
                "steps": state.steps,
                "seconds": round(self.elapsed(), 1),
                "step_seconds": round(self.pace.step_seconds, 4),
                "validation_seconds": round(self.pace.validation_seconds, 2),
                "best": best and {"epoch": best.epoch, "dice": best.dice, "structures": best.structures},
            }
        )

    # -- restoring ---------------------------------------------------------------------------------------------------

    def take_first_weights(self, student: nn.Module) -> None:
        """Fine-tuning starts from another model, unless there is a checkpoint, which holds newer weights."""
        first = self.job.stored.first_weights
        if first is not None and newest_state(self.run.checkpoints) is None:
            load_first_weights(student, self.recipe.init, first)

    def restore(self) -> None:
        """Takes up the newest whole checkpoint, if there is one."""
        found = load_newest(self.run.checkpoints)
        if found is None:
            return
        where, module = str(found.path), self.objective.module
        self.state = State.from_json(found.state, found.path.name)
        self.saved_step = self.state.steps
        self.pace = replace(self.pace, **self.state.pace)
        if (extension := self.job.extension) is not None and self.state.steps <= extension.steps:
            self.state.finished, self.pace.validation_cases = False, None  # the end is further away, and planned anew
        weights, moments = split(found.tensors, "objective"), split(found.tensors, "optimiser")
        _check_fit(module, weights, where)
        module.load_state_dict(weights)
        for name, parameter in module.named_parameters():
            state = split(moments, name)
            if any(key != "step" and not _alike(value, parameter) for key, value in state.items()):
                raise ModelError(f"{where} does not fit settings.json in the optimiser's {name}; was it altered?")
            if state:
                self.optimiser.state[parameter] = {
                    key: value if key == "step" else value.to(parameter.device) for key, value in state.items()
                }
        if self.average is not None:
            average = split(found.tensors, "average")
            _check_fit(self.average, average, where)
            self.average.load_state_dict(average)
        if self.fabric.is_global_zero:
            self.repair_model()

    def repair_model(self) -> None:
        """A kill between checkpoint and MODEL leaves an older MODEL: writes it anew from the best checkpoint."""
        best = self.state.best
        if best is None or self.run.model_is(best):
            return
        try:
            tensors = load_checkpoint(self.run.checkpoint(best.step)).tensors
        except ModelError as error:
            warn(f"{error}; the best epoch so far, {best.epoch}, is lost, and the next one counts as best")
            self.state.best = None
            return
        network = self.best_network(tensors)
        if problem := self.write(lambda: self.write_model(network)):
            raise problem

    def best_network(self, tensors: dict[str, Tensor]) -> nn.Module:
        network = build_network(self.job.architecture, self.job.network)
        if self.average is not None:
            network.load_state_dict(split(tensors, "average.module"))
            return network
        prefix = next(name for name, module in self.objective.module.named_modules() if module is self.student)
        network.load_state_dict(split(tensors, f"objective.{prefix}"))
        return network


def _moving_average(network: nn.Module, decay: float) -> AveragedModel:
    # buffers are copied, not averaged: a table of indices has no mean
    return AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay))


def _check_fit(module: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    expected = module.state_dict()
    differing = differing_names(module, weights) or next(
        (name for name in expected if not _alike(weights[name], expected[name])), ""
    )
    if differing:
        raise ModelError(f"{where} does not fit settings.json in {differing}; was it copied from another run?")


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype
