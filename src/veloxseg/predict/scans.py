"""The scans of one case by modality: read when needed, let go if memory is short, and checked to belong together."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.errors import DatasetError, GeometryError, ImageError, shown
from veloxseg.files import sha256
from veloxseg.image import Geometry, Volume, from_image, read, read_header
from veloxseg.image.align import alignment_warnings
from veloxseg.image.content import content_hash
from veloxseg.modality import KINDS, canonical_name
from veloxseg.prepare.plan import Plan

__all__ = ["Scans"]


class Scans(Mapping[str, Volume]):
    """Paths, nibabel or SimpleITK images by modality name.

    With `frugal` only the scan that was asked for last is in memory; another one is read again when needed.
    `picks` chooses one of several series in a folder, or one volume of a 4-D file: {"pet": {"series": "PT"}}.
    `name` is the case's, where it has one.
    """

    def __init__(
        self,
        sources: Mapping[str, Any],
        *,
        name: str | None = None,
        frugal: bool = False,
        picks: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        if not isinstance(sources, Mapping):
            raise DatasetError(f"{shown(sources)} is no case; give scans by modality, such as {{'ct': 'ct.nii.gz'}}")
        self.sources = {canonical_name(name): source for name, source in sources.items()}
        if len(self.sources) < len(sources):
            raise DatasetError(f"a modality is given twice in {', '.join(sources)}; name each once")
        self.frugal = frugal
        self.memory_is_planned = False  # whether `frugal` was decided by a limit of memory
        self.picks = dict(picks or {})
        self.warnings: dict[str, tuple[str, ...]] = {}
        self._held: dict[str, Volume] = {}
        self.name = name
        self.contents: dict[str, str] = {}  # modality -> content hash of what was read
        self._hashes: dict[str, dict[str, str]] | None = None

    def __getitem__(self, name: str) -> Volume:
        if name not in self._held:
            source = self.sources[name]
            if self.frugal:
                self._held.clear()
            if isinstance(source, str | Path):
                volume = read(source, **self.picks.get(name, {}))
            else:
                volume = from_image(source)
            self._held[name] = volume
            if name not in self.contents:
                self.contents[name] = content_hash(volume)
            self.warnings[name] = volume.warnings
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files and folders among the sources."""
        return tuple(Path(source) for source in self.sources.values() if isinstance(source, str | Path))

    def release(self) -> None:
        """Lets the voxels go; they are read again if asked for."""
        self._held.clear()

    def grids(self) -> dict[str, Geometry]:
        """Where each scan lies, without reading voxels where a header tells."""
        return {name: self._grid(name) for name in self.sources}

    def _grid(self, name: str) -> Geometry:
        source = self.sources[name]
        if name in self._held or not isinstance(source, str | Path):
            return self[name].geometry
        return read_header(source, series=self.picks.get(name, {}).get("series")).grid()

    def hashes(self) -> dict[str, dict[str, str]]:
        """Name and SHA-256 of each input; the folder it lies in may name a patient and is left out."""
        if self._hashes is None:
            self._hashes = {name: self._hash(name, source) for name, source in self.sources.items()}
        return self._hashes

    def _hash(self, name: str, source: Any) -> dict[str, str]:
        if isinstance(source, str | Path):
            try:
                return {"file": Path(source).name, "sha256": sha256(source)}
            except OSError as error:
                reason = shown(error.strerror or error)
                raise ImageError(f"{shown(source)}: cannot be read ({reason}); check the path") from error
        voxels = np.ascontiguousarray(self[name].array)
        found = hashlib.sha256(f"{voxels.dtype} {voxels.shape} {self[name].geometry.affine.tolist()}".encode())
        found.update(voxels.data)
        return {"file": "in memory", "sha256": found.hexdigest()}

    # -- do they belong to the model, and together? ----------------------------------------------------------------

    def missing(self, plan: Plan, may_miss: tuple[str, ...]) -> tuple[str, ...]:
        """The modalities that are missing and may be; anything else that does not fit is an error."""
        if unknown := [name for name in self.sources if name not in plan.names]:
            raise DatasetError(
                f"modality {shown(', '.join(unknown))} is unknown to the model; it takes {', '.join(plan.names)}"
            )
        missing = tuple(name for name in plan.names if name not in self.sources)
        if not self.sources or any(name not in may_miss for name in missing):
            allowed = f"trained to do without {', '.join(may_miss)} only" if may_miss else "not trained to do without"
            raise DatasetError(
                f"modality {', '.join(missing)} is missing, found {', '.join(self.sources) or 'nothing'}; "
                f"the model is {allowed}: give {', '.join(plan.names)}"
            )
        return missing

    def check_together(self, plan: Plan) -> list[str]:
        """Refuses scans that lie apart or are swapped; returns what the user should know about the rest."""
        _check_place(self.grids(), plan.reference)
        if len(self) < 2:
            return []
        kinds = {modality.name: modality.kind for modality in plan.modalities}
        _check_swapped({name: float(self[name].array.min()) for name in self}, kinds)
        return alignment_warnings(self, plan.reference, kinds)[1]


def _check_swapped(lowest: Mapping[str, float], kinds: Mapping[str, str]) -> None:
    """CT shows air as -1000; a CT without it beside another scan with it means that the two were swapped."""
    odd = {name for name, value in lowest.items() if not _is_plausible(value, kinds[name])}
    for ct in (name for name in odd if kinds[name] == "ct"):
        for other in (name for name in odd if kinds[name] != "ct"):
            raise DatasetError(
                f"{ct} has no value below {KINDS['ct'].body_above:g} ({lowest[ct]:g} is the lowest) but {other} has "
                f"({lowest[other]:g}); {ct} and {other} look swapped"
            )


def _is_plausible(lowest: float, kind: str) -> bool:
    limits = KINDS[kind].lowest
    return limits is None or limits[0] <= lowest <= limits[1]


def _check_place(grids: Mapping[str, Geometry], reference: str) -> None:
    """Scans of one case lie in the same place; those that do not even touch were mixed up."""
    low, high = grids[reference].bounds()
    for name, grid in grids.items():
        other_low, other_high = grid.bounds()
        gap = float(np.maximum(other_low - high, low - other_high).max())
        if gap > 0:
            raise GeometryError(
                f"{name} and {reference} lie {gap:.0f} mm apart and have no place in common; "
                "are they of the same examination? Register them first"
            )
