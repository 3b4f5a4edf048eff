"""What the JSON beside a prediction tells: who made it, what its values mean, and whether the model knew the case.

`veloxseg predict` leaves such a record; predictions of other programs have none, and nothing is known of them.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from veloxseg.dataset.naming import label_values
from veloxseg.dataset.seen import Seen
from veloxseg.errors import DatasetError, VeloxSegError
from veloxseg.evaluate.labels import Files, Regions
from veloxseg.schema import build

__all__ = ["learning_of", "predicted_by", "predicted_labels", "predicted_merges", "predicted_structures"]


def predicted_by(files: Files) -> dict[str, int]:
    """Model, weights and runtime in words → number of cases."""
    makers = (_maker(_record(case, path)) for case, path in files.items())
    return dict(Counter(maker for maker in makers if maker))


def predicted_structures(files: Files) -> Regions:
    """What the plan of the first prediction that has one calls its regions or labels; {} if none has."""
    for case, path in files.items():
        plan = _record(case, path).get("plan")
        if not isinstance(plan, dict):
            continue
        given = plan.get("regions") or plan.get("labels")
        ignore = plan.get("ignore_label")
        try:
            found = label_values({"labels": given}, path) if given else {}
        except DatasetError:  # another program's file, or a damaged one
            continue
        names = {name: values for name, values in found.items() if 0 not in values}
        if names:
            return {name: values for name, values in names.items() if values != (ignore,)}
    return {}


def predicted_labels(files: Files) -> dict[str, int]:
    """Label name → value by the plan of the first prediction that has one; {} if none has."""
    for case, path in files.items():
        plan = _record(case, path).get("plan")
        try:
            found = label_values(plan, path) if isinstance(plan, dict) else {}
        except DatasetError:
            continue
        if found:
            return {name: values[0] for name, values in found.items() if len(values) == 1}
    return {}


def predicted_merges(files: Files) -> dict[str, tuple[str, ...]]:
    """Labels that the model was taught as one: its name → the names of its parts, by the first plan that tells."""
    for case, path in files.items():
        plan = _record(case, path).get("plan")
        merged = plan.get("merged") if isinstance(plan, dict) else None
        if isinstance(merged, dict) and all(isinstance(parts, dict) for parts in merged.values()):
            return {str(name): tuple(map(str, parts)) for name, parts in merged.items()}
    return {}


def learning_of(files: Files) -> dict[str, Seen | None]:
    """Case → what the record says about the training; None where a record says nothing, no entry without a record."""
    found: dict[str, Seen | None] = {}
    for case, path in files.items():
        if record := _record(case, path):
            found[case] = _seen(record)
    return found


def _seen(record: Mapping[str, Any]) -> Seen | None:
    try:
        seen: Seen | None = build(Seen, record["learning"], "learning") if "learning" in record else None
    except VeloxSegError:  # another program's entry
        return None
    return seen


def _record(case: str, prediction: Path) -> dict[str, Any]:
    """The JSON beside a prediction; empty where it is not there or another program's."""
    try:
        record = json.loads((prediction.parent / f"{case}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _maker(record: dict[str, Any]) -> str:
    try:
        models = [f"{m['name']} ({m['architecture']}, weights {m['weights_sha256'][:12]})" for m in record["models"]]
        return f"{' + '.join(models)} in {record['runtime']['name']}"
    except (KeyError, TypeError):
        return ""
