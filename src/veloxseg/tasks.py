"""The paper's tasks by name: what was published of each data set, what the paper leaves open, and what we chose.

`prepare --as`, `train --as` and `benchmark --task` read this one table. Sources in the paper: Sec. 3.2 (recipe, split),
table "Details of … datasets" (spacing, crop), Appendix "Details of PWA" (windows, which follow from the patch), and the
cost tables, from which the number of outputs follows: 2.13 G on HECKTOR is one foreground, 2.64 G on BraTS a soft-max
of four classes. The published costs themselves are in `peers/published.py`.
"""

from dataclasses import dataclass, field
from typing import Any

from veloxseg.errors import ConfigError, did_you_mean, shown
from veloxseg.types import Size

__all__ = ["TASKS", "Task", "find_task"]

SPLIT = "which cases are trained on is not told: 6:2:2 by patient, drawn with --seed"
RECIPE = (
    "length of the warm-up and last rate are not printed: 10 epochs and 6e-6",
    "batch 4 is taken as 2 volumes × 2 crops, every other one around a labelled voxel (1:1)",
)
PETCT_INTENSITIES = (
    'intensities are only "standardized": CT is clipped to the 0.5 and 99.5 percentiles of labelled voxels and '
    "z-scored by them, PET is z-scored over each patient's body"
)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One data set as the paper trained on it."""

    title: str
    modalities: tuple[str, ...]
    spacing: tuple[float, float, float]  # millimetres
    patch: Size
    merge: dict[str, tuple[str, ...]] = field(default_factory=dict)  # labels that are one in the paper
    regions: str = "given"  # the data set's own overlapping targets (sigmoids), or "none": a soft-max over labels
    classes: int  # outputs of the network
    settings: dict[str, Any]  # of train, where they are not the default
    normalise: dict[str, str] = field(default_factory=dict)  # schemes by modality, where they are not the default
    left_open: tuple[str, ...]  # what the paper does not say of the data, and what we chose

    @property
    def model(self) -> str:
        """The preset of VeloxSeg."""
        return str(self.settings["model"])


TASKS: dict[str, Task] = {
    "autopet2": Task(
        title="AutoPET-II",
        modalities=("ct", "pet"),
        spacing=(2.036, 2.036, 3.0),
        patch=(96, 96, 96),
        classes=2,
        settings={"model": "b"},
        normalise={"pet": "zscore_body"},
        left_open=(
            PETCT_INTENSITIES,
            SPLIT,
            "of 1,014 scans all are kept: healthy patients too; scans of one patient stay in one part of the split",
        ),
    ),
    "hecktor2022": Task(
        title="HECKTOR 2022",
        modalities=("ct", "pet"),
        spacing=(0.98, 0.98, 3.3),
        patch=(128, 128, 64),
        merge={"tumour": ("GTVp", "GTVn")},
        classes=2,
        settings={"model": "b"},
        normalise={"pet": "zscore_body"},
        left_open=(
            "0.98 × 0.98 × 3.3 mm is told as the median of the archive: all cases are resampled to it",
            "one foreground follows from the published 2.13 G: GTVp and GTVn are merged (--merge)",
            PETCT_INTENSITIES,
            SPLIT,
        ),
    ),
    "brats2021": Task(
        title="BraTS 2021",
        modalities=("t1", "t1ce", "t2", "flair"),
        spacing=(1.0, 1.0, 1.0),
        patch=(96, 96, 96),
        regions="none",
        classes=4,
        settings={"model": "c"},
        left_open=(
            "a soft-max of four classes follows from the published 2.64 G; three sigmoids, WT TC ET, take 2.26 G "
            "(--regions given)",
            'intensities are only "standardized": each sequence is z-scored over the brain',
            SPLIT,
        ),
    ),
}


def find_task(name: str) -> Task:
    if name not in TASKS:
        raise ConfigError(f"unknown task {shown(name)!r}{did_you_mean(name, TASKS)}; choose from {', '.join(TASKS)}")
    return TASKS[name]
