"""What was received: which of the files are scans, of which modality, and which of them a model should take.

DICOM files are sorted into one folder per series, whatever they were called. Any other image is known by its name
(`_0000`, `ct`, `PET`, `t1ce`). A modality is taken only where there is exactly one candidate: of several PETs the one
that is corrected for attenuation and decay, of several CTs the one in the PET's frame of reference; what is then
still open is for the user to choose, never guessed.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from veloxseg.dataset.naming import split_channel
from veloxseg.errors import VeloxSegError, shown
from veloxseg.image import read_header
from veloxseg.image.dicom.file import is_dicom, open_dicom, parsing
from veloxseg.image.dicom.series import find_series
from veloxseg.image.formats import without_suffix
from veloxseg.modality import canonical_name, kind_of
from veloxseg.serve.archive import NAMES
from veloxseg.serve.models import Model

__all__ = ["MANUFACTURER", "Decision", "Found", "decide", "look_at", "received", "without_gaps"]

MANUFACTURER = "VeloxSeg developers"  # what our own DICOM objects say: they are never input
KIND_OF_DICOM = {"CT": "ct", "PT": "pet", "MR": "mr"}
MASK_WORDS = {"mask", "label", "labels", "seg", "segmentation", "gtv", "reference", "truth"}
CORRECTIONS = {"ATTN", "DECY"}
GAP = "are slices missing?"  # how dicom/series.py ends such a warning
TAGS = ["Modality", "SOPInstanceUID", "SeriesInstanceUID", "SeriesDescription", "FrameOfReferenceUID", "CorrectedImage"]


@dataclass(frozen=True, kw_only=True)
class Found:
    """One scan or mask among the files."""

    key: str  # the file or folder below the case's folder
    role: str  # ct, pet, mr, other: a scan of this kind; mask: a label map
    modality: str | None  # what its name says that it is
    text: str  # for people
    shape: tuple[int, ...] = ()
    spacing: tuple[float, ...] = ()
    dicom: bool = False
    corrected: bool = False  # for attenuation and decay, of a PET
    frame: str = ""  # frame of reference
    warnings: tuple[str, ...] = ()
    problem: str = ""  # why it cannot be read

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What follows from what was found."""

    state: str  # waiting, choose or incomplete
    model: str | None
    message: str = ""
    chosen: dict[str, str] = field(default_factory=dict)  # modality -> key of what was found


def received(folder: Path, files: Sequence[Mapping[str, Any]]) -> dict[Path, str]:
    """Every file of a case with the name that its sender gave it; archives stand for their members."""
    paths: dict[Path, str] = {}
    for file in files:
        stored = folder / "in" / str(file["stored"])
        unpacked = stored.with_suffix(".unpacked")
        if unpacked.is_dir():
            names = json.loads((unpacked / NAMES).read_text(encoding="utf-8"))
            paths |= {unpacked / own: str(name) for own, name in names.items()}
        else:
            paths[stored] = str(file["name"])
    return paths


def look_at(folder: Path, paths: Mapping[Path, str], channels: Sequence[str]) -> list[Found]:
    """All scans and masks. `channels` are the modalities that `_0000`, `_0001` … stand for."""
    slices = [path for path in paths if path.stat().st_size > 132 and is_dicom(path)]
    others = [path for path in paths if path not in set(slices)]
    found = [_look_at_file(folder, path, paths[path], channels) for path in others]
    return [*(one for one in found if one is not None), *_look_at_series(folder, slices)]


def without_gaps(found: Sequence[Found]) -> list[Found]:
    """Series whose own tags tell of more slices are not whole: they are waited for."""
    return [
        replace(one, problem=missing[0]) if (missing := [text for text in one.warnings if GAP in text]) else one
        for one in found
    ]


def _look_at_file(folder: Path, path: Path, name: str, channels: Sequence[str]) -> Found | None:
    key = str(path.relative_to(folder))
    words, modality = _words(name), _modality_in(name, channels)
    try:
        header = read_header(path)
        grid = header.grid()
    except VeloxSegError as error:
        if not path.suffix:  # a text, a table, a thumbnail: nobody meant it as a scan
            return None
        return Found(key=key, role="other", modality=None, text=shown(name), problem=_plain(error, folder))
    role = "mask" if words & MASK_WORDS else kind_of(modality) if modality else "other"
    size = " × ".join(map(str, grid.shape))
    return Found(
        key=key,
        role=role,
        modality=None if role == "mask" else modality,
        text=f"{shown(Path(name).name, 80)}, {size} voxels",
        shape=grid.shape,
        spacing=grid.spacing,
        warnings=header.warnings,
    )


def _words(name: str) -> set[str]:
    stem = without_suffix(Path(name).name).lower()
    return set(re.findall(r"[a-z]+[0-9]*[a-z]*", stem.replace("_", " ")))


def _modality_in(name: str, channels: Sequence[str]) -> str | None:
    """`case_0001` by its channel, `PET_image` by its words; None if the name says nothing."""
    stem = without_suffix(Path(name).name)
    named = split_channel(stem)
    if named is not None and named[1] < len(channels):
        return channels[named[1]]
    said = {canonical_name(word) for word in _words(name)}
    for modality in channels:
        if modality in said:
            return modality
    kinds = {kind for word in said if (kind := kind_of(word)) != "other"}
    return kinds.pop() if len(kinds) == 1 else None


