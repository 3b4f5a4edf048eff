"""Patches for training, as torch batches: which patch of which case, and how it reaches the network.

A sample is a pure function of (seed, epoch, index), whoever computes it. Philox is a counter-based generator: the
random numbers of a sample are addressed, not consumed in turn, so they depend neither on the number of workers nor on
the step at which a resumed training starts. Samples come in groups of `crops` from one case (the paper: 2 volumes ×
2 crops = a batch of 4), every other one is centred on a labelled voxel (1:1), and an epoch goes through permutations of
the cases.

With P processes a global batch of B samples is cut in P runs of B / P, so that P processes together see exactly what
one would. Workers of a loader hold no state that matters; one that dies or hangs raises an error that says so.
"""

import multiprocessing
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from veloxseg.errors import ConfigError, DatasetError
from veloxseg.image.regions import cut
from veloxseg.prepare.store import Prepared
from veloxseg.train.augment import PAPER, PRESETS, Augmentation, apply, draw, read_size, transplant
from veloxseg.train.recipe import Recipe
from veloxseg.types import Floats, Labels, Size

__all__ = [
    "PatchDataset",
    "PatchLoader",
    "draw_start",
    "generator",
    "patch_loader",
    "steps_per_pass",
    "training_loader",
]

TRIES = 10  # to find an unlabelled centre for a negative patch
ORDER_STREAM = 1 << 40  # addresses of random numbers that no patch uses: the order of the cases ...
MODALITY_STREAM = 1 << 41  # ... the modalities that are dropped ...
TRANSPLANT_STREAM = 1 << 42  # ... whether and from whom a patch gets lesions ...
DONOR_STREAM = 1 << 43  # ... and the patch that they are taken from
MOST_MARGIN = 6  # voxels around transplanted lesions
WORKER_TIMEOUT = 300  # seconds without a batch after which a worker counts as stuck
OPEN_CASES = 512  # memory-mapped cases that a process keeps open


# -- chance ----------------------------------------------------------------------------------------------------------


def generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """The random numbers of one sample."""
    return np.random.Generator(np.random.Philox(key=seed, counter=[0, 0, index, epoch]))


def case_of(names: Sequence[str], seed: int, epoch: int, index: int, crops: int) -> str:
    """The case of sample `index`: group g of an epoch takes the g-th entry of repeated permutations."""
    group = index // crops
    turn, place = divmod(group, len(names))
    order = generator(seed, epoch, ORDER_STREAM + turn).permutation(len(names))
    return names[int(order[place])]


