"""Where a training stands, and the files that hold it: one safetensors file each, with the state as JSON in its header.

    checkpoints/000001200.safetensors      after 1200 steps: network, teachers, optimiser, average; state

Nothing in it runs code when opened. A file is written aside, synced and renamed, so a kill at any moment or a full disk
leaves what was there. A SHA-256 over the state and the tensors (names, types, sizes, values) tells a damaged file from
a whole one. The two newest and the best are kept; on a full disk the newest alone, if the others' room is needed.

Random numbers need no state of their own: those of a step are drawn from (seed, process, epoch, step), see engine.py.
"""

import errno
import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veloxseg.console import warn
from veloxseg.errors import ModelError, OutputError, VeloxSegError
from veloxseg.files import atomic_path
from veloxseg.schema import build
from veloxseg.train.objective import TERMS

__all__ = [
    "Best",
    "Checkpoint",
    "State",
    "checkpoint_path",
    "is_full",
    "join",
    "load_checkpoint",
    "load_newest",
    "make_room",
    "newest_state",
    "prune",
    "save_checkpoint",
    "split",
]

KEPT = 2
SUFFIX = ".safetensors"
DIGEST = "sha256_typed"  # of names, types, sizes and values
OLD_DIGEST = "sha256"  # version 0.1.0 left types and sizes out


@dataclass
class Best:
    """The epoch whose weights are MODEL's."""

    epoch: int  # epochs done
    step: int  # steps done: the name of its checkpoint
    dice: float | None  # None without cases to validate on
    structures: dict[str, float | None]


@dataclass
class State:
    """All that a checkpoint holds besides tensors, as plain JSON values."""

    epoch: int = 0  # epochs done
    step: int = 0  # steps done of the present epoch
    steps: int = 0  # steps done in all
    sums: list[float] = field(default_factory=lambda: [0.0] * len(TERMS))  # of the loss terms in this epoch
    counted: int = 0  # steps with a finite loss in `sums`
    bad: int = 0  # steps without a finite loss, the latest in a row
    seconds: float = 0.0  # of work, over all sessions
    epoch_seconds: float = 0.0  # of work on the present epoch
    validations: int = 0
    finished: bool = False
    best: Best | None = None
    history: list[dict[str, Any]] = field(default_factory=list)  # one row per epoch
    pace: dict[str, Any] = field(default_factory=dict)  # the fields of schedule.Pace but for its recipe

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any, where: str) -> "State":
        return build(cls, value, where, ModelError, "start again in another folder")


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    state: dict[str, Any]
    tensors: dict[str, Tensor]


def save_checkpoint(folder: Path, step: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Writes the checkpoint of `step`; after an error the older ones are as they were."""
    from safetensors.torch import save

    text = json.dumps(state, allow_nan=False)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"state": text, DIGEST: _digest(text, tensors, typed=True)}
    folder.mkdir(parents=True, exist_ok=True)
    path = checkpoint_path(folder, step)
    with atomic_path(path) as temporary:
        temporary.write_bytes(save(dict(tensors), header))
    return path


def checkpoint_path(folder: Path, step: int) -> Path:
    return folder / f"{step:09d}{SUFFIX}"


def load_checkpoint(path: Path) -> Checkpoint:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 — not a dict
        text, typed = header["state"], DIGEST in header
        if header[DIGEST if typed else OLD_DIGEST] != _digest(text, tensors, typed):
            raise ModelError(f"checkpoint {path} is damaged: its checksum differs")
        return Checkpoint(path, json.loads(text), tensors)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ModelError(f"checkpoint {path} is damaged or cut short ({error})") from error


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are named. None if there has never been one."""
    paths = _newest_first(folder)
    for index, path in enumerate(paths):
        try:
            return load_checkpoint(path)
        except VeloxSegError as error:
            if index + 1 == len(paths):
                raise ModelError(f"{error}, and there is no older one; start again in another folder") from error
            warn(f"{error}; going on from the previous one, {paths[index + 1].name}")
    return None


def newest_state(folder: Path) -> State | None:
    """Where the training stands by its newest readable checkpoint, whose tensors are not read; None without one."""
    from safetensors import SafetensorError, safe_open

    for path in _newest_first(folder):
        try:
            with safe_open(path, framework="pt") as file:
                return State.from_json(json.loads((file.metadata() or {})["state"]), path.name)
        except (SafetensorError, OSError, KeyError, ValueError, VeloxSegError):
            continue  # `load_newest` names it
    return None


def prune(folder: Path, best_step: int | None) -> None:
    """Removes what is neither among the newest nor the best, and what a killed writer left behind."""
    for path in _newest_first(folder)[KEPT:]:
        if int(path.stem) != best_step:
            path.unlink(missing_ok=True)
    for path in folder.glob(".part-*"):
        path.unlink(missing_ok=True)


def is_full(error: OutputError | OSError) -> bool:
    """Whether a file could not be written for want of room."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)


def make_room(folder: Path, needed: Collection[int]) -> bool:
    """Removes the oldest checkpoint whose step is not `needed`; says whether there was one."""
    for path in reversed(_newest_first(folder)):
        if int(path.stem) not in needed:
            path.unlink(missing_ok=True)
            return True
    return False


def split(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors below `prefix.`, without it."""
    return {name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def join(**groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`join(network=...)` names the tensors `network.<name>`."""
    return {f"{prefix}.{name}": tensor for prefix, group in groups.items() for name, tensor in group.items()}


def _newest_first(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdecimal()), reverse=True)


def _digest(text: str, tensors: Mapping[str, Tensor], typed: bool) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() if typed else name.encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
