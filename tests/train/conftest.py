"""What the tests of training share; `tiny_training.py` is also used by the script that is killed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cases import *  # noqa: F403
from support.tiny_training import TINY, plan_of, write_prepared
from veloxseg.model.config import PRESETS


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cases to train on, one to validate on."""
    folder = tmp_path_factory.mktemp("data") / "prepared"
    return write_prepared(folder, plan_of(), {"a": "train", "b": "train", "c": "validation"})


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    monkeypatch.setitem(PRESETS, "tiny", TINY)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def quick() -> dict[str, Any]:
    """Settings of a training of seconds."""
    return {"model": "tiny", "batch": 2, "epochs": 2, "warmup_epochs": 0, "validate_every": 1, "learning_rate": 2e-3}
