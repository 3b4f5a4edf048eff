"""The RUN folder: settings.json (what was asked for), run.json (what happened), model/ (a MODEL).

RUN/settings.json  run.json  progress.csv  progress.png  checkpoints/  model/  tensorboard/
"""

import datetime
import hashlib
import platform
import sys
from pathlib import Path
from typing import Any

from torch import nn

from veloxseg import __version__
from veloxseg.errors import ConfigError, ModelError
from veloxseg.files import atomic_path, read_json, sha256, write_json
from veloxseg.modelfolder import ModelFolder
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.store import Prepared
from veloxseg.train.checkpoint import checkpoint_path
from veloxseg.train.recipe import Recipe
from veloxseg.train.state import Best

__all__ = ["Run", "data_hash", "machine", "reconcile"]

FORMAT = 1


class Run:
    """Paths and readable files of a training."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.model = self.path / "model"
        self.settings = self.path / "settings.json"

    @property
    def exists(self) -> bool:
        return self.settings.is_file()

    def checkpoint(self, step: int) -> Path:
        return checkpoint_path(self.checkpoints, step)

    def write_settings(self, recipe: Recipe, data: str) -> None:
        write_json(self.settings, {"format": FORMAT, "data": data, "settings": recipe.to_json()})

    def read_settings(self) -> tuple[Recipe, str]:
        """The stored recipe and the hash of the data that it was started with."""
        value = read_json(self.settings)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ModelError(f"{self.settings} is not of format {FORMAT}; start again in another folder")
        return Recipe.from_json(value["settings"]), str(value["data"])

    def write_model(
        self,
        network: nn.Module,
        architecture: str,
        settings: dict[str, Any],
        plan: Plan,
        provenance: dict[str, Any],
    ) -> None:
        """Weights first: a kill in between leaves a description that is older than its weights, never one without."""
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
            return folder.provenance.get("steps") == best.step and folder.provenance.get(
                "weights_sha256"
            ) == sha256(folder.weights)
        except (ModelError, OSError):
            return False


def reconcile(stored: Recipe, asked: dict[str, Any]) -> Recipe:
    """The recipe to continue with: the stored one. What is asked for otherwise on the command line is an error."""
    values = stored.to_json()
    differing = [
        f"{name} ({values[name]!r} stored, {value!r} asked)"
        for name, value in asked.items()
        if (list(value) if isinstance(value, tuple) else value) != values[name]
    ]
    if differing:
        raise ConfigError(
            f"--continue keeps the run's settings, but these differ: {', '.join(differing)}; "
            "leave them out, or train in another folder"
        )
    return stored


def data_hash(prepared: Prepared) -> str:
    """Of the plan, the splits and every case's voxels; files that were copied or touched are the same data."""
    digest = hashlib.sha256()
    for path in [prepared.path / "plan.json", prepared.path / "cases.json"]:
        digest.update(path.read_bytes())
    for case in prepared.cases:
        digest.update(f"{case.name}:{prepared.content(case.name)}".encode())
    return digest.hexdigest()


def machine(processes: int) -> dict[str, Any]:
    """Versions and hardware, for run.json. No names of people or computers."""
    import lightning_fabric
    import numpy
    import torch

    return {
        "veloxseg": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "lightning_fabric": lightning_fabric.__version__,
        "system": platform.platform(),
        "processor": _processor(),
        "processes": processes,
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": " ".join(["veloxseg", *sys.argv[1:]]),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()
