"""A MODEL folder: `model.safetensors` (inference weights, no teacher) and `model.json` (all else).

`model.json` holds the network's configuration, modalities in order, labels, the preprocessing plan and the
provenance. Nothing here imports torch: `veloxseg info` and the torch-free runtimes read the same folder.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veloxseg.errors import ModelError
from veloxseg.files import read_json, write_json
from veloxseg.prepare.plan import Plan

__all__ = ["ModelFolder", "find_model"]

FORMAT = 1
JSON_NAME = "model.json"
WEIGHTS_NAME = "model.safetensors"


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """The description of a model; weights stay in their file until a runtime asks for them."""

    path: Path
    architecture: str  # "veloxseg" or the name of a peer
    network: dict[str, Any]  # arguments of the network's configuration
    plan: Plan
    provenance: dict[str, Any]

    @property
    def weights(self) -> Path:
        return self.path / WEIGHTS_NAME

    def write_description(self) -> None:
        write_json(
            self.path / JSON_NAME,
            {
                "format": FORMAT,
                "architecture": self.architecture,
                "network": self.network,
                "modalities": list(self.plan.names),
                "labels": self.plan.labels,
                "plan": self.plan.to_json(),
                "provenance": self.provenance,
            },
        )

    @classmethod
    def open(cls, path: str | Path) -> "ModelFolder":
        """Opens a MODEL folder, or a RUN folder that contains one."""
        path = find_model(path)
        value = read_json(path / JSON_NAME)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise ModelError(
                f"{path / JSON_NAME} is not a model description of format {FORMAT}; export it again"
            )
        missing = {"architecture", "network", "plan", "provenance"} - value.keys()
        if missing:
            raise ModelError(f"{path / JSON_NAME} lacks {', '.join(sorted(missing))}; export the model again")
        return cls(
            path=path,
            architecture=value["architecture"],
            network=value["network"],
            plan=Plan.from_json(value["plan"]),
            provenance=value["provenance"],
        )


def find_model(path: str | Path) -> Path:
    """The folder with `model.json`: `path` itself, or `path/model` if `path` is a training run."""
    path = Path(path)
    for folder in (path, path / "model"):
        if (folder / JSON_NAME).is_file():
            return folder
    if path.suffix in {".pth", ".pt", ".ckpt", ".pkl"}:
        raise ModelError(
            f"{path} is a pickle, which can run code when opened; `veloxseg convert` reads released weights safely"
        )
    raise ModelError(
        f"{path} is no model: {JSON_NAME} is not in it; give a folder made by train, export or convert"
    )
