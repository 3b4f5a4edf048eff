"""Patches for one process of a training: its share of every batch, the chosen modalities, modality dropout.

Sample `index` of an epoch is the same whoever computes it (prepare/sampling.py). With P processes a global batch
of B samples is cut in P runs of B / P, so that P processes see together exactly what one would.
"""

from typing import Any

from veloxseg.errors import ConfigError
from veloxseg.prepare.augment import PRESETS
from veloxseg.prepare.loader import PatchDataset, PatchLoader, patch_loader
from veloxseg.prepare.sampling import generator
from veloxseg.prepare.store import Prepared
from veloxseg.train.recipe import Recipe

__all__ = ["TrainingPatches", "steps_per_pass", "training_loader"]

MODALITY_STREAM = 1 << 41  # an address of random numbers that no patch uses


class TrainingPatches(PatchDataset):
    """The patches of process `rank` out of `world`."""

    def __init__(
        self,
        prepared: Prepared,
        names: tuple[str, ...],
        recipe: Recipe,
        steps: int,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        local = recipe.batch // world
        super().__init__(
            prepared,
            names,
            prepared.plan.patch,
            recipe.seed,
            steps * local,
            PRESETS[recipe.augmentation],
            recipe.crops,
        )
        wanted = recipe.modalities or prepared.plan.names
        self.channels = [c for c, name in enumerate(prepared.plan.names) if name in wanted]
        self.local, self.batch, self.rank = local, recipe.batch, rank
        self.modality_dropout = recipe.modality_dropout

    def __getitem__(self, address: int | tuple[int, int]) -> dict[str, Any]:
        epoch, own = address if isinstance(address, tuple) else (self.epoch, address)
        step, place = divmod(own, self.local)
        index = step * self.batch + self.rank * self.local + place
        sample = super().__getitem__((epoch, index))
        if len(self.channels) < len(sample["image"]):
            sample["image"] = sample["image"][self.channels]
        if (missing := self.missing(epoch, index)) is not None:
            sample["image"][missing] = 0  # the mean of normalised intensities, as at prediction
        return sample

    def missing(self, epoch: int, index: int) -> int | None:
        """The modality that this sample goes without; never the only one."""
        random = generator(self.seed, epoch, MODALITY_STREAM + index)
        drop, which = random.random(), int(random.integers(len(self.channels)))
        return which if len(self.channels) > 1 and drop < self.modality_dropout else None


def steps_per_pass(recipe: Recipe, cases: int) -> int:
    """Steps of an epoch: as set, or as many as take each volume once."""
    return recipe.steps_per_epoch or max(1, cases * recipe.crops // recipe.batch)


def training_loader(
    prepared: Prepared,
    names: tuple[str, ...],
    recipe: Recipe,
    *,
    rank: int = 0,
    world: int = 1,
    workers: int = 0,
    epoch: int = 0,
    start_step: int = 0,
) -> PatchLoader:
    """Batches of this process, from a step of an epoch on."""
    if recipe.batch % (world * recipe.crops):
        raise ConfigError(
            f"batch {recipe.batch} cannot be shared by {world} processes with {recipe.crops} crops per volume; "
            f"use --set batch={world * recipe.crops}, or a multiple"
        )
    steps = steps_per_pass(recipe, len(names))
    dataset = TrainingPatches(prepared, names, recipe, steps, rank, world)
    dataset.set_epoch(epoch)
    return patch_loader(dataset, recipe.batch // world, workers, start_step)
