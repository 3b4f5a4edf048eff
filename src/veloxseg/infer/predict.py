"""The whole prediction: scans in, a mask on the scan's own grid out.

    read → check → network grid → windows → back to the scan's grid → post-process → mask with its provenance

>>> result = veloxseg.segment({"ct": "ct.nii.gz", "pet": "pet.nii.gz"}, model="run/model")
>>> result.volumes_ml, result.save("mask.nii.gz")
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.errors import ConfigError
from veloxseg.infer.checks import check_scans
from veloxseg.infer.decoding import Decoding
from veloxseg.infer.estimate import Estimate, estimate
from veloxseg.infer.postprocess import keep_largest, remove_smaller
from veloxseg.infer.provenance import NOTICE, model_record, peak_memory_mb, software_record
from veloxseg.infer.restore import restore
from veloxseg.infer.result import Segmentation
from veloxseg.infer.runtime import Ensemble, Mirrored, Runtime, open_runtime
from veloxseg.infer.scans import Scans
from veloxseg.infer.sliding import Progress, score_slabs
from veloxseg.io import Volume
from veloxseg.modelfolder import ModelFolder
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.transform import Placement, to_network

__all__ = ["Options", "Predictor", "segment"]

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user decides about a prediction."""

    overlap: float = 0.5  # of neighbouring windows
    mirror: bool = False  # mean over the eight mirror images, eight times the work
    probabilities: bool = False
    remove_smaller: float = 0.0  # mL
    keep_largest: bool = False
    max_ram: float | None = None  # GiB


def segment(
    images: Mapping[str, Any],
    model: str | Path | Sequence[str | Path],
    *,
    runtime: str = "auto",
    threads: int | None = None,
    device: str = "cpu",
    **options: Any,
) -> Segmentation:
    """Segments one case: paths, nibabel or SimpleITK images by modality. Several models are an ensemble.

    Further options are the fields of `Options`. Use a `Predictor` for many cases: it opens the model once.
    """
    models = [model] if isinstance(model, str | Path) else list(model)
    predictor = Predictor(models, runtime=runtime, threads=threads, device=device, options=Options(**options))
    return predictor(Scans(images))


