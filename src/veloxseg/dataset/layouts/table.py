"""A plain list of cases that a person writes: CSV, JSON, or JSON with a pattern. `docs/cases.md` explains every key.

CSV: a row per case, columns `case`, one per modality, `label`, and if wanted `patient` and `split`:

    case,ct,pet,label
    STS_001,STS_001/CT_image.nii.gz,STS_001/PET_image.nii.gz,STS_001/CT_mask.nii.gz

JSON says the label names too, and either lists `cases` (the same keys as the CSV's columns) or describes all at once:

    {"name": "sts", "labels": {"background": 0, "tumour": 1},
     "images": {"ct": "{case}/CT_image.nii.gz", "pet": "{case}/PET_image.nii.gz"},
     "label": "{case}/CT_mask.nii.gz", "exclude": ["STS_019"]}

A key with a dot says which part of a file is meant: `pet.series` (of a DICOM folder), `t1.volume` (of a 4-D file),
`label.tumour` (the region of an RTSTRUCT or DICOM SEG that is the label tumour; * stands for anything, | for "or", a |
at the end for "or none at all"). In the JSON such keys may stand for all cases. Paths are relative to the list, or to
`root` if the JSON names one. A CSV takes its labels from a JSON of the same name beside it; without one they are
background 0 and foreground 1.
"""

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veloxseg.dataset.dataset import SPLITS, Case, Dataset, inside, possible, safe_name
from veloxseg.dataset.naming import read_description
from veloxseg.errors import DatasetError, shown
from veloxseg.modality import canonical_name

__all__ = ["read", "read_list", "recognises"]

RESERVED = ("case", "patient", "label", "split")
NAMES = ("cases.csv", "cases.json")  # a cases.json beside a cases.csv names its labels
SEPARATORS = ",;\t"


def recognises(path: Path) -> bool:
    if path.is_file():
        return path.suffix.lower() in (".csv", ".json") and path.name != "dataset.json"
    return any((path / name).is_file() for name in NAMES)


def read(path: Path) -> Dataset:
    if path.is_dir():
        path = next((path / name for name in NAMES if (path / name).is_file()), path / NAMES[-1])
    return read_list(path, layout="table")


def read_list(path: Path, layout: str) -> Dataset:
    if path.suffix.lower() == ".csv":
        beside = path.with_suffix(".json")
        description = read_description(beside) if beside.is_file() else {}
        rows = _csv_rows(path)
    else:
        description = read_description(path)
        rows = _json_rows(path, description)
    root = _root(path, description)
    labels = _labels(description.get("labels", {"background": 0, "foreground": 1}), path)
    modalities = list(dict.fromkeys(key for row in rows for key in row if key not in RESERVED and "." not in key))
    if not modalities:
        raise DatasetError(f"{path} names no modality; add a column such as ct or t1 with each case's file")
    shared = {str(key): str(value) for key, value in description.items() if "." in key}
    return Dataset(
        name=str(description.get("name", path.stem if path.name not in NAMES else path.parent.name)),
        layout=layout,
        root=root,
        modalities=tuple(modalities),
        labels=labels,
        regions=_regions(description.get("regions"), path),
        ignore_label=description.get("ignore"),
        cases=tuple(_case({**_row({"case": "", **shared}, path), **row}, root, path, labels) for row in rows),
    )


def _root(path: Path, description: dict[str, Any]) -> Path:
    root = Path(str(description.get("root", ".")))
    return root if root.is_absolute() else path.parent / root


def _csv_rows(path: Path) -> list[dict[str, str]]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            file.seek(0)
            separator = max(SEPARATORS, key=head.count)  # spreadsheets of many countries write ;
            rows = list(csv.DictReader(file, delimiter=separator))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} cannot be read as CSV ({error}); save it as UTF-8 with commas") from error
    return [_row({k.strip(): v.strip() for k, v in row.items() if k and v and v.strip()}, path) for row in rows]


def _json_rows(path: Path, description: dict[str, Any]) -> list[dict[str, str]]:
    if isinstance(description.get("cases"), list):
        if not all(isinstance(row, dict) for row in description["cases"]):
            raise DatasetError(f'{path}: each entry of "cases" must be an object with case, label and the modalities')
        return [_row({str(k): str(v) for k, v in row.items() if v is not None}, path) for row in description["cases"]]
    if isinstance(description.get("images"), dict):
        return _pattern_rows(path, description)
    raise DatasetError(
        f'{path} has neither "cases" (a list) nor "images" (patterns with {{case}}); see `veloxseg check -h`'
    )


