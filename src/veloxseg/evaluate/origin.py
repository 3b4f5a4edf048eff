"""Who made the predictions, by the JSON that `veloxseg predict` leaves beside each of them."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

__all__ = ["predicted_by"]


def predicted_by(files: Mapping[str, Path]) -> dict[str, int]:
    """Model, weights and runtime in words -> cases; those of other programs, without such a file, are not in it."""
    makers = (_maker(path.parent / f"{case}.json") for case, path in files.items())
    return dict(Counter(maker for maker in makers if maker))


def _maker(path: Path) -> str:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        models = [
            f"{m['name']} ({m['architecture']}, weights {m['weights_sha256'][:12]})" for m in record["models"]
        ]
        return f"{' + '.join(models)} in {record['runtime']['name']}"
    except (OSError, ValueError, KeyError, TypeError):  # not there, or another program's
        return ""
