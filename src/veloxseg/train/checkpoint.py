"""Checkpoints: one safetensors file each, with the state as JSON in its header. Nothing that runs code when opened.

A file is written aside, synced and renamed, so a kill at any moment or a full disk leaves what was there. A SHA-256
over the tensors and the state tells a damaged file from a whole one. The two newest and the best are kept.

    checkpoints/000001200.safetensors      after 1200 steps: network, teachers, optimiser, average; state

Random numbers need no state of their own: those of a step are drawn from (seed, process, epoch, step), see loop.py.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from veloxseg.console import warn
from veloxseg.errors import ModelError, VeloxSegError
from veloxseg.files import atomic_path

__all__ = [
    "Checkpoint",
    "checkpoint_path",
    "join",
    "load_checkpoint",
    "load_newest",
    "prune",
    "save_checkpoint",
    "split",
]

KEPT = 2
SUFFIX = ".safetensors"


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    state: dict[str, Any]
    tensors: dict[str, Tensor]


def save_checkpoint(folder: Path, step: int, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """Writes the checkpoint of `step`; on an error the older ones are as they were."""
    from safetensors.torch import save

    text = json.dumps(state, allow_nan=False)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = {"state": text, "sha256": _digest(text, tensors)}
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
        text = header["state"]
        if header["sha256"] != _digest(text, tensors):
            raise ModelError(f"checkpoint {path} is damaged: its checksum differs")
        return Checkpoint(path, json.loads(text), tensors)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise ModelError(f"checkpoint {path} is damaged or cut short ({error})") from error


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; damaged ones are named. None if there has never been one."""
    paths = _newest_first(folder)
    for index, path in enumerate(paths):
        try:
            found = load_checkpoint(path)
        except VeloxSegError as error:
            if index + 1 == len(paths):
                raise ModelError(
                    f"{error}, and there is no older one; start again in another folder"
                ) from error
            warn(f"{error}; going on from the previous one, {paths[index + 1].name}")
        else:
            return found
    return None


def prune(folder: Path, best_step: int | None) -> None:
    """Removes what is neither among the newest nor the best, and what a killed writer left behind."""
    for path in _newest_first(folder)[KEPT:]:
        if int(path.stem) != best_step:
            path.unlink(missing_ok=True)
    for path in folder.glob(".part-*"):
        path.unlink(missing_ok=True)


def split(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors below `prefix.`, without it."""
    return {
        name.removeprefix(f"{prefix}."): t for name, t in tensors.items() if name.startswith(f"{prefix}.")
    }


def join(**groups: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """`join(network=...)` names the tensors `network.<name>`."""
    return {f"{prefix}.{name}": tensor for prefix, group in groups.items() for name, tensor in group.items()}


def _newest_first(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob(f"*{SUFFIX}") if path.stem.isdigit()), reverse=True)


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
