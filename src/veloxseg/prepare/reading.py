"""A case's scans and label as volumes."""

import numpy as np

from veloxseg.errors import DatasetError
from veloxseg.io import Volume, read, read_label
from veloxseg.prepare.dataset import Case

__all__ = ["read_case_images", "read_case_label"]


def read_case_images(case: Case, modalities: tuple[str, ...]) -> dict[str, Volume]:
    """Every modality of a case; a missing one is named."""
    missing = [name for name in modalities if name not in case.images]
    if missing:
        raise DatasetError(
            f"case {case.name} lacks modality {', '.join(missing)}, found {', '.join(case.images) or 'none'}; "
            "add the file or leave the case out"
        )
    return {name: read(case.images[name], volume=case.volumes.get(name)) for name in modalities}


def read_case_label(case: Case, labels: dict[str, int]) -> Volume | None:
    """The label map, whose values must be those that the data set lists."""
    if case.label is None:
        return None
    volume = read_label(case.label)
    unknown = sorted(set(np.unique(volume.array).tolist()) - set(labels.values()))
    if unknown:
        raise DatasetError(
            f"{case.label} holds label value {', '.join(map(str, unknown[:5]))}, the data set lists "
            f"{', '.join(map(str, sorted(labels.values())))}; correct the label map or the list"
        )
    return volume
