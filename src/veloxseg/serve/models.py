"""The models that a server offers, by name: what each needs, and which fits the scans that arrived."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veloxseg.errors import ConfigError
from veloxseg.model_folder import ModelFolder

__all__ = ["Model", "open_models"]


@dataclass(frozen=True, kw_only=True)
class Model:
    """What the server and the workers know of a model without opening its weights."""

    name: str
    path: Path
    kinds: dict[str, str]  # modality -> ct, pet, mr or other, in the model's order
    reference: str  # the modality on whose grid the mask is made
    labels: dict[str, int]
    may_miss: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "modalities": list(self.kinds),
            "reference": self.reference,
            "labels": self.labels,
            "may_miss": list(self.may_miss),
        }


def open_models(paths: Sequence[str | Path]) -> dict[str, Model]:
    """Each folder is a model of its own, named after the folder (that of the run, if it lies in one)."""
    models: dict[str, Model] = {}
    for path in paths:
        folder = ModelFolder.open(path)
        place = folder.path.resolve()
        name = place.parent.name if place.name == "model" else place.name
        if name in models:
            raise ConfigError(f"two models are called {name}; rename the folder of one of them")
        plan = folder.plan
        models[name] = Model(
            name=name,
            path=place,
            kinds={modality.name: modality.kind for modality in plan.modalities},
            reference=plan.reference,
            labels=dict(plan.labels),
            may_miss=tuple(folder.provenance.get("missing_modalities", ())),
        )
    return models
