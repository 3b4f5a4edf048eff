"""What may be written beside a mask, one entry of a table each: a table of lesions, a picture."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from veloxseg.files import write_json
from veloxseg.image import Volume
from veloxseg.image.resample import resample_image
from veloxseg.modality import KINDS, kind_of
from veloxseg.predict.result import Segmentation
from veloxseg.predict.scans import Scans

__all__ = ["EXTRAS", "Extra"]


@dataclass(frozen=True)
class Extra:
    ending: str  # of the file's name, after the case's
    write: Callable[[Segmentation, Scans, Path], None]


def write_statistics(result: Segmentation, scans: Scans, path: Path) -> None:
    from veloxseg.predict.lesion_table import lesion_statistics

    pet = next((scans[name] for name in scans if kind_of(name) == "pet"), None)
    write_json(path, lesion_statistics(result, pet))


def write_preview(result: Segmentation, scans: Scans, path: Path, title: str | None = None) -> None:
    from veloxseg.predict.preview import draw

    hot = _on_mask_grid(result, scans, "pet")
    others = (_on_mask_grid(result, scans, kind) for kind in ("ct", "mr", "other"))
    anatomy = next((scan for scan in others if scan is not None), None)
    draw(result, hot, anatomy, path, title=path.stem if title is None else title)


EXTRAS = {"statistics": Extra("_statistics.json", write_statistics), "preview": Extra(".png", write_preview)}


def _on_mask_grid(result: Segmentation, scans: Scans, kind: str) -> Volume | None:
    """The first scan of a kind, on the grid of the mask; None if the case has none."""
    for name in scans:
        if kind_of(name) == kind:
            scan = scans[name]
            if scan.geometry.same_grid(result.geometry):
                return scan
            array = resample_image(scan, result.geometry, "linear", KINDS[kind].air)
            return Volume(array=array, geometry=result.geometry)
    return None
