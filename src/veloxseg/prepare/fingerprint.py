"""The fingerprint of a data set: what its scans and labels are like, in numbers that the plan is made from.

Per case: size and spacing of each modality, which modalities share the label's grid, label volumes, and lesions
(connected components). Intensities are sampled: from labelled voxels (`foreground`) and from the body.
"""

import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from veloxseg.console import progress, warn
from veloxseg.dataset.dataset import Case, Dataset
from veloxseg.dataset.reading import read_case_images, read_case_label
from veloxseg.dataset.targets import Merged
from veloxseg.errors import DatasetError
from veloxseg.image.body import body_mask, coarse_steps
from veloxseg.image.regions import components, label_boxes, nonzero_box
from veloxseg.image.volume import Volume
from veloxseg.modality import kind_of
from veloxseg.prepare.network_input import SUPERIOR, axis_order
from veloxseg.workers import Failure, Team

__all__ = ["fingerprint_case", "make_fingerprint", "summarise"]

THICK = 1.5  # slices thicker than this many pixels have a direction of their own
SAMPLES = 2000  # voxels per case and modality: a thousand cases give two million, enough for 0.5 percentiles


def make_fingerprint(dataset: Dataset, cases: Iterable[Case], team: Team) -> dict[str, Any]:
    """Looks at every case; a case that cannot be read is an error, since `check` lists them all."""
    cases = list(cases)
    work = partial(
        fingerprint_case,
        modalities=dataset.modalities,
        labels=dataset.labels,
        ignore=dataset.ignore_label,
        merged=dataset.merged,
    )
    found, failures = {}, []
    for case, result in progress(team.run(work, cases), "fingerprint", len(cases)):
        if isinstance(result, Failure):
            failures.append(f"{case.name}: {result.message}")
        else:
            found[case.name] = result
    if len(failures) == 1:
        raise DatasetError(failures[0])
    if failures:
        for failure in failures:
            warn(failure)
        raise DatasetError(f"{len(failures)} of {len(cases)} cases cannot be used; repair or leave them out, as listed")
    return summarise(dataset, [found[case.name] for case in cases])


def fingerprint_case(
    case: Case,
    modalities: tuple[str, ...],
    labels: dict[str, int],
    ignore: int | None,
    merged: Merged = MappingProxyType({}),
) -> dict[str, Any]:
    """The numbers of one case; `samples` holds arrays and is pooled by `summarise`."""
    volumes = read_case_images(case, modalities)
    label = read_case_label(case, labels, volumes, merged)
    random = np.random.default_rng(zlib.crc32(case.name.encode()))
    return {
        "case": case.name,
        "modalities": {
            name: {"shape": list(grid.shape), "spacing": [round(value, 6) for value in grid.spacing]}
            for name, grid in ((name, volume.geometry.in_ras()) for name, volume in volumes.items())
        },
        "label_grid": [n for n, v in volumes.items() if label and v.geometry.same_grid(label.geometry, 0.1)],
        "labels": _label_numbers(label, labels, ignore) if label else {},
        "samples": {
            name: {
                "foreground": _foreground_sample(volume, label, ignore, random),
                "body": _body_sample(volume, kind_of(name), random),
            }
            for name, volume in volumes.items()
        },
    }