class Predictor:
    """One or several models, opened; call it with the scans of a case."""

    def __init__(
        self,
        models: Sequence[str | Path],
        *,
        runtime: str = "auto",
        threads: int | None = None,
        device: str = "cpu",
        options: Options | None = None,
    ) -> None:
        self.options = options or Options()
        if not 0 <= self.options.overlap < 1:
            raise ConfigError(f"overlap is {self.options.overlap}; it must lie in [0, 1), usually 0.5")
        self.folders = [ModelFolder.open(path) for path in models]
        self.plan = _common_plan(self.folders)
        self.decoding = Decoding(self.plan)
        opened = [open_runtime(folder, runtime, threads=threads, device=device) for folder in self.folders]
        self.runtime: Runtime = opened[0] if len(opened) == 1 else Ensemble(opened)
        if self.options.mirror:
            self.runtime = Mirrored(self.runtime)
        self.may_miss = _may_miss(self.folders)
        self._models = [model_record(folder) for folder in self.folders]
        self._seconds_per_window: float | None = None

    @property
    def weights_hashes(self) -> list[str]:
        return [record["weights_sha256"] for record in self._models]

    def reference(self, scans: Scans) -> str:
        """The modality on whose grid the mask is made: the plan's, or the first that is there."""
        return next(n for n in (self.plan.reference, *self.plan.names) if n in scans.sources)

    def estimate(self, scans: Scans) -> Estimate:
        """Time and memory for a case, from its headers and one timed window."""
        scans.check_names(self.plan, self.may_miss)
        return estimate(
            scans.grids(),
            self.reference(scans),
            self.decoding,
            overlap=self.options.overlap,
            seconds_per_window=self._window_time(),
            windows_at_once=self.runtime.windows_at_once,
            members=len(self.folders),
            probabilities=self.options.probabilities,
            torch=self.runtime.name.startswith("torch"),
        )

    def __call__(self, scans: Scans, progress: Progress | None = None) -> Segmentation:
        missing = scans.check_names(self.plan, self.may_miss)
        self.keep_within_memory(scans)
        clock = _Clock()
        reference_name = self.reference(scans)
        image_CXYZ, placement, reference, warnings = self._prepare(scans, missing, reference_name)
        clock.lap("read_and_prepare")
        slabs = score_slabs(
            image_CXYZ, self.runtime, self.plan, overlap=self.options.overlap, progress=progress
        )
        restored = restore(slabs, placement, self.decoding, probabilities=self.options.probabilities)
        clock.lap("windows_and_resampling")
        labels = restored.labels
        self._post_process(labels, reference.geometry.voxel_ml)
        clock.lap("post_process")
        volumes = self._volumes(labels, reference.geometry.voxel_ml)
        record = self._record(scans, reference, placement, warnings, volumes)
        clock.lap("hashes")
        return Segmentation(
            labels=replace(reference, array=labels, warnings=()),
            names={value: name for name, value in self.plan.labels.items()},
            probabilities=restored.probabilities,
            volumes_ml=volumes,
            warnings=warnings,
            provenance={**record, "seconds": clock.laps, "peak_memory_mb": peak_memory_mb()},
        )

    def keep_within_memory(self, scans: Scans) -> None:
        """Reads scans one at a time if `max_ram` asks for it; refuses if that is not enough."""
        limit = self.options.max_ram
        if limit is None:
            return
        expected = self.estimate(scans)
        scans.frugal = expected.gib > limit
        if expected.frugal_gib > limit:
            raise ConfigError(
                f"this case needs about {expected.frugal_gib:.1f} GiB, --max-ram allows {limit:g}; allow more, "
                "or crop the scans"
            )

    def _prepare(
        self, scans: Scans, missing: tuple[str, ...], reference_name: str
    ) -> tuple[Floats, Placement, Volume, tuple[str, ...]]:
        """Network input, its place, the reference scan without its voxels, and what the user should know."""
        plan = _plan_without(self.plan, missing, reference_name)
        found = check_scans(scans, plan)
        image_CXYZ, placement = to_network(scans, plan)
        if missing:
            present = [c for c, name in enumerate(self.plan.names) if name not in missing]
            whole = np.zeros((len(self.plan.names), *image_CXYZ.shape[1:]), np.float32)
            whole[present] = image_CXYZ
            image_CXYZ = whole
        held = scans[reference_name]
        reference = replace(held, array=np.empty((0, 0, 0), np.float32))
        warnings = [f"{name}: {text}" for name, texts in scans.warnings.items() for text in texts]
        warnings += [*found, *(f"{name} is missing; the model was trained for that" for name in missing)]
        scans.release()
        return image_CXYZ, placement, reference, tuple(warnings)

    def _post_process(self, labels: npt.NDArray[Any], voxel_ml: float) -> None:
        if self.options.remove_smaller > 0:
            remove_smaller(labels, self.options.remove_smaller, voxel_ml)
        if self.options.keep_largest:
            keep_largest(labels)

    def _volumes(self, labels: npt.NDArray[Any], voxel_ml: float) -> dict[str, float]:
        counts = np.bincount(labels.ravel(order="K"), minlength=max(self.plan.labels.values()) + 1)
        return {
            name: round(int(counts[value]) * voxel_ml, 6)
            for name, value in self.plan.labels.items()
            if value not in (0, self.plan.ignore_label)
        }

    def _record(
        self,
        scans: Scans,
        reference: Volume,
        placement: Placement,
        warnings: tuple[str, ...],
        volumes: dict[str, float],
    ) -> dict[str, Any]:
        return {
            "notice": NOTICE,
            "software": software_record(),
            "models": self._models,
            "runtime": {"name": self.runtime.name, "threads": self.runtime.threads},
            "options": asdict(self.options),
            "plan": self.plan.to_json(),
            "inputs": scans.hashes(),
            "geometry": {
                "network": placement.network.to_json(),
                "output": reference.geometry.to_json(),
            },
            "warnings": list(warnings),
            "volumes_ml": volumes,
        }

    def _window_time(self) -> float:
        """Of one window, timed once on noise."""
        if self._seconds_per_window is None:
            noise = np.random.default_rng(0).standard_normal(
                (1, len(self.plan.names), *self.plan.patch), np.float32
            )
            start = time.perf_counter()
            self.runtime(noise)
            self._seconds_per_window = time.perf_counter() - start
        return self._seconds_per_window


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = round(now - self._last, 3)
        self._last = now


def _common_plan(folders: Sequence[ModelFolder]) -> Plan:
    """The plan of all members of an ensemble; they must agree on what goes in and out."""
    first = folders[0].plan
    for folder in folders[1:]:
        plan = folder.plan
        for what in ("modalities", "spacing", "patch", "labels", "regions"):
            if getattr(plan, what) != getattr(first, what):
                raise ConfigError(
                    f"{folder.path} and {folders[0].path} differ in {what}; an ensemble needs models of one plan"
                )
    return first


def _may_miss(folders: Sequence[ModelFolder]) -> tuple[str, ...]:
    """Modalities that every model was trained to do without."""
    lists = [folder.provenance.get("missing_modalities", ()) for folder in folders]
    return tuple(name for name in folders[0].plan.names if all(name in names for names in lists))


def _plan_without(plan: Plan, missing: tuple[str, ...], reference: str) -> Plan:
    if not missing:
        return plan
    return replace(
        plan,
        reference=reference,
        modalities=tuple(modality for modality in plan.modalities if modality.name not in missing),
    )
