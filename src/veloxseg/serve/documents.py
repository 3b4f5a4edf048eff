"""Files that are made of a result when somebody asks for them: DICOM objects, a report to print, a picture."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from veloxseg.files import atomic_path, read_json
from veloxseg.machine import NOTICE
from veloxseg.predict.extras import write_preview
from veloxseg.predict.result import Segmentation
from veloxseg.predict.scans import Scans

__all__ = ["DOCUMENTS", "Document"]

Writer = Callable[[Segmentation, Scans, Path], None]
STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; color: #111; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; margin: 0 } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem } p { margin: .3rem 0 }
.notice { border: 2px solid #b45309; color: #b45309; padding: .4rem .8rem; font-weight: 600; margin: 1rem 0 }
table { border-collapse: collapse; width: 100% } th, td { text-align: right; padding: .25rem .5rem }
th { border-bottom: 2px solid #111 } td { border-bottom: 1px solid #ccc }
th:first-child, td:first-child { text-align: left }
img { max-width: 100%; background: #000 } .small { color: #555; font-size: .85rem; overflow-wrap: anywhere }
"""
NUMBERS = {
    "volume_ml": "Volume (mL)",
    "suv_max": "SUVmax",
    "suv_mean": "SUVmean",
    "suv_peak": "SUVpeak",
    "tlg": "TLG (g)",
}


@dataclass(frozen=True)
class Document:
    """A file of a result: its type for the browser, and what writes it."""

    media_type: str
    write: Writer


def write_picture(result: Segmentation, scans: Scans, path: Path) -> None:
    with atomic_path(path) as temporary:
        write_preview(result, scans, temporary, title=f"mask by {result.provenance['mask_by']}")


def write_report(result: Segmentation, scans: Scans, path: Path) -> None:
    """One page to print: picture, table of lesions, warnings, and what made the mask. It names no patient."""
    picture = path.with_name("preview.png")
    if not picture.is_file():
        write_picture(result, scans, picture)
    statistics = read_json(path.with_name("statistics.json"))
    image = base64.b64encode(picture.read_bytes()).decode()
    warnings = "".join(f"<li>{escape(text)}</li>" for text in result.warnings)
    record = result.provenance
    made = f"VeloxSeg {record['software']['veloxseg']}, model {record.get('model', '')}, mask by {record['mask_by']}"
    weights = ", ".join(str(model["weights_sha256"]) for model in record["models"])
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Segmentation report</title><style>{STYLE}</style>'
        f'<h1>Segmentation report</h1><p class="notice">{escape(NOTICE.capitalize())}</p>'
        f'<img alt="slices and projections with the mask" src="data:image/png;base64,{image}">'
        f"{''.join(_table(name, label) for name, label in statistics['labels'].items())}"
        + (f"<h2>Warnings</h2><ul>{warnings}</ul>" if warnings else "")
        + f'<h2>Made by</h2><p>{escape(made)}</p><p class="small">weights {escape(weights)}</p></html>'
    )
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _table(name: str, label: dict[str, Any]) -> str:
    columns = {key: title for key, title in NUMBERS.items() if any(key in lesion for lesion in label["lesions"])}
    head = "".join(f"<th>{title}</th>" for title in columns.values())
    rows = [
        f"<tr><td>{number}</td>{''.join(_cell(lesion.get(key)) for key in columns)}</tr>"
        for number, lesion in enumerate(label["lesions"], 1)
    ]
    total = f"<tr><td>all</td>{''.join(_cell(label.get(key)) for key in columns)}</tr>"
    body = f"<table><tr><th>lesion</th>{head}</tr>{''.join(rows)}{total}</table>" if rows else "<p>Nothing found.</p>"
    return f"<h2>{escape(name)}: {label['count']} found</h2>{body}"


def _cell(value: float | None) -> str:
    return f"<td>{'' if value is None else f'{value:.2f}'}</td>"


def _lazily(name: str) -> Writer:
    """A writer of dicom_objects.py, which takes a while to import."""

    def write(result: Segmentation, scans: Scans, path: Path) -> None:
        from veloxseg.serve import dicom_objects

        getattr(dicom_objects, name)(result, scans, path)

    return write


DOCUMENTS = {
    "report.html": Document("text/html; charset=utf-8", write_report),
    "preview.png": Document("image/png", write_picture),
    "seg.dcm": Document("application/dicom", _lazily("write_seg")),
    "sr.dcm": Document("application/dicom", _lazily("write_sr")),
    "capture.dcm": Document("application/dicom", _lazily("write_capture")),
}