def _pattern_rows(path: Path, description: dict[str, Any]) -> list[dict[str, str]]:
    root = _root(path, description)
    patterns = {str(m): str(p) for m, p in description["images"].items()}
    if any("{case}" not in pattern for pattern in patterns.values()):
        raise DatasetError(f'{path}: every pattern of "images" must contain {{case}}, found {patterns}')
    names: set[str] = set()
    for pattern in patterns.values():
        inside(root, pattern, path)
        expression = re.compile(
            "(?P<case>[^/]+)".join(map(re.escape, pattern.split("{case}", 1))).replace(re.escape("{case}"), "(?P=case)")
        )
        for file in root.glob(pattern.replace("{case}", "*")):
            if match := expression.fullmatch(file.relative_to(root).as_posix()):
                names.add(match["case"])
    rows = []
    for name in sorted(names - set(map(str, description.get("exclude", ())))):
        row = {"case": name}
        for modality, pattern in patterns.items():
            relative = pattern.replace("{case}", name)
            if (root / relative).exists():
                row[canonical_name(modality)] = relative
        if "label" in description:
            row["label"] = str(description["label"]).replace("{case}", name)
        rows.append(row)
    return rows


def _row(row: dict[str, str], path: Path) -> dict[str, str]:
    if "case" not in row:
        raise DatasetError(f'{path} has an entry without "case" ({shown(row)}); give every case a name')
    found: dict[str, str] = {}
    for key, value in row.items():
        base, dot, part = key.partition(".")
        name = (base if base in RESERVED else canonical_name(base)) + dot + part
        if name in found:
            raise DatasetError(f"{path}: case {shown(row['case'], 60)} has two entries for {name}; keep one column")
        found[name] = value
    return found


def _case(row: dict[str, str], root: Path, path: Path, labels: Mapping[str, int]) -> Case:
    def file(value: str) -> Path:
        # a person's own list may name scans anywhere, but only in full; a relative path stays below the list
        return possible(Path(value), path) if Path(value).is_absolute() else inside(root, value, path)

    split = row.get("split")
    if split is not None and split not in SPLITS:
        raise DatasetError(
            f"{path}: case {row['case']} has split {split!r}; use one of {', '.join(SPLITS)} or leave it empty"
        )
    images = {key: file(value) for key, value in row.items() if key not in RESERVED and "." not in key}
    series, volumes, rois = _parts(row, path, labels)
    return Case(
        name=safe_name(row["case"], path),
        patient=row.get("patient", row["case"]),
        images=images,
        label=file(row["label"]) if "label" in row else None,
        series={name: value for name, value in series.items() if name in images},
        volumes={name: value for name, value in volumes.items() if name in images},
        rois=rois,
        split=split,
    )


def _parts(
    row: Mapping[str, str], path: Path, labels: Mapping[str, int]
) -> tuple[dict[str, str], dict[str, int], dict[str, tuple[str, ...]]]:
    """Which series, volume and regions the keys with a dot choose."""
    series: dict[str, str] = {}
    volumes: dict[str, int] = {}
    rois: dict[str, tuple[str, ...]] = {}
    for key, value in row.items():
        base, dot, part = key.partition(".")
        if not dot:
            continue
        if base == "label" and part in labels:
            rois[part] = tuple(pattern.strip() for pattern in value.split("|"))
        elif base not in RESERVED and part == "series":
            series[base] = value
        elif base not in RESERVED and part == "volume" and re.fullmatch("[0-9]{1,6}", value):
            volumes[base] = int(value)
        else:
            known = ", ".join(name for name, number in labels.items() if number)
            raise DatasetError(
                f"{path}: {shown(key, 60)} = {shown(value, 60)!r} is not MODALITY.series, MODALITY.volume (a number) "
                f"or label.NAME with one of {known}; correct it"
            )
    return series, volumes, rois


def _labels(value: Any, path: Path) -> dict[str, int]:
    if not isinstance(value, dict) or not all(isinstance(v, int) and v >= 0 for v in value.values()):
        raise DatasetError(f'{path} has labels {value!r}, expected {{"background": 0, "lesion": 1}}; correct it')
    return {"background": 0, **{str(name): v for name, v in value.items() if v != 0}}


def _regions(value: Any, path: Path) -> dict[str, tuple[int, ...]] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(v, list) and v for v in value.values()):
        raise DatasetError(f'{path} has regions {value!r}, expected {{"WT": [1, 2, 4], ...}}; correct it')
    return {str(name): tuple(int(x) for x in v) for name, v in value.items()}
