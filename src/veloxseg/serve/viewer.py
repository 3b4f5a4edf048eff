"""What the page shows: scans and mask as plain numbers, turned as radiologists look, compressed for the browser.

Every layer is turned so that its axes run from right to left, front to back, head to feet (views.py). The mask lies on
the reference's grid. A scan whose axes run as those of the mask keeps its own voxels, and the page interpolates; any
other is resampled to the mask's grid. A file holds one number per voxel, x fastest: value = intercept + slope · stored.

The projection of the PET is made here for some directions around the patient: a browser without a GPU is too slow.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.image import Geometry, Volume
from veloxseg.image.resample import resample_image
from veloxseg.image.views import palette, to_radiological, window
from veloxseg.modality import KINDS, kind_of
from veloxseg.types import Array, Labels

__all__ = ["DIRECTIONS", "describe_grid", "write_mask_layer", "write_scan_layers"]

UNITS = {"ct": "HU", "pet": "SUV"}
LOWEST_CT = -1024.0  # what a scanner's 12 bits start at
DIRECTIONS = 24  # views around the patient, 15 degrees apart
MOST_ACROSS = 256  # pixels of a view; beyond, nobody sees a difference in a projection
HOTTEST = 20.0  # SUV; what is hotter is as black as this in a projection
SAME_AXES = 1e-3
COMPRESSION = 1  # decoding it is what counts


def write_scan_layers(scans: Mapping[str, Volume], reference: Geometry, folder: Path) -> dict[str, Any]:
    """Writes every scan, and the projection of the PET; returns what the page needs to know of them."""
    layers = []
    for name, scan in scans.items():
        kind = kind_of(name)
        if not same_axes(scan.geometry, reference):
            array = resample_image(scan, reference, "linear", KINDS[kind].air)
            scan = Volume(array=array, geometry=reference)
        low, high = window(scan.array, kind)
        if kind == "pet":
            low, high = 0.0, float(min(max(high, 5.0), 15.0))
        stored, slope, intercept = as_sixteen_bits(scan.array, kind)
        write_numbers(folder / f"{name}.view.gz", to_radiological(stored, scan.geometry).array)
        layer = {"name": name, "kind": kind, "units": UNITS.get(kind, ""), "slope": slope, "intercept": intercept}
        layers.append(layer | {"window": [low, high]} | place_of(scan.geometry, reference))
    pet = next((scan for name, scan in scans.items() if kind_of(name) == "pet"), None)
    return {"grid": describe_grid(reference), "scans": layers, "projection": write_projection(pet, reference, folder)}


def describe_grid(geometry: Geometry) -> dict[str, Any]:
    """The mask's grid as the page sees it, and how its voxels are found in the file."""
    ras = geometry.in_ras()
    return {
        "shape": list(ras.shape),
        "spacing": list(ras.spacing),
        "voxel_ml": geometry.voxel_ml,
        "axes": list(geometry.orientation.axes),  # which axis of the file runs along each axis of the page
        # whether it runs the other way: the page's axes run to the left, the back and the feet
        "flips": [not flip for flip in geometry.orientation.flips],
    }


def same_axes(one: Geometry, other: Geometry) -> bool:
    return bool(np.abs(one.in_ras().direction - other.in_ras().direction).max() < SAME_AXES)


def place_of(geometry: Geometry, reference: Geometry) -> dict[str, Any]:
    """Size, spacing, and where the first voxel lies: millimetres from the reference's first voxel along its axes."""
    own, base = geometry.in_ras(), reference.in_ras()
    first = [grid.affine @ [*(np.array(grid.shape) - 1), 1.0] for grid in (own, base)]
    offset = -(base.direction.T @ (first[0] - first[1])[:3])
    return {"shape": list(own.shape), "spacing": list(own.spacing), "offset": [float(part) for part in offset]}


