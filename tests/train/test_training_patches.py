"""What reaches the network: the same patches for any number of processes, modalities as asked."""

from pathlib import Path
from typing import Any

import pytest
import torch

from veloxseg.errors import ConfigError
from veloxseg.prepare.store import Prepared
from veloxseg.train.patches import training_loader
from veloxseg.train.recipe import Recipe


def batches(prepared: Path, recipe: Recipe, **more: Any) -> list[dict[str, Any]]:
    return list(training_loader(Prepared.open(prepared), ("a", "b"), recipe, **more))


def test_two_processes_share_what_one_sees(prepared: Path) -> None:
    recipe = Recipe(steps_per_epoch=3, modality_dropout=0.5)
    whole = batches(prepared, recipe)
    halves = [batches(prepared, recipe, rank=rank, world=2) for rank in (0, 1)]
    for step in range(3):
        together = torch.cat([half[step]["image"] for half in halves])
        assert torch.equal(together, whole[step]["image"])


def test_an_epoch_can_be_entered_at_any_step(prepared: Path) -> None:
    recipe = Recipe(steps_per_epoch=3)
    whole = batches(prepared, recipe, epoch=5)
    rest = batches(prepared, recipe, epoch=5, start_step=2)
    assert len(rest) == 1
    assert torch.equal(rest[0]["image"], whole[2]["image"])


def test_chosen_modalities_only(prepared: Path) -> None:
    both = batches(prepared, Recipe())[0]["image"]
    pet = batches(prepared, Recipe(modalities=("pet",)))[0]["image"]
    assert torch.equal(pet, both[:, 1:])


def test_modality_dropout_never_takes_all(prepared: Path) -> None:
    samples = torch.cat([b["image"] for b in batches(prepared, Recipe(steps_per_epoch=20, modality_dropout=0.5))])
    blank = (samples == 0).flatten(2).all(2)  # sample, modality
    assert not blank.all(1).any()
    assert 0.25 < blank.any(1).float().mean() < 0.75
    assert blank[:, 0].any()
    assert blank[:, 1].any()
    alone = batches(prepared, Recipe(steps_per_epoch=10, modality_dropout=0.9, modalities=("ct",)))
    assert not any((b["image"] == 0).flatten(1).all(1).any() for b in alone)


def test_a_batch_that_cannot_be_shared_is_refused(prepared: Path) -> None:
    with pytest.raises(ConfigError, match="batch=12"):
        batches(prepared, Recipe(), world=6)
