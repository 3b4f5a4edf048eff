"""The table of docs/robustness.md, written between two marks so that the words around it stay."""

from pathlib import Path
from typing import Any

BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"
WORDS = {
    "headers": "headers of NIfTI, NRRD and MetaImage",
    "dicom": "tags and bytes of DICOM series, SEG and RTSTRUCT",
    "spacing": "sizes and spacings that no scanner makes",
    "json": "model, plan, cases, settings, dataset, list and record as JSON",
    "safetensors": "weights, checkpoints and prepared cases",
    "graphs": "ONNX and OpenVINO graphs",
    "names": "names of cases and files",
    "options": "numbers and words of every option",
    "disks": "full disks",
    "flips": "single bits of files that we wrote",
    "kills-training": "kills of a training",
    "kills-prediction": "kills of a prediction",
}


def table(found: dict[str, Any]) -> str:
    """The results, a row for each class."""
    lines = ["| class | what lies | tried | held | refused | done |", "|---|---|---:|---:|---:|---:|"]
    total = dict.fromkeys(("tried", "held", "refused", "done"), 0)
    for name, row in found["classes"].items():
        lines.append(f"| `{name}` | {WORDS[name]} | {' | '.join(f'{row[key]:,}' for key in total)} |")
        total = {key: total[key] + row[key] for key in total}
    lines.append(f"| all | | {' | '.join(f'{value:,}' for value in total.values())} |")
    said = f"Run of {found['date']} at commit {found['commit']}, seed {found['seed']}:"
    failed = [f"`{row['class']}` {row['index']} ({row.get('told', '?')[:80]})" for row in found["failures"]]
    ended = "What has not held: " + "; ".join(failed) + "." if failed else "All held."
    return "\n".join([said, "", *lines, "", ended])


def write_table(page: Path, found: dict[str, Any]) -> None:
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{after}", encoding="utf-8")