def as_sixteen_bits(array: Array, kind: str) -> tuple[Array, float, float]:
    """Whole Hounsfield units, or the range of any other scan in 65,535 steps."""
    low, slope = LOWEST_CT, 1.0
    if kind != "ct":
        low = float(array.min())
        slope = max(float(array.max()) - low, 1e-6) / 65535
    stored = np.empty(array.shape, np.uint16, order="F")
    for z in range(array.shape[2]):
        stored[:, :, z] = np.clip(np.rint((array[:, :, z] - low) / slope), 0, 65535)
    return stored, slope, low


def write_mask_layer(labels: Labels, geometry: Geometry, path: Path, highest: int) -> None:
    """The mask; `highest` is the highest label that there can be, so that the page knows the type of the numbers."""
    kind = np.uint8 if highest < 256 else np.uint16
    write_numbers(path, to_radiological(labels.astype(kind), geometry).array)


def label_colours(labels: Mapping[str, int]) -> dict[str, Any]:
    """Value → name and colour of every label but the background."""
    colours = palette(labels.values())
    return {str(value): {"name": name, "colour": list(colours[value])} for name, value in labels.items() if value}


def write_numbers(path: Path, array: Array) -> None:
    """Little endian, x fastest, gzip without name or time; slice by slice."""
    from isal import igzip

    with open(path, "wb") as raw, igzip.IGzipFile("", "wb", COMPRESSION, raw, mtime=0) as stream:
        for z in range(array.shape[2]):
            slab = array[:, :, z]
            stream.write(slab.astype(slab.dtype.newbyteorder("<"), copy=False).tobytes(order="F"))


def write_projection(pet: Volume | None, reference: Geometry, folder: Path) -> dict[str, Any] | None:
    """The hottest voxel along each ray, from every direction around the patient's long axis, as bytes."""
    if pet is None:
        return None
    view = to_radiological(pet.array, pet.geometry)
    x, y, z = view.spacing
    step = max(x, y, max(view.array.shape[0] * x, view.array.shape[1] * y) / MOST_ACROSS)
    views = rotating_projection(view.array, (x, y), step)
    highest = float(min(max(float(views.max()), 1e-6), HOTTEST))
    grey = np.clip(views * (255 / highest), 0, 255).astype(np.uint8)  # (direction, row, column)
    write_numbers(folder / "projection.view.gz", grey.transpose(2, 1, 0))
    return {
        "directions": DIRECTIONS,
        "shape": [grey.shape[2], grey.shape[1]],
        "spacing": [step, z],
        "highest": highest,
        # of the axis around which the patient turns, and of the first slice, from the reference's first voxel
        "centre": [
            place_of(pet.geometry, reference)["offset"][axis] + (view.array.shape[axis] - 1) / 2 * (x, y)[axis]
            for axis in (0, 1)
        ],
        "top": place_of(pet.geometry, reference)["offset"][2],
    }


def rotating_projection(array: Array, spacing: tuple[float, float], step: float) -> Array:
    """(direction, Z, across): at angle a the column at (x, y) from the middle is seen at x cos a + y sin a.

    Every column is put where it is seen, so that no hot voxel is missed between two rays.
    """
    size_x, size_y, size_z = array.shape
    reach = int(np.ceil(np.hypot(size_x * spacing[0], size_y * spacing[1]) / 2 / step))
    columns = np.ascontiguousarray(array.reshape(size_x * size_y, size_z), np.float32)
    x = ((np.arange(size_x) - (size_x - 1) / 2) * spacing[0]).repeat(size_y)
    y = np.tile((np.arange(size_y) - (size_y - 1) / 2) * spacing[1], size_x)
    views = np.zeros((DIRECTIONS, 2 * reach + 1, size_z), np.float32)
    for number in range(DIRECTIONS):
        angle = 2 * np.pi * number / DIRECTIONS
        # halves always go the same way, or every second column of an even grid would stay empty
        seen = np.floor((x * np.cos(angle) + y * np.sin(angle)) / step + 0.5).astype(int) + reach
        order = np.argsort(seen, kind="stable")
        places, starts = np.unique(seen[order], return_index=True)
        views[number, places] = np.maximum.reduceat(columns[order], starts, axis=0)
    return views.transpose(0, 2, 1)
