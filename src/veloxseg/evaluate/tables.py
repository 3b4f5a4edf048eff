"""The machine-readable side of a report: `metrics.json`, `metrics.csv`, `per-lesion.csv`."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.files import atomic_path, write_json

__all__ = ["write_tables"]


LESION_COLUMNS = ("method", "case", "structure", "lesion", "volume_ml", "dice", "found")


def write_tables(evaluation: Evaluation, folder: Path) -> None:
    """Writes the three files into `folder`."""
    content = evaluation.to_json()
    write_json(folder / "metrics.json", content)
    cases = content["cases"]  # never empty: an evaluation has a case and a structure
    _write_csv(folder / "metrics.csv", list(cases[0]), (row.values() for row in cases))
    _write_csv(folder / "per-lesion.csv", LESION_COLUMNS, _lesion_rows(evaluation))


def _lesion_rows(evaluation: Evaluation) -> Iterator[tuple[Any, ...]]:
    for row in evaluation.rows:
        for number, lesion in enumerate(row.detection.lesions, start=1):
            yield row.method, row.case, row.structure, number, lesion.volume_ml, lesion.dice, lesion.found


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else value
