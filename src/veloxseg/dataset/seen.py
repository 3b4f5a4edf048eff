"""What a model has learnt from, and whether a case is part of it: scores of such cases say nothing about new patients.

A model knows its cases by their names and by the content of their scans, so a renamed or re-compressed copy is found.
Validation cases chose the best epoch, so they count as seen too. No paths and no tags of patients are kept.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

__all__ = [
    "SEEN",
    "TRAINED",
    "UNKNOWN",
    "UNSEEN",
    "VALIDATED",
    "Learning",
    "LearntCase",
    "Seen",
    "look_up",
    "same_scans",
]

TRAINED, VALIDATED, UNKNOWN, UNSEEN = "trained on", "validated on", "unknown", "unseen"
STATUSES = (TRAINED, VALIDATED, UNKNOWN, UNSEEN)  # of several models, the first that one of them gives counts
SEEN = (TRAINED, VALIDATED)


@dataclass(frozen=True, kw_only=True)
class LearntCase:
    name: str
    scans: dict[str, str] = field(default_factory=dict)  # modality -> content hash; {} if only the name is known


@dataclass(frozen=True, kw_only=True)
class Learning:
    """The cases of one training."""

    train: tuple[LearntCase, ...]
    validation: tuple[LearntCase, ...] = ()
    complete: bool = True  # False if the first weights came from a model that does not know its cases

    def to_json(self) -> dict[str, Any]:
        value = asdict(self)
        if self.complete:
            del value["complete"]
        return value

    def after(self, first: "Learning | None") -> "Learning":
        """What a training on these cases has learnt from that began with the weights of another; None: unknown."""
        if first is None:
            return replace(self, complete=False)
        return Learning(
            train=(*self.train, *(case for case in first.train if case not in self.train)),
            validation=(*self.validation, *(case for case in first.validation if case not in self.validation)),
            complete=self.complete and first.complete,
        )

    @property
    def by_content(self) -> bool:
        """Whether every case is known by its content, and not by its name alone."""
        return all(case.scans for case in (*self.train, *self.validation))

    @cached_property
    def _parts(self) -> tuple[tuple[str, LearntCase], ...]:
        return (*((TRAINED, case) for case in self.train), *((VALIDATED, case) for case in self.validation))

    @cached_property
    def _of_scan(self) -> dict[str, tuple[str, str]]:
        """Content hash → how it was seen, and in which case; training counts before validation."""
        return {scan: (status, case.name) for status, case in reversed(self._parts) for scan in case.scans.values()}

    @cached_property
    def _of_name(self) -> dict[str, tuple[str, bool]]:
        """Name → how it was seen, and whether the content is known too."""
        return {case.name: (status, bool(case.scans)) for status, case in reversed(self._parts)}

    def look_up(self, name: str | None, scans: Collection[str]) -> "Seen":
        for scan in scans:
            if scan in self._of_scan:
                status, learnt_as = self._of_scan[scan]
                return Seen(status=status, by="content", learnt_as=learnt_as)
        status, has_content = self._of_name.get(name or "", (UNSEEN, True))
        if not has_content:
            return Seen(status=status, by="name", learnt_as=name)
        if not self.complete:
            return Seen(status=UNKNOWN)
        return Seen(status=UNSEEN, by="content" if self.by_content else "name", namesake=status != UNSEEN)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Whether a case was part of a training."""

    status: str  # one of STATUSES
    by: str | None = None  # content or name; None if nothing is known
    learnt_as: str | None = None  # the name that the case had in training
    namesake: bool = False  # unseen by content, but a case of the training has the same name

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in (None, False)}

    @property
    def words(self) -> str:
        """How a case was seen, for people."""
        return f"{self.status} by name" if self.by == "name" and self.status in SEEN else self.status


def look_up(name: str | None, scans: Collection[str], models: Sequence[Learning | None]) -> Seen:
    """What several models together have seen of a case; None stands for a model that does not know its cases."""
    found = [Seen(status=UNKNOWN) if model is None else model.look_up(name, scans) for model in models]
    return min(found, key=lambda seen: (STATUSES.index(seen.status), seen.by == "content"))


def same_scans(cases: Mapping[str, Mapping[str, str]]) -> list[tuple[str, str, str]]:
    """(case, earlier case, modality) wherever two cases hold the same scan; `cases` is name → modality → hash."""
    first: dict[str, str] = {}
    found: dict[tuple[str, str], str] = {}
    for name, scans in cases.items():
        for modality, scan in scans.items():
            other = first.setdefault(scan, name)
            if other != name:
                found.setdefault((name, other), modality)
    return [(name, other, modality) for (name, other), modality in found.items()]
