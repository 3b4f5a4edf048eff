"""The RUN folder: settings.json (what was asked for), run.json (what happened), model/ (a MODEL).

RUN/settings.json  run.json  train.log  progress.csv  progress.png  checkpoints/  model/  tensorboard/
"""

import contextlib
import datetime
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from veloxseg.errors import ModelError, OutputError, VeloxSegError, shown
from veloxseg.files import atomic_path, claimed, read_json, sha256, writable_folder, write_json
from veloxseg.machine import processor, software, versions
from veloxseg.model_folder import ModelFolder
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.store import Prepared
from veloxseg.schema import build
from veloxseg.train.checkpoint import Best, checkpoint_path
from veloxseg.train.first_weights import FirstWeights
from veloxseg.train.going_on import Extension
from veloxseg.train.recipe import Recipe

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Run", "StoredSettings", "data_hash", "machine"]

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class StoredSettings:
    """settings.json."""

    format: int = FORMAT
    data: str  # the hash of the data that the training was started with
    settings: Recipe
    why: tuple[str, ...] = ()  # reasons for what was chosen and not asked for (choose.py)
    extended: tuple[Extension, ...] = ()
    first_weights: FirstWeights | None = None

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"format": self.format, "data": self.data, "settings": self.settings.to_json()}
        if self.why:
            value["why"] = list(self.why)
        if self.extended:
            value["extended"] = [asdict(extension) for extension in self.extended]
        if self.first_weights is not None:
            value["first_weights"] = self.first_weights.to_json()
        return value


class Run:
    """Paths and readable files of a training."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.model = self.path / "model"
        self.settings = self.path / "settings.json"
        self.log = self.path / "train.log"

    @property
    def exists(self) -> bool:
        return self.settings.is_file()

    def checkpoint(self, step: int) -> Path:
        return checkpoint_path(self.checkpoints, step)

    @contextlib.contextmanager
    def claim(self, fabric: "Fabric", stored: StoredSettings, *, resume: bool) -> Iterator[None]:
        """Makes the folder, holds it against other trainings and writes settings.json.

        The first process does it, since the others may come later and find the folder begun; if it fails, all do.
        """
        problem: VeloxSegError | None = None
        with contextlib.ExitStack() as held:
            if fabric.is_global_zero:
                try:
                    writable_folder(self.path)
                    held.enter_context(claimed(self.path))
                    if self.exists and not resume:
                        raise OutputError(
                            f"{self.path} holds a training already; add --continue, or choose another folder"
                        )
                    write_json(self.settings, stored.to_json())
                except VeloxSegError as error:
                    problem = error
            if (problem := fabric.broadcast(problem)) is not None:
                raise problem
            yield

    def read_settings(self) -> StoredSettings:
        value = read_json(self.settings)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ModelError(f"{self.settings} is not of format {FORMAT}; start again in another folder")
        stored: StoredSettings = build(
            StoredSettings, value, shown(self.settings), ModelError, "start again in another folder"
        )
        return stored

    def write_record(self, record: dict[str, Any]) -> None:
        write_json(self.path / "run.json", record)

    def write_model(
        self, network: nn.Module, architecture: str, settings: dict[str, Any], plan: Plan, provenance: dict[str, Any]
    ) -> None:
        """Writes the weights first: a kill in between leaves weights with an older description, never one without."""
        from safetensors.torch import save

        self.model.mkdir(parents=True, exist_ok=True)
        folder = ModelFolder(
            path=self.model, architecture=architecture, network=settings, plan=plan, provenance=provenance
        )
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
        with atomic_path(folder.weights) as temporary:
            temporary.write_bytes(save(weights))
        provenance["weights_sha256"] = sha256(folder.weights)
        folder.write_description()

    def model_is(self, best: Best) -> bool:
        """Whether model/ holds the weights of `best`, whole."""
        try:
            folder = ModelFolder.open(self.model)
            return folder.provenance.get("steps") == best.step and folder.provenance.get("weights_sha256") == sha256(
                folder.weights
            )
        except (ModelError, OSError):
            return False


def data_hash(prepared: Prepared) -> str:
    """The hash of the plan, the splits and every case's voxels; files that were copied or touched are the same data."""
    digest = hashlib.sha256()
    for path in [prepared.path / "plan.json", prepared.path / "cases.json"]:
        digest.update(path.read_bytes())
    for case in prepared.cases:
        digest.update(f"{case.name}:{prepared.content(case.name)}".encode())
    return digest.hexdigest()


def machine(processes: int) -> dict[str, Any]:
    """Versions and hardware, for run.json. No names of people or computers."""
    import torch

    return {
        **software(),
        **versions("torch", "numpy", "lightning_fabric"),
        "processor": processor(),
        "processes": processes,
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": " ".join(["veloxseg", *sys.argv[1:]]),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
