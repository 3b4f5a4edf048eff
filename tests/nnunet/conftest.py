"""nnU-Net's folders with two tiny data sets, planned and trained once for all tests that need nnU-Net."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.models import *  # noqa: F403
from support.nnunet_data import write_dataset

SUPPORT = Path(__file__).parents[1] / "support"
NAMES = {"classes": "Dataset901_Classes", "regions": "Dataset902_Regions"}
TRAINER = "nnUNetTrainerVeloxSeg"
PATCH = ("32", "32", "64")
RECIPE = "steps_per_epoch=25 learning_rate=4e-3"  # enough to tell the classes apart


@dataclass(frozen=True)
class Workshop:
    """nnU-Net's three folders, and commands in them. nnU-Net starts processes, so each command is one of its own."""

    root: Path

    def environment(self) -> dict[str, str]:
        folders = {f"nnUNet_{name}": str(self.root / name) for name in ("raw", "preprocessed", "results")}
        return {**os.environ, **folders, "nnUNet_n_proc_DA": "1", "nnUNet_def_n_proc": "1", "OMP_NUM_THREADS": "1"}

    def run(self, *arguments: str) -> str:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=800)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def train(self, kind: str, fold: int, *options: str) -> str:
        folders = ["--preprocessed", str(self.root / "preprocessed"), "--results", str(self.root / "results")]
        small = ["--patch", *PATCH, "--set", f"epochs=2 {RECIPE}", "--workers", "1"]
        number = NAMES[kind][7:10]
        arguments = ["nnunet", "train", number, "3d_fullres", str(fold), *folders, *small, "--threads", "1", *options]
        return self.run("-m", "veloxseg", *arguments)

    def results(self, kind: str, trainer: str = TRAINER) -> Path:
        return self.root / "results" / NAMES[kind] / f"{trainer}__nnUNetPlans__3d_fullres"

    def images(self, kind: str) -> Path:
        return self.root / "raw" / NAMES[kind] / "imagesTr"

    def preprocessed(self, kind: str) -> Path:
        return self.root / "preprocessed" / NAMES[kind]

    def plans(self, kind: str) -> dict:
        return json.loads((self.preprocessed(kind) / "nnUNetPlans.json").read_text())

    def dataset_json(self, kind: str) -> dict:
        return json.loads((self.preprocessed(kind) / "dataset.json").read_text())


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Both data sets, planned and preprocessed by nnU-Net."""
    pytest.importorskip("nnunetv2", reason="needs the extra nnunet; `make test-nnunet` has it")
    shop = Workshop(tmp_path_factory.mktemp("nnunet"))
    for kind, name in NAMES.items():
        write_dataset(shop.root / "raw", name, kind)
    shop.run(str(SUPPORT / "nnunet_plan.py"), *(name[7:10] for name in NAMES.values()))
    return shop


@pytest.fixture(scope="session")
def trained(workshop: Workshop) -> Workshop:
    """Fold 0 of both, and fold 1 of the classes, with teachers."""
    workshop.train("classes", 0, "--npz")
    workshop.train("classes", 1, "--npz")
    workshop.train("regions", 0)
    return workshop


@pytest.fixture
def nnunet_folders(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """nnU-Net's variables in this process, for one test."""
    for name, value in workshop.environment().items():
        if name.startswith("nnUNet_"):
            monkeypatch.setenv(name, value)


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Commands set nnU-Net's variables for their process; here they are gone after each test."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
