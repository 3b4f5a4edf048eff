"""What a case's mask becomes: one folder per revision, which is there whole or not at all.

    out/<request>/view/     the scans as the page shows them, and view.json
    out/<request>/<edits>/  mask.nii.gz  record.json  statistics.json  lesions.csv  mask.view.gz    made at once
                            seg.dcm  sr.dcm  capture.dcm  report.html                               made when asked for

The names are hashes of what decides the content: <request> of scans, model and options, <edits> of the list of edits.
So a result that is made again, after a kill or an undo, is the same folder.
"""

import csv
import io
import os
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from veloxseg.errors import OutputError
from veloxseg.files import read_json, sha256, write_json
from veloxseg.image import Volume, read_label, write
from veloxseg.modality import kind_of
from veloxseg.predict.lesion_table import lesion_statistics
from veloxseg.predict.result import Segmentation
from veloxseg.serve.edits import Edit
from veloxseg.serve.viewer import write_mask_layer

__all__ = ["edited", "open_result", "whole_folder", "write_revision"]

COLUMNS = ("label", "lesion", "volume_ml", "suv_max", "suv_mean", "suv_peak", "tlg", "x_mm", "y_mm", "z_mm")


def whole_folder(target: Path, fill: Callable[[Path], None]) -> Path:
    """Makes a folder by filling it aside and renaming it; one that is there already is kept."""
    if target.is_dir():
        return target
    stage = target.with_name(
        f".part-{target.name}-{secrets.token_hex(4)}"
    )  # a machine given up for dead may still write
    try:
        stage.mkdir(parents=True, mode=0o700)
        fill(stage)
        os.rename(stage, target)
    except OSError as error:
        shutil.rmtree(stage, ignore_errors=True)
        if target.is_dir():  # another was faster, with the same content
            return target
        raise OutputError(f"the result cannot be written ({error.strerror or error}); free space") from error
    return target


def write_revision(result: Segmentation, pet: Volume | None, edits: Sequence[Edit], folder: Path) -> None:
    """All that is known of a revision at once."""
    statistics = lesion_statistics(result, pet)
    labels = result.labels
    write(
        labels if labels.file_type == "nifti" else replace(labels, file_type="nifti", header={}), folder / "mask.nii.gz"
    )
    write_mask_layer(result.array, result.geometry, folder / "mask.view.gz", max(result.names))
    write_json(folder / "statistics.json", statistics)
    (folder / "lesions.csv").write_text(lesion_rows(statistics), encoding="utf-8")
    record = {
        **result.provenance,
        "volumes_ml": result.volumes_ml,
        "mask_by": "the model, edited by hand" if edits else "the model",
        "edits": [asdict(edit) for edit in edits],
        "outputs": {"mask.nii.gz": sha256(folder / "mask.nii.gz")},
    }
    write_json(folder / "record.json", record)


def lesion_rows(statistics: Mapping[str, Any]) -> str:
    """The table of lesions as CSV."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for name, label in statistics["labels"].items():
        for number, lesion in enumerate(label["lesions"], 1):
            known = [lesion.get(column) for column in COLUMNS[2:7]]
            table.writerow([name, number, *("" if v is None else v for v in known), *lesion["centre_ras_mm"]])
    return text.getvalue()


def open_result(folder: Path, labels: Mapping[str, int], reference: Volume) -> Segmentation:
    """A stored mask as a result again; `reference` is the scan on whose grid it lies (its voxels are not needed)."""
    mask = read_label(folder / "mask.nii.gz")
    record = read_json(folder / "record.json")
    volume = replace(reference, array=mask.array, warnings=())
    return Segmentation(
        labels=volume,
        names={value: name for name, value in labels.items()},
        volumes_ml=record["volumes_ml"],
        probabilities={},
        warnings=tuple(record["warnings"]),
        provenance=record,
    )


def edited(result: Segmentation, array: Any, labels: Mapping[str, int]) -> Segmentation:
    """The result with another mask; its volumes follow."""
    counts = np.bincount(array.ravel(order="K"), minlength=max(labels.values()) + 1)
    volumes = {name: round(int(counts[labels[name]]) * result.geometry.voxel_ml, 6) for name in result.volumes_ml}
    return replace(result, labels=replace(result.labels, array=array), volumes_ml=volumes)


def pet_of(scans: Mapping[str, Volume]) -> Volume | None:
    return next((scans[name] for name in scans if kind_of(name) == "pet"), None)
