"""The whole prediction: scans in, a mask on the scan's own grid out.

    read → check → network grid → windows → back to the scan's grid → post-process → mask with its provenance

>>> result = veloxseg.segment({"ct": "ct.nii.gz", "pet": "pet.nii.gz"}, model="run/model")
>>> result.volumes_ml, result.save("mask.nii.gz")
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from veloxseg.dataset.seen import Seen, look_up
from veloxseg.errors import ConfigError
from veloxseg.files import digest, sha256
from veloxseg.image import Volume
from veloxseg.machine import NOTICE, peak_rss_mb, rss_mb, software
from veloxseg.model_folder import ModelFolder, members
from veloxseg.predict.estimate import Estimate, WindowCost, estimate
from veloxseg.predict.pipelines import PIPELINES, strips_of
from veloxseg.predict.postprocess import keep_largest, remove_smaller
from veloxseg.predict.result import Segmentation
from veloxseg.predict.scans import Scans
from veloxseg.predict.sliding import Progress, score_slabs
from veloxseg.prepare.plan import Plan
from veloxseg.runtimes import RUNTIMES, open_runtime
from veloxseg.runtimes.decoding import Decoding
from veloxseg.runtimes.runtime import Ensemble, Mirrored, Runtime
from veloxseg.schema import Range, Share, settle
from veloxseg.types import Floats

__all__ = ["Options", "Predictor", "segment"]

MB = 1 << 20
Millilitres = Annotated[float, Range(0, 1e6)]
Gibibytes = Annotated[float, Range(0.01, 1e6)]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the user decides about a prediction."""

    overlap: Share = 0.5  # of neighbouring windows
    mirror: bool | None = None  # mean over the eight mirror images, eight times the work; None: as the model says
    probabilities: bool = False
    remove_smaller: Millilitres = 0.0  # smaller components are dropped
    keep_largest: bool = False
    max_ram: Gibibytes | None = None

    def __post_init__(self) -> None:
        settle(self)

    def deciding(self) -> dict[str, Any]:
        """What changes the result; how much memory is used does not."""
        return {name: value for name, value in asdict(self).items() if name != "max_ram"}


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
    scans = Scans(images)  # what is no case is said before a model is opened
    models = [model] if isinstance(model, str | Path) else list(model)
    predictor = Predictor(models, runtime=runtime, threads=threads, device=device, options=Options(**options))
    return predictor(scans)


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
        self.folders = [ModelFolder.open(member) for path in models for member in members(path)]
        self.plan = _common_plan(self.folders)
        self.pipeline = PIPELINES[self.plan.pipeline]
        self.decoding = Decoding(self.plan)
        opened = [open_runtime(folder, runtime, threads=threads, device=device) for folder in self.folders]
        self.runtime: Runtime = opened[0] if len(opened) == 1 else Ensemble(opened)
        if self.plan.mirror if self.options.mirror is None else self.options.mirror:
            self.runtime = Mirrored(self.runtime, _mirror_axes(self.plan))
        self.may_miss = _may_miss(self.folders)
        self._models = [model_record(folder, member.name) for folder, member in zip(self.folders, opened, strict=True)]

    @cached_property
    def _window(self) -> WindowCost:
        """Time and memory of one window, measured once on noise."""
        before, start = rss_mb() or 0.0, time.perf_counter()
        random = np.random.default_rng(0)
        self.runtime(random.standard_normal((1, len(self.plan.names), *self.plan.patch), np.float32))
        seconds = time.perf_counter() - start
        after = rss_mb() or 0.0
        return WindowCost(seconds=seconds, bytes=max(0.0, after - before) * MB, program=after * MB)

    def request(self, scans: Scans) -> str:
        """All that decides the mask of a case, as one hash."""
        picks = {name: dict(picks) for name, picks in scans.picks.items() if name in scans.sources}
        asked = {"inputs": scans.hashes(), "picks": picks, "models": self._models, "plan": self.plan.to_json()}
        return digest({**asked, "options": self.options.deciding()})

    def seen(self, scans: Scans) -> Seen:
        """Whether a model was trained on this case, by the scans that were read."""
        return look_up(scans.name, scans.contents.values(), [folder.learning for folder in self.folders])

    def reference(self, scans: Scans) -> str:
        """The modality on whose grid the mask is made: the plan's, or the first that is there."""
        return next(n for n in (self.plan.reference, *self.plan.names) if n in scans.sources)

    def estimate(self, scans: Scans) -> Estimate:
        """Time and memory for a case, from its headers and one timed window."""
        scans.missing(self.plan, self.may_miss)
        return estimate(
            scans.grids(),
            self.reference(scans),
            self.decoding,
            overlap=self.options.overlap,
            window=self._window,
            windows_at_once=self.runtime.windows_at_once,
            probabilities=self.options.probabilities,
        )

    def __call__(self, scans: Scans, progress: Progress | None = None) -> Segmentation:
        missing = scans.missing(self.plan, self.may_miss)
        self.keep_within_memory(scans)
        clock = _Clock()
        reference_name = self.reference(scans)
        image_CXYZ, placement, reference, warnings = self._prepare(scans, missing, reference_name)
        clock.lap("read_and_prepare")
        slabs = score_slabs(
            image_CXYZ,
            self.runtime,
            self.plan,
            overlap=self.options.overlap,
            progress=progress,
            own_weights=self.pipeline.weights(self.plan.patch),
            strips=strips_of(image_CXYZ.shape[1:], reference.geometry, self.decoding),
        )
        restored = self.pipeline.restore(slabs, placement, self.decoding, probabilities=self.options.probabilities)
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
            provenance={**record, "seconds": clock.laps, "peak_memory_mb": peak_rss_mb()},
            sources=scans.paths,
        )

    def keep_within_memory(self, scans: Scans) -> None:
        """Reads scans one at a time if `max_ram` asks for it; refuses if that is not enough."""
        limit = self.options.max_ram
        if limit is None or scans.memory_is_planned:
            return
        scans.memory_is_planned = True
        expected = self.estimate(scans)
        scans.frugal = expected.gib > limit
        if expected.frugal_gib > limit:
            raise ConfigError(
                f"this case needs about {expected.frugal_gib:.1f} GiB, --max-ram allows {limit:g}; allow more, "
                "or crop the scans"
            )

    def _prepare(
        self, scans: Scans, missing: tuple[str, ...], reference_name: str
    ) -> tuple[Floats, Any, Volume, tuple[str, ...]]:
        """Network input, its place, the reference scan without its voxels, and what the user should know."""
        plan = _plan_without(self.plan, missing, reference_name)
        found = scans.check_together(plan)
        image_CXYZ, placement = self.pipeline.to_network(scans, plan)
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
        counts = np.zeros(max(self.plan.labels.values()) + 1, np.int64)
        for plane in np.moveaxis(labels, -1, 0):  # plane by plane: counting makes a copy of eight bytes for each voxel
            counts += np.bincount(plane.ravel(order="K"), minlength=len(counts))
        return {
            name: round(int(counts[value]) * voxel_ml, 6)
            for name, value in self.plan.labels.items()
            if value not in (0, self.plan.ignore_label)
        }

    def _record(
        self, scans: Scans, reference: Volume, placement: Any, warnings: tuple[str, ...], volumes: dict[str, float]
    ) -> dict[str, Any]:
        return {
            "notice": NOTICE,
            "software": software(),
            "models": self._models,
            "runtime": {"name": self.runtime.name, "threads": self.runtime.threads},
            "options": asdict(self.options),
            "plan": self.plan.to_json(),
            "inputs": scans.hashes(),
            "learning": self.seen(scans).to_json(),
            "geometry": {"network": placement.network.to_json(), "output": reference.geometry.to_json()},
            "warnings": list(warnings),
            "volumes_ml": volumes,
        }


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
        for what in ("pipeline", "modalities", "spacing", "patch", "labels", "regions", "nnunet", "mirror"):
            if getattr(plan, what) != getattr(first, what):
                raise ConfigError(
                    f"{folder.path} and {folders[0].path} differ in {what}; an ensemble needs models of one plan"
                )
    return first


def _mirror_axes(plan: Plan) -> tuple[int, ...]:
    """All of ours; of nnU-Net those along which the training mirrored."""
    if plan.nnunet is None:
        return 0, 1, 2
    if not plan.nnunet.mirror_axes:
        raise ConfigError("--mirror: this model was trained in nnU-Net without mirroring; leave --mirror out")
    return plan.nnunet.mirror_axes


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


def model_record(folder: ModelFolder, runtime: str) -> dict[str, Any]:
    """Which model: the weights that it says it has, and the hash of the files that are really opened."""
    graph = [folder.path / name for name in RUNTIMES[runtime].files] if runtime in RUNTIMES else []
    files = [folder.weights] if folder.weights.is_file() else graph
    opened = sha256(files[0]) if len(files) == 1 else digest([sha256(file) for file in files])
    return {
        "name": folder.path.name,
        "architecture": folder.architecture,
        "weights_sha256": opened if folder.weights.is_file() else folder.provenance.get("weights_sha256"),
        "opened_sha256": opened,
        "network": folder.network,
    }
