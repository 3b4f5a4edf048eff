"""Patches for training, as torch batches: identical for any number of workers, resumable at any step.

The sampler hands out (epoch, index) pairs, from which a sample is a pure function; workers hold no state that
matters. A worker that dies or hangs raises an error that says so.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from veloxseg.errors import ConfigError, DatasetError
from veloxseg.prepare.augment import PAPER, Augmentation, apply, draw, read_size
from veloxseg.prepare.sampling import case_of, cut, draw_centre, generator
from veloxseg.prepare.store import Prepared

__all__ = ["PatchDataset", "PatchLoader", "patch_loader"]

WORKER_TIMEOUT = 300  # seconds without a batch after which a worker counts as stuck
OPEN_CASES = 512  # memory-mapped cases that a process keeps open


class PatchDataset(Dataset[dict[str, Any]]):
    """Random patches of the named cases; `crops` in a row come from one case, every other one is positive."""

    def __init__(
        self,
        prepared: Prepared,
        names: Sequence[str],
        patch: tuple[int, int, int],
        seed: int,
        samples_per_epoch: int,
        augmentation: Augmentation = PAPER,
        crops: int = 2,
    ) -> None:
        if not names:
            raise ConfigError("no case to draw patches from; is this part of the split empty?")
        self.prepared, self.names, self.patch, self.seed = prepared, tuple(names), patch, seed
        self.samples_per_epoch, self.augmentation, self.crops = samples_per_epoch, augmentation, crops
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
        image, label, foreground = self._case(name)
        random = generator(self.seed, epoch, index)
        change = draw(random, self.augmentation, image.shape[0])
        size = read_size(self.patch, change, self.aspect)
        start = draw_centre(random, label, foreground, size, positive=index % 2 == 0)
        # torch turns float16 into float32 faster than numpy does
        read_CXYZ = torch.from_numpy(cut(image, start, size, image.dtype)).float().numpy()
        read_XYZ = cut(label, start, size, label.dtype)
        image_CXYZ, label_XYZ = apply(read_CXYZ, read_XYZ, change, self.patch, self.aspect)
        return {
            "image": torch.from_numpy(image_CXYZ),
            "label": torch.from_numpy(label_XYZ.astype(np.int64)),
            "case": name,
        }

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


class _Addresses(Sampler[tuple[int, int]]):
    """(epoch, index) of an epoch's samples, from `start` on. Lives in the training process."""

    def __init__(self, dataset: PatchDataset) -> None:
        self.dataset, self.start = dataset, 0

    def __len__(self) -> int:
        return len(self.dataset) - self.start

    def __iter__(self) -> Iterator[tuple[int, int]]:
        epoch = self.dataset.epoch
        return iter([(epoch, index) for index in range(self.start, len(self.dataset))])


class PatchLoader:
    """Iterates over one epoch: `{"image": (B, C, X, Y, Z), "label": (B, X, Y, Z), "case": [B]}`."""

    def __init__(self, dataset: PatchDataset, batch_size: int, workers: int, start_step: int) -> None:
        self.dataset, self.batch_size = dataset, batch_size
        self._addresses = _Addresses(dataset)
        self._addresses.start = start_step * batch_size
        self._loader: DataLoader[dict[str, Any]] = DataLoader(
            dataset,
            batch_size=batch_size,
            sampler=self._addresses,
            num_workers=workers,
            persistent_workers=workers > 0,
            timeout=WORKER_TIMEOUT if workers > 0 else 0,
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
            yield from self._loader
        except RuntimeError as error:
            if "DataLoader" in str(error) or "worker" in str(error):
                raise DatasetError(
                    f"a data worker died or is stuck ({str(error).splitlines()[0]}); use fewer workers, or 0 to see why"
                ) from error
            raise
        finally:
            self._addresses.start = 0


def patch_loader(
    dataset: PatchDataset, batch_size: int = 4, workers: int = 0, start_step: int = 0
) -> PatchLoader:
    """Batches of `dataset`; a resumed epoch begins at `start_step`."""
    if batch_size % dataset.crops:
        better = dataset.crops * max(1, batch_size // dataset.crops)
        raise ConfigError(
            f"batch size {batch_size} is no multiple of the {dataset.crops} crops per case; use {better}"
        )
    return PatchLoader(dataset, batch_size, workers, start_step)


def _collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
    # in a worker, default_collate stacks straight into the memory that is shared with the training process
    return {
        "image": default_collate([sample["image"] for sample in samples]),
        "label": default_collate([sample["label"] for sample in samples]),
        "case": [sample["case"] for sample in samples],
    }
