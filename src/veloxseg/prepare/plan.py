"""The plan: every decision of preprocessing in one readable JSON, shared by training and prediction."""

from dataclasses import asdict, dataclass
from typing import Any

from veloxseg.errors import ModelError

__all__ = ["ModalityPlan", "Normalisation", "Plan"]

FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """How intensities become network input.

    `clip_zscore`: clip to [low, high], then (x - mean) / std with the data set's own numbers (CT).
    `zscore_body`: (x - mean) / std of the case itself, over its body voxels (PET, MR).
    `none`: as they are.
    """

    scheme: str
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    std: float | None = None


@dataclass(frozen=True, kw_only=True)
class ModalityPlan:
    name: str  # "ct", "pet", "t1", "flair", ...: modalities are known by name, never by number
    kind: str  # "ct", "pet", "mr" or "other": decides resampling and normalisation
    normalisation: Normalisation


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What preprocessing does. The order of `modalities` is the order of the network's input channels."""

    dataset: str
    modalities: tuple[ModalityPlan, ...]
    reference: str  # the modality whose grid the others, and the labels, are brought to
    spacing: tuple[float, float, float]  # millimetres, array axes of the closest RAS orientation
    patch: tuple[int, int, int]
    windows: tuple[tuple[int, int, int], ...]  # minimum big window of PWA per stage
    labels: dict[str, int]  # with "background": 0
    regions: dict[str, tuple[int, ...]] | None = (
        None  # overlapping targets (BraTS WT/TC/ET), one sigmoid each
    )
    ignore_label: int | None = None
    register: str = "none"  # "rigid" or "affine": modalities are first registered to the reference
    format: int = FORMAT

    @property
    def names(self) -> tuple[str, ...]:
        """Modality names in channel order."""
        return tuple(modality.name for modality in self.modalities)

    @property
    def outputs(self) -> tuple[str, ...]:
        """What each output channel of the network stands for: regions, or all labels with background first."""
        if self.regions is not None:
            return tuple(self.regions)
        return tuple(
            sorted((n for n, v in self.labels.items() if v != self.ignore_label), key=self.labels.__getitem__)
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Plan":
        if value.get("format") != FORMAT:
            raise ModelError(
                f"plan has format {value.get('format')}, this version reads {FORMAT}; prepare the data anew"
            )
        try:
            return cls(
                **{
                    **value,
                    "modalities": tuple(
                        ModalityPlan(**{**m, "normalisation": Normalisation(**m["normalisation"])})
                        for m in value["modalities"]
                    ),
                    "spacing": tuple(value["spacing"]),
                    "patch": tuple(value["patch"]),
                    "windows": tuple(tuple(window) for window in value["windows"]),
                    "regions": value.get("regions") and {n: tuple(v) for n, v in value["regions"].items()},
                }
            )
        except (KeyError, TypeError) as error:
            raise ModelError(
                f"plan is incomplete or has an unknown entry ({error}); prepare the data anew"
            ) from error