def summarise(dataset: Dataset, cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The fingerprint as JSON: medians over cases, pooled intensities, and the cases themselves."""
    modalities, axes = {}, network_axes(case["modalities"] for case in cases)
    for name in dataset.modalities:
        grids = [_along(case["modalities"][name], axes) for case in cases]
        pooled = {
            where: _statistics(np.concatenate([case["samples"][name][where] for case in cases]))
            for where in ("foreground", "body")
        }
        modalities[name] = {
            "kind": kind_of(name),
            "median_spacing": np.median([g["spacing"] for g in grids], axis=0).tolist(),
            "fine_spacing": np.percentile([g["spacing"] for g in grids], 10, axis=0).tolist(),
            "median_shape": np.median([g["shape"] for g in grids], axis=0).tolist(),
            "on_label_grid": sum(name in case["label_grid"] for case in cases),
            "intensity": pooled,
        }
    labels = {}
    for name in (n for n, value in dataset.labels.items() if value != 0):
        entries = [case["labels"][name] for case in cases if name in case["labels"]]
        volumes = [v for entry in entries for v in entry["lesion_ml"]]
        labels[name] = {
            "cases": sum(entry["ml"] > 0 for entry in entries),
            "share_of_voxels": float(np.mean([entry["share"] for entry in entries])) if entries else 0.0,
            "lesions": len(volumes),
            "lesion_ml_percentiles": _percentiles(volumes),
        }
    return {
        "dataset": dataset.name,
        "case_count": len(cases),
        "axes": axes,
        "modalities": modalities,
        "labels": labels,
        "cases": [{key: value for key, value in case.items() if key != "samples"} for case in cases],
    }


def network_axes(cases: Iterable[Mapping[str, Any]]) -> str:
    """How the network's axes run: along the patient's, unless thick slices lie across several of these.

    Medians over cases of which some have their slices across x and others across z would fit none of them.
    """
    across = set()
    for modalities in cases:
        for grid in modalities.values():
            order = axis_order(grid["spacing"], "slices")
            spacing = [grid["spacing"][axis] for axis in order]
            if spacing[2] > THICK * max(spacing[:2]):
                across.add(order[2])
    return "slices" if len(across) > 1 else "patient"


def _along(grid: Mapping[str, Any], axes: str) -> dict[str, list[float]]:
    order = axis_order(grid["spacing"], axes)
    return {key: [grid[key][axis] for axis in order] for key in ("shape", "spacing")}


def _label_numbers(label: Volume, labels: Mapping[str, int], ignore: int | None) -> dict[str, Any]:
    millilitres = label.geometry.voxel_ml
    boxes = label_boxes(label.array)
    numbers: dict[str, Any] = {}
    for name, value in labels.items():
        if value == 0:
            continue
        if value not in boxes:
            numbers[name] = {"ml": 0.0, "share": 0.0, "lesion_ml": []}
            continue
        mask = label.array[boxes[value]] == value
        count = int(mask.sum())
        sizes = np.sort(components(mask)[1])[::-1] if value != ignore else np.zeros(0, np.int64)
        numbers[name] = {
            "ml": round(count * millilitres, 4),
            "share": count / label.array.size,
            "lesion_ml": [round(float(size) * millilitres, 4) for size in sizes[:1000]],
        }
    return numbers


def _foreground_sample(
    volume: Volume, label: Volume | None, ignore: int | None, random: np.random.Generator
) -> npt.NDArray[np.float32]:
    """Values of `volume` at random labelled voxels, found through space, whatever grid each lies on."""
    box = nonzero_box(label.array) if label is not None else None
    if label is None or box is None:
        return np.empty(0, np.float32)
    part = label.array[box]
    flat = np.flatnonzero((part != 0) & (part != (0 if ignore is None else ignore)))
    if len(flat) > SAMPLES:
        flat = random.choice(flat, SAMPLES, replace=False)
    index = np.array(np.unravel_index(flat, part.shape)) + [[side.start] for side in box]
    to_volume = np.linalg.inv(volume.geometry.affine) @ label.geometry.affine
    there = np.rint(to_volume[:3, :3] @ index + to_volume[:3, 3:]).astype(int)
    inside = ((there >= 0) & (there < np.array(volume.array.shape)[:, None])).all(axis=0)
    x, y, z = there[:, inside]
    return volume.array[x, y, z].astype(np.float32)


def _body_sample(volume: Volume, kind: str, random: np.random.Generator) -> npt.NDArray[np.float32]:
    array = volume.in_ras().array
    coarse = array[tuple(slice(None, None, step) for step in coarse_steps(array.shape))]
    values = coarse[body_mask(coarse, kind, SUPERIOR)]
    if len(values) > SAMPLES:
        values = random.choice(values, SAMPLES, replace=False)
    return values.astype(np.float32)


def _statistics(values: npt.NDArray[np.float32]) -> dict[str, float] | None:
    if not len(values):
        return None
    low, middle, high = np.percentile(values, [0.5, 50, 99.5])
    clipped = np.clip(values, low, high).astype(np.float64)
    numbers = {
        "percentile_0.5": low,
        "median": middle,
        "percentile_99.5": high,
        "mean": clipped.mean(),
        "std": clipped.std(),
        "minimum": values.min(),
        "maximum": values.max(),
    }
    return {"count": len(values), **{key: round(float(value), 5) for key, value in numbers.items()}}


def _percentiles(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    points = (5, 25, 50, 75, 95)
    return {str(p): round(float(v), 4) for p, v in zip(points, np.percentile(values, points), strict=True)}
