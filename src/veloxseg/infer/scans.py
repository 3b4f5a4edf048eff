"""The scans of one case by modality, read when they are first needed and, if memory is short, let go between uses."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.errors import DatasetError
from veloxseg.files import sha256
from veloxseg.io import Geometry, Volume, from_image, read, read_header
from veloxseg.prepare.modality import canonical_name
from veloxseg.prepare.plan import Plan

__all__ = ["Scans"]


class Scans(Mapping[str, Volume]):
    """Paths, nibabel or SimpleITK images by modality name.

    With `frugal` only the scan that was asked for last is in memory; another one is read again when needed.
    `picks` chooses one of several series in a folder, or one volume of a 4-D file: {"pet": {"series": "PT"}}.
    """

    def __init__(
        self,
        sources: Mapping[str, Any],
        *,
        frugal: bool = False,
        picks: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.sources = {canonical_name(name): source for name, source in sources.items()}
        if len(self.sources) < len(sources):
            raise DatasetError(f"a modality is given twice in {', '.join(sources)}; name each once")
        self.frugal = frugal
        self.picks = dict(picks or {})
        self.warnings: dict[str, tuple[str, ...]] = {}
        self._held: dict[str, Volume] = {}

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
            self.warnings[name] = volume.warnings
        return self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)

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

    def check_names(self, plan: Plan, may_miss: tuple[str, ...]) -> tuple[str, ...]:
        """The modalities that are missing and may be; anything else that does not fit is an error."""
        if unknown := [name for name in self.sources if name not in plan.names]:
            raise DatasetError(
                f"modality {', '.join(unknown)} is unknown to the model; it takes {', '.join(plan.names)}"
            )
        missing = tuple(name for name in plan.names if name not in self.sources)
        if not self.sources or any(name not in may_miss for name in missing):
            allowed = (
                f"trained to do without {', '.join(may_miss)} only"
                if may_miss
                else "not trained to do without"
            )
            raise DatasetError(
                f"modality {', '.join(missing)} is missing, found {', '.join(self.sources) or 'nothing'}; "
                f"the model is {allowed}: give {', '.join(plan.names)}"
            )
        return missing

    def hashes(self) -> dict[str, dict[str, str]]:
        """Name and SHA-256 of each input; the folder it lies in may name a patient and is left out."""
        found = {}
        for name, source in self.sources.items():
            if isinstance(source, str | Path):
                found[name] = {"file": Path(source).name, "sha256": sha256(source)}
            else:
                voxels = np.ascontiguousarray(self[name].array)
                found[name] = {"file": "in memory", "sha256": hashlib.sha256(voxels.data).hexdigest()}
        return found