def _look_at_series(folder: Path, slices: Sequence[Path]) -> list[Found]:
    """Sorts DICOM files into `series/<n>/` by hard links, one file per instance, and looks at each folder."""
    root = folder / "series"
    stage = folder / ".part-series"
    for stale in (root, stage):
        shutil.rmtree(stale, ignore_errors=True)
    numbers: dict[str, int] = {}
    seen: set[str] = set()
    facts: dict[int, Any] = {}
    for path in sorted(slices):
        with parsing(path.name):
            tags = open_dicom(path, [*TAGS, "Manufacturer"])
            instance, series = str(tags.get("SOPInstanceUID") or path.name), str(tags.get("SeriesInstanceUID") or "")
            own = str(tags.get("Manufacturer") or "") == MANUFACTURER
        if instance in seen or own:
            continue
        seen.add(instance)
        number = numbers.setdefault(series, len(numbers))
        facts.setdefault(number, tags)
        (stage / str(number)).mkdir(parents=True, exist_ok=True)
        _link(path, stage / str(number) / f"{len(seen):06d}.dcm")
    if not numbers:
        return []
    os.rename(stage, root)
    return [_look_at_one(folder, root / str(number), facts[number]) for number in numbers.values()]


def _link(path: Path, place: Path) -> None:
    try:
        os.link(path, place)
    except OSError:  # a file system without hard links
        shutil.copyfile(path, place)


def _look_at_one(folder: Path, path: Path, tags: Any) -> Found:
    key, modality = str(path.relative_to(folder)), str(tags.get("Modality") or "")
    said = shown(tags.get("SeriesDescription") or "", 60)
    if modality in ("SEG", "RTSTRUCT"):
        return Found(key=key, role="mask", modality=None, text=f"{modality} {said}".strip(), dicom=True)
    count = sum(1 for _ in path.iterdir())
    text = f"{shown(modality, 16) or 'DICOM'} {said}".strip() + f", {count} files"
    kind = KIND_OF_DICOM.get(modality, "other")
    values: dict[str, Any] = {"key": key, "role": kind, "dicom": True, "text": text}
    values["modality"] = kind if kind in ("ct", "pet") else None
    try:
        if not find_series(path):
            return Found(**{**values, "role": "other", "modality": None, "problem": "holds no image of a scan"})
        header = read_header(path)
        grid = header.grid()
    except VeloxSegError as error:
        return Found(**values, problem=_plain(error, folder))
    corrected = tags.get("CorrectedImage") or []
    corrections = {str(word) for word in ([corrected] if isinstance(corrected, str) else corrected)}
    return Found(
        **values,
        shape=grid.shape,
        spacing=grid.spacing,
        corrected=corrections >= CORRECTIONS,
        frame=str(tags.get("FrameOfReferenceUID") or ""),
        warnings=header.warnings,
    )


def _plain(error: Exception, folder: Path) -> str:
    """An error without the place where the case happens to lie on this machine."""
    return str(error).replace(f"{folder}/", "").replace(str(folder), "the case")


def decide(found: Sequence[Found], models: Mapping[str, Model], wanted: str | None) -> Decision:
    """The model that takes most of what is there, the first of equals; else what the best one still needs."""
    offered = [models[wanted]] if wanted is not None and wanted in models else list(models.values())
    decisions = [_decide_for(found, model) for model in offered]
    order = ("waiting", "choose", "incomplete")
    return min(decisions, key=lambda decision: (order.index(decision.state), -len(decision.chosen)))


def _decide_for(found: Sequence[Found], model: Model) -> Decision:
    scans = [one for one in found if one.role != "mask" and not one.problem]
    broken = [one for one in found if one.problem]
    chosen: dict[str, str] = {}
    open_questions, missing = [], []
    for modality in sorted(model.kinds, key=lambda name: model.kinds[name] != "pet"):  # the PET decides about the CT
        candidates = _candidates(scans, modality, model, chosen)
        if len(candidates) == 1:
            chosen[modality] = candidates[0].key
        elif candidates:
            open_questions.append(f"{len(candidates)} scans could be the {modality}")
        elif modality not in model.may_miss:
            missing.append(modality)
    spare = [one for one in scans if one.key not in chosen.values() and one.modality is None]
    if missing and len(spare) >= len(missing):
        open_questions.append(f"no name says which scan is the {', the '.join(missing)}")
    elif missing:
        faults = "".join(f"; {one.text}: {one.problem}" for one in broken)
        message = f"{', '.join(missing)} is missing; model {model.name} takes {', '.join(model.kinds)}{faults}"
        return Decision(state="incomplete", model=model.name, message=message, chosen=chosen)
    if open_questions:
        message = "; ".join(open_questions) + ": choose"
        return Decision(state="choose", model=model.name, message=message, chosen=chosen)
    return Decision(
        state="waiting", model=model.name, chosen={name: chosen[name] for name in model.kinds if name in chosen}
    )


def _candidates(scans: Sequence[Found], modality: str, model: Model, chosen: Mapping[str, str]) -> list[Found]:
    """The scans that can be this modality, after the rules that need no guess."""
    kind = model.kinds[modality]
    alone = list(model.kinds.values()).count(kind) == 1
    fits = [
        one
        for one in scans
        if one.key not in chosen.values() and (one.modality == modality or (alone and one.role == kind != "other"))
    ]
    if len(fits) > 1 and kind == "pet":
        fits = [one for one in fits if one.corrected] or fits
    if len(fits) > 1 and kind == "ct":
        frames = {one.frame for one in scans if one.key in chosen.values() and one.frame}
        fits = [one for one in fits if one.frame in frames] or fits
    return fits