def draw_start(
    random: np.random.Generator,
    label_XYZ: npt.NDArray[Any],
    foreground: Mapping[int, npt.NDArray[np.uint16]],
    patch: Size,
    positive: bool,
) -> Size:
    """The patch's first voxel: around a labelled voxel, each label as likely, or anywhere unlabelled."""
    shape = label_XYZ.shape
    if positive and foreground:
        values = sorted(foreground)
        points = foreground[values[random.integers(len(values))]]
        centre = points[random.integers(len(points))].astype(int)
    else:
        for _ in range(TRIES):
            centre = random.integers(0, shape)
            if not label_XYZ[tuple(centre)]:
                break
    x, y, z = (
        # a patch stays inside the image; an image smaller than the patch is centred in it
        int(np.clip(c - p // 2, 0, n - p)) if n >= p else -((p - n) // 2)
        for c, p, n in zip(centre, patch, shape, strict=True)
    )
    return x, y, z


# -- samples ---------------------------------------------------------------------------------------------------------


class PatchDataset(Dataset[dict[str, Any]]):
    """Random patches of the named cases; `crops` in a row come from one case, every other one is positive."""

    def __init__(
        self,
        prepared: Prepared,
        names: Sequence[str],
        patch: Size,
        seed: int,
        samples_per_epoch: int,
        augmentation: Augmentation = PAPER,
        crops: int = 2,
        transplant: float = 0.0,
    ) -> None:
        if not names:
            raise ConfigError("no case to draw patches from; is this part of the split empty?")
        self.prepared, self.names, self.patch, self.seed = prepared, tuple(names), patch, seed
        self.samples_per_epoch, self.augmentation, self.crops = samples_per_epoch, augmentation, crops
        self.transplant = transplant
        self.epoch = 0
        self.aspect = prepared.plan.spacing[1] / prepared.plan.spacing[0]
        self._open: dict[str, tuple[Any, Any, Any]] = {}

    def set_epoch(self, epoch: int) -> None:
        """Another epoch has other patches."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.samples_per_epoch

    def __getitem__(self, address: int | tuple[int, int]) -> dict[str, Any]:
        epoch, index = address if isinstance(address, tuple) else (self.epoch, address)
        name = case_of(self.names, self.seed, epoch, index, self.crops)
        image_CXYZ, label_XYZ = self._patch(name, generator(self.seed, epoch, index), positive=index % 2 == 0)
        if self.transplant:
            chance = generator(self.seed, epoch, TRANSPLANT_STREAM + index)
            wanted, donor = chance.random() < self.transplant, self.names[chance.integers(len(self.names))]
            if wanted:
                lesions = self._patch(donor, generator(self.seed, epoch, DONOR_STREAM + index), positive=True)
                margin, ignore = int(chance.integers(MOST_MARGIN + 1)), self.prepared.plan.ignore_label
                image_CXYZ, label_XYZ = transplant(image_CXYZ, label_XYZ, *lesions, margin=margin, ignore=ignore)
        return {
            "image": torch.from_numpy(image_CXYZ),
            "label": torch.from_numpy(label_XYZ.astype(np.int64)),
            "case": name,
        }

    def _patch(self, name: str, random: np.random.Generator, *, positive: bool) -> tuple[Floats, Labels]:
        """A patch of this case, augmented."""
        image, label, foreground = self._case(name)
        change = draw(random, self.augmentation, image.shape[0])
        size = read_size(self.patch, change, self.aspect)
        start = draw_start(random, label, foreground, size, positive)
        # torch turns float16 into float32 faster than numpy does
        read_CXYZ = torch.from_numpy(cut(image, start, size, image.dtype)).float().numpy()
        read_XYZ = cut(label, start, size, label.dtype)
        return apply(read_CXYZ, read_XYZ, change, self.patch, self.aspect)

    def _case(self, name: str) -> tuple[Any, Any, Any]:
        if name not in self._open:
            if len(self._open) >= OPEN_CASES:
                self._open.pop(next(iter(self._open)))
            ignore = self.prepared.plan.ignore_label
            foreground = {v: p for v, p in self.prepared.foreground(name).items() if v != ignore}
            self._open[name] = (self.prepared.image(name), self.prepared.label(name), foreground)
        return self._open[name]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}  # a worker maps the files itself


class TrainingPatches(PatchDataset):
    """The patches of process `rank` out of `world`: its share of each batch, chosen modalities, modality dropout."""

    def __init__(
        self, prepared: Prepared, names: tuple[str, ...], recipe: Recipe, steps: int, rank: int = 0, world: int = 1
    ) -> None:
        local = recipe.batch // world
        super().__init__(
            prepared,
            names,
            recipe.network.get("patch", prepared.plan.patch),
            recipe.seed,
            steps * local,
            PRESETS[recipe.augmentation],
            recipe.crops,
            recipe.transplant,
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


# -- batches ---------------------------------------------------------------------------------------------------------


class _Addresses(Sampler[tuple[int, int]]):
    """(epoch, index) of an epoch's samples, from `start` on. It lives in the training process."""

    def __init__(self, dataset: PatchDataset, start: int) -> None:
        self.dataset, self.start = dataset, start

    def __len__(self) -> int:
        return len(self.dataset) - self.start

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.dataset.epoch
        return ((epoch, index) for index in range(self.start, len(self.dataset)))


class PatchLoader:
    """Iterates over one epoch: `{"image": (B, C, X, Y, Z), "label": (B, X, Y, Z), "case": [B]}`."""

    def __init__(self, dataset: PatchDataset, batch_size: int, workers: int, start_step: int) -> None:
        self.dataset, self.batch_size, self.workers = dataset, batch_size, workers
        self._processes: list[Any] = []
        self._addresses = _Addresses(dataset, start_step * batch_size)
        # No `timeout`: without one torch looks every five seconds whether a worker died, with one only when it has
        # passed, unless the system tells of the death in time. `_next` limits the time of a worker that hangs.
        self._loader: DataLoader[dict[str, Any]] = DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=self._addresses,
            num_workers=workers,
            persistent_workers=workers > 0,
            drop_last=True,
            collate_fn=_collate,
        )

    def set_epoch(self, epoch: int) -> None:
        """The next iteration gives this epoch, from its first step."""
        self.dataset.set_epoch(epoch)
        self._addresses.start = 0

    def __len__(self) -> int:
        return len(self.dataset) // self.batch_size - self._addresses.start // self.batch_size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            others = set(multiprocessing.active_children())
            batches = iter(self._loader)  # the first time, this starts the workers, which then stay
            self._processes += [child for child in multiprocessing.active_children() if child not in others]
            while (batch := self._next(batches)) is not None:
                yield batch
        except RuntimeError as error:
            if "DataLoader" in str(error) or "worker" in str(error):
                raise DatasetError(
                    f"a data worker died or is stuck ({str(error).splitlines()[0]}); use fewer workers, or 0 to see why"
                ) from error
            raise
        finally:
            self._addresses.start = 0

    def _next(self, batches: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
        """The next batch; workers that take too long are killed, which torch then reports as any other death."""
        if not self.workers:
            return next(batches, None)
        watch = threading.Timer(WORKER_TIMEOUT, self._kill)
        watch.daemon = True
        watch.start()
        try:
            return next(batches, None)
        finally:
            watch.cancel()

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()


def _collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    # in a worker, default_collate stacks straight into the memory that is shared with the training process
    return {
        "image": default_collate([sample["image"] for sample in samples]),
        "label": default_collate([sample["label"] for sample in samples]),
        "case": [sample["case"] for sample in samples],
    }


def patch_loader(dataset: PatchDataset, batch_size: int = 4, workers: int = 0, start_step: int = 0) -> PatchLoader:
    """Batches of `dataset`; a resumed epoch begins at `start_step`."""
    if batch_size % dataset.crops:
        better = dataset.crops * max(1, batch_size // dataset.crops)
        raise ConfigError(f"batch size {batch_size} is no multiple of the {dataset.crops} crops per case; use {better}")
    return PatchLoader(dataset, batch_size, workers, start_step)


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
