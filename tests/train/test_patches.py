"""The loader: the same batches for any number of workers, resumable, 1:1, and no waiting for the dead."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from veloxseg.dataset.dataset import Dataset
from veloxseg.errors import ConfigError
from veloxseg.prepare.prepare import Settings, prepare
from veloxseg.prepare.store import Prepared
from veloxseg.train.augment import STRONG
from veloxseg.train.patches import PatchDataset, draw_start, generator, patch_loader

PATCH = (16, 16, 8)
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture
def prepared(make_dataset: Callable[..., Dataset], tmp_path: Path) -> Prepared:
    return prepare(make_dataset(4), tmp_path / "out", Settings(spacing=(2, 2, 4), patch=(32, 32, 32)))


def patches(prepared: Prepared, patch: tuple[int, int, int] = PATCH, samples: int = 16, seed: int = 5) -> PatchDataset:
    return PatchDataset(prepared, [c.name for c in prepared.cases], patch, seed, samples, STRONG)


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a["image"], b["image"]) and torch.equal(a["label"], b["label"]) and a["case"] == b["case"]
        for a, b in zip(one, other, strict=True)
    )


def test_batches_do_not_depend_on_workers_or_start(prepared: Prepared) -> None:
    def epochs(workers: int) -> list[list[dict[str, Any]]]:
        loader = patch_loader(patches(prepared), 4, workers)
        result = []
        for epoch in (0, 3):
            loader.set_epoch(epoch)
            result.append(list(loader))
        return result

    alone = epochs(0)
    for workers in (1, 2):
        assert all(same(a, b) for a, b in zip(alone, epochs(workers), strict=True))
    assert not same(*alone)  # another epoch, other patches
    resumed = patch_loader(patches(prepared), 4, 0, start_step=2)
    assert len(resumed) == 2
    resumed.dataset.set_epoch(3)
    assert same(list(resumed), alone[1][2:])
    resumed.set_epoch(0)
    assert same(list(resumed), alone[0])  # the next epoch is whole again
    assert not same(list(patch_loader(patches(prepared, seed=6), 4, 0)), alone[0])


def test_batch_is_two_volumes_by_two_crops_every_other_positive(prepared: Prepared) -> None:
    dataset = patches(prepared, samples=40)
    dataset.augmentation = type(STRONG)(flip=(0, 0, 0))
    seen = []
    for batch in patch_loader(dataset, 4, 0):
        assert batch["image"].shape == (4, 2, *PATCH)
        assert (batch["image"].dtype, batch["label"].dtype) == (torch.float32, torch.int64)
        one, two, three, four = batch["case"]
        assert one == two
        assert three == four
        seen += [one, three]
        assert (batch["label"][::2].flatten(1) == 1).any(dim=1).all()
    assert sorted(seen[:4]) == [f"case_{i}" for i in range(4)]  # a permutation before any case comes again


def test_patch_larger_than_the_image_is_padded(prepared: Prepared) -> None:
    sample = patches(prepared, (64, 64, 64))[0]
    assert sample["image"].shape == (2, 64, 64, 64)
    assert sample["label"].sum() > 0


def test_negative_patches_are_centred_outside_labels() -> None:
    label = np.zeros((40, 40, 40), np.uint8)
    label[:, :, 20:] = 1
    points = {1: np.argwhere(label).astype(np.uint16)}
    for index in range(30):
        z = draw_start(generator(0, 0, index), label, points, (8, 8, 8), positive=False)[2]
        assert z + 4 <= 20
        z = draw_start(generator(0, 0, index), label, points, (8, 8, 8), positive=True)[2]
        assert z + 4 >= 20


@pytest.mark.parametrize("fate", ["killed", "untold", "stuck"])
def test_a_worker_that_does_not_answer_is_an_error_and_no_hang(prepared: Prepared, fate: str) -> None:
    command = [sys.executable, str(SUPPORT / "dead_worker.py"), str(prepared.path), fate]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seconds, said = done.stdout.split(" ", 1)
    assert "a data worker died or is stuck" in said
    assert float(seconds) < 30


def test_settings_that_cannot_work(prepared: Prepared) -> None:
    with pytest.raises(ConfigError, match="no case"):
        PatchDataset(prepared, [], PATCH, 0, 8)
    with pytest.raises(ConfigError, match="no multiple of the 2 crops"):
        patch_loader(patches(prepared), 3)


def test_transplants_are_addressed_too_and_bring_lesions(prepared: Prepared) -> None:
    names = [case.name for case in prepared.cases]

    def some(transplant: float) -> PatchDataset:
        return PatchDataset(prepared, names, PATCH, 5, 16, STRONG, transplant=transplant)

    plain, mixed = [[dataset[i] for i in range(16)] for dataset in (some(0.0), some(1.0))]
    assert same([some(1.0)[9]], mixed[9:10])  # whatever was drawn before
    assert [sample["case"] for sample in mixed] == [sample["case"] for sample in plain]
    unlabelled = [number for number, sample in enumerate(plain) if not sample["label"].any()]
    assert unlabelled
    assert any(mixed[number]["label"].any() for number in unlabelled)
