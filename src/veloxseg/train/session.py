"""Everything that lives as long as one training: networks, optimiser, state; how it is saved and restored."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from veloxseg.console import warn
from veloxseg.errors import ModelError, OutputError
from veloxseg.networks import build_network, differing_names
from veloxseg.prepare.store import Prepared
from veloxseg.train.checkpoint import join, load_checkpoint, load_newest, prune, save_checkpoint, split
from veloxseg.train.data import steps_per_pass
from veloxseg.train.engine import seed_step
from veloxseg.train.objective import build_objective
from veloxseg.train.recipe import Recipe, choose_modalities, network_settings
from veloxseg.train.run import Run, data_hash, machine
from veloxseg.train.schedule import Pace
from veloxseg.train.state import State
from veloxseg.train.stopping import Stop, Stopped

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Session"]


class Session:
    """Built from a recipe, or from the newest checkpoint if the run has one."""

    def __init__(self, fabric: "Fabric", prepared: Prepared, run: Run, recipe: Recipe, stop: Stop) -> None:
        self.fabric, self.prepared, self.run, self.recipe, self.stop = fabric, prepared, run, recipe, stop
        self.plan = choose_modalities(prepared.plan, recipe.modalities)
        self.split = prepared.split(recipe.fold)
        self.architecture, self.network = network_settings(recipe, self.plan)
        self.machine, self.data = machine(fabric.world_size), data_hash(prepared)

        seed_step(recipe.seed, 0, 0, 0)  # the same first weights in every process
        objective = build_objective(self.architecture, self.network, self.plan, recipe)
        optimiser = torch.optim.AdamW(
            objective.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
        )
        self.objective, self.optimiser = fabric.setup(objective, optimiser)
        self.average = _moving_average(self.student, recipe.ema) if recipe.ema else None
        self.state = State()
        self.pace = Pace(recipe, steps_per_pass(recipe, len(self.split.train)))
        self.restore()
        self.began = self.saved = time.monotonic()

    @property
    def student(self) -> nn.Module:
        network: nn.Module = self.objective.module.student
        return network

    @property
    def kept(self) -> nn.Module:
        """The network that is validated and becomes MODEL: the moving average if there is one."""
        return self.student if self.average is None else self.average.module

    # -- time ----------------------------------------------------------------------------------------------------

    def elapsed(self) -> float:
        """Seconds of work, earlier sessions included."""
        return self.state.seconds + time.monotonic() - self.began

    def seconds_left(self) -> float:
        return self.pace.seconds_left(self.state.steps)

    # -- saving --------------------------------------------------------------------------------------------------

    def save(self, *, required: bool = False, improved: bool = False) -> None:
        """A checkpoint, and MODEL if `improved`. A full disk is a warning only, unless this is the last chance."""
        now = time.monotonic()
        self.state.seconds, self.began, self.saved = self.elapsed(), now, now
        self.state.pace = {name: value for name, value in asdict(self.pace).items() if name != "recipe"}
        if not self.fabric.is_global_zero:
            return
        best = self.state.best
        try:
            save_checkpoint(self.run.checkpoints, self.state.steps, self.state.to_json(), self.tensors())
            if improved:
                self.write_model(self.kept)
            prune(self.run.checkpoints, best.step if best else None)
        except OutputError as error:
            if required:
                raise
            warn(f"{error}; training goes on, the previous checkpoint is kept")

    def tensors(self) -> dict[str, Tensor]:
        average = {} if self.average is None else self.average.state_dict()
        return join(
            objective=self.objective.module.state_dict(), optimiser=self.optimiser_tensors(), average=average
        )

    def optimiser_tensors(self) -> dict[str, Tensor]:
        """`<parameter>.<exp_avg, exp_avg_sq or step>`"""
        return {
            f"{name}.{key}": value
            for name, parameter in self.objective.module.named_parameters()
            for key, value in self.optimiser.state.get(parameter, {}).items()
        }

    def write_model(self, network: nn.Module, **more: Any) -> None:
        best = self.state.best
        assert best is not None
        provenance = {
            "veloxseg": self.machine["veloxseg"],
            "torch": self.machine["torch"],
            "trained": self.machine["started"],
            "data_sha256": self.data,
            "model": self.recipe.model,
            "seed": self.recipe.seed,
            "fold": self.recipe.fold,
            "epochs": best.epoch,
            "steps": best.step,
            "validation": {
                "cases": len(self.split.validation),
                "dice": best.dice,
                "structures": best.structures,
            },
            **more,
        }
        self.run.write_model(network, self.architecture, self.network, self.plan, provenance)

    def stop_if_wanted(self) -> None:
        if self.stop.wanted:
            self.save(required=True)
            raise Stopped(
                f"stopped and saved after {self.state.steps} steps in {self.run.path}; "
                "the same command with --continue goes on"
            )

    # -- restoring -----------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Takes up the newest whole checkpoint, if there is one."""
        found = load_newest(self.run.checkpoints)
        if found is None:
            return
        self.state = State.from_json(found.state)
        self.pace = Pace(recipe=self.recipe, **self.state.pace)
        weights = split(found.tensors, "objective")
        _check_keys(self.objective.module, weights, str(found.path))
        self.objective.module.load_state_dict(weights)
        moments = split(found.tensors, "optimiser")
        for name, parameter in self.objective.module.named_parameters():
            state = split(moments, name)
            if state:
                self.optimiser.state[parameter] = {
                    key: value if key == "step" else value.to(parameter.device)
                    for key, value in state.items()
                }
        if self.average is not None:
            self.average.load_state_dict(split(found.tensors, "average"))
        if self.fabric.is_global_zero:
            self.repair_model()

    def repair_model(self) -> None:
        """A kill between checkpoint and MODEL leaves an older MODEL: write it anew from the best checkpoint."""
        best = self.state.best
        if best is None or self.run.model_is(best):
            return
        try:
            tensors = load_checkpoint(self.run.checkpoint(best.step)).tensors
        except ModelError as error:
            warn(f"{error}; the best epoch so far, {best.epoch}, is lost, and the next one counts as best")
            self.state.best = None
            return
        self.write_model(self.best_network(tensors))

    def best_network(self, tensors: dict[str, Tensor]) -> nn.Module:
        network = build_network(self.architecture, self.network)
        if self.average is not None:
            network.load_state_dict(split(tensors, "average.module"))
            return network
        prefix = next(
            name for name, module in self.objective.module.named_modules() if module is self.student
        )
        network.load_state_dict(split(tensors, f"objective.{prefix}"))
        return network


def _moving_average(network: nn.Module, decay: float) -> AveragedModel:
    # buffers are copied, not averaged: a table of indices has no mean
    return AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(decay))


def _check_keys(module: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    if differing := differing_names(module, weights):
        raise ModelError(
            f"{where} does not fit settings.json in {differing}; was it copied from another run?"
        )
