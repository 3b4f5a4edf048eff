"""Patches of prepared cases for inspection: centred on the label, or on the case where it has none."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from veloxseg.console import warn
from veloxseg.dataset.seen import SEEN, Learning, look_up
from veloxseg.errors import DatasetError, ModelError, shown
from veloxseg.model.network import VeloxSeg
from veloxseg.model_folder import ModelFolder, load_network
from veloxseg.prepare.plan import Plan
from veloxseg.prepare.store import Prepared
from veloxseg.train.validation import network_image
from veloxseg.types import Array, Size

__all__ = ["Opened", "Patch", "corner_of", "open_network", "patches", "unseen_cases"]


class Opened(NamedTuple):
    """A trained network, and what it has learnt from if that is known."""

    network: VeloxSeg
    plan: Plan
    learning: Learning | None


class Patch(NamedTuple):
    case: str
    corner: Size  # in the prepared case
    image_1CXYZ: Tensor
    label_XYZ: Array
    size: Size  # voxels of the case in it; what lies beyond is filled up


def open_network(path: str | Path) -> Opened:
    folder = ModelFolder.open(path)
    network = load_network(folder)
    if not isinstance(network, VeloxSeg):
        raise ModelError(f"{shown(folder.path)} is {folder.architecture}; only VeloxSeg can be inspected")
    return Opened(network, folder.plan, folder.learning)


def unseen_cases(prepared: Prepared, networks: Sequence[Opened], most: int) -> list[str]:
    """Cases that none of the networks has learnt from: test cases first, then those of validation and training.

    The split alone does not tell: a network of one fold has learnt from other cases than that of the next.
    """
    split, scans = prepared.split(), {case.name: case.scans.values() for case in prepared.cases}
    names = [*split.test, *split.validation, *split.train]
    if not names:
        raise DatasetError(f"{shown(prepared.path)} has no case; prepare some")
    learnt = [network.learning for network in networks]
    unseen = [name for name in names if look_up(name, scans[name], learnt).status not in SEEN]
    if not unseen:
        warn("the networks have learnt from every case of this data set, so they are shown what they know")
    return (unseen or names)[:most]


def corner_of(label_XYZ: Array, patch: Size) -> Size:
    """The first voxel of a patch around the middle of the label, inside the case as far as it is large enough."""
    found = np.argwhere(label_XYZ > 0)
    centre = found.mean(0) if len(found) else np.array(label_XYZ.shape) / 2
    x, y, z = (
        int(np.clip(round(c - p / 2), 0, max(0, n - p))) for c, p, n in zip(centre, patch, label_XYZ.shape, strict=True)
    )
    return x, y, z


def patches(prepared: Prepared, plan: Plan, cases: Sequence[str]) -> Iterator[Patch]:
    """One patch of each case, as the network sees it; a case that is smaller is filled up with zeros."""
    for name in cases:
        label = np.asarray(prepared.label(name))
        corner = corner_of(label, plan.patch)
        box = tuple(slice(c, c + p) for c, p in zip(corner, plan.patch, strict=True))
        part = np.asarray(network_image(prepared, name, plan)[(slice(None), *box)], np.float32)
        missing = [(0, p - n) for p, n in zip(plan.patch, part.shape[1:], strict=True)]
        image = np.pad(part, [(0, 0), *missing])
        x, y, z = part.shape[1:]
        yield Patch(name, corner, torch.from_numpy(image)[None], np.pad(label[box], missing), (x, y, z))
