"""The machine-readable side of a report: `metrics.json`, `metrics.csv`, `per-lesion.csv`."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from veloxseg.errors import OutputError, shown
from veloxseg.evaluate.evaluation import Evaluation
from veloxseg.files import atomic_path, writable_folder, write_json

__all__ = ["PAGE", "report_folder", "write_tables"]

PAGE = "report.html"
# what the beginning of each of our files holds; a file of the same name without it is somebody else's
MARKS = {
    PAGE: b"<title>Segmentation report",
    "metrics.json": b'"nsd_tolerance_mm"',
    "metrics.csv": b"method,case,structure,outcome",
    "per-lesion.csv": b"method,case,structure,lesion",
}
BEGINNING = 2000  # bytes that are read to find the mark
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # a spreadsheet runs a cell that begins so
LESION_COLUMNS = ("method", "case", "structure", "lesion", "volume_ml", "dice", "found", "learning")


def report_folder(folder: str | Path) -> Path:
    """The folder, made and writable, after proof that the report replaces nothing but an earlier report.

    Predictions often lie there too, and that of a case called `metrics` has a metrics.json beside it.
    """
    for name, mark in MARKS.items():
        path = Path(folder) / name
        if path.exists() and not (path.is_file() and mark in _beginning(path)):
            raise OutputError(
                f"{shown(path)} exists and is not of a report, which would replace it; choose another folder with -o"
            )
    return writable_folder(folder)


def _beginning(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(BEGINNING)
    except OSError as error:
        raise OutputError(
            f"cannot read {shown(path)}, which the report would replace; choose another folder with -o"
        ) from error


def write_tables(evaluation: Evaluation, folder: Path) -> None:
    """Writes the three files into `folder`."""
    content = evaluation.to_json()
    write_json(folder / "metrics.json", content)
    cases = content["cases"]  # never empty: an evaluation has a case and a structure
    _write_csv(folder / "metrics.csv", list(cases[0]), (row.values() for row in cases))
    _write_csv(folder / "per-lesion.csv", LESION_COLUMNS, _lesion_rows(evaluation))


def _lesion_rows(evaluation: Evaluation) -> Iterator[tuple[Any, ...]]:
    for row in evaluation.every_row:
        status = evaluation.status(row.case, row.method)
        for number, lesion in enumerate(row.detection.lesions, start=1):
            yield row.method, row.case, row.structure, number, lesion.volume_ml, lesion.dice, lesion.found, status


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    with (
        atomic_path(path) as temporary,
        # a case is named after a file, whose name may hold bytes that are no text
        open(temporary, "w", newline="", encoding="utf-8", errors="backslashreplace") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Any) -> Any:
    """A value as it stands in CSV: numbers as numbers, and text so that no spreadsheet takes it for a formula."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and value.startswith(FORMULA):
        return f"'{value}"
    return "" if value is None else value
