"""Modality names, and the one table of what a kind of scan implies.

A name (`ct`, `pet`, `t1ce`) says which scan it is; its kind (`ct`, `pet`, `mr`, `other`) decides how it is treated.
Whatever depends on the kind stands in `KINDS`, so that another kind is one more entry.
"""

from dataclasses import dataclass

__all__ = ["KINDS", "Kind", "canonical_name", "kind_of"]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What follows from the kind of a scan."""

    names: tuple[str, ...] = ()  # first words of modality names that are of this kind
    air: float = 0.0  # the value of what lies outside the scan
    body_above: float | None = None  # a fixed value that separates air from tissue; None: a share of the range
    body_share: float = 0.1  # of the robust range (2nd to 98th percentile) above which a voxel is tissue
    kernel: str = "cubic"  # how the scan is interpolated
    scheme: str = "zscore_body"  # how its intensities are normalised unless the user says otherwise
    grey_window: tuple[float, float] | None = None  # what is black and white in pictures; None: by percentiles
    starts_at_air: bool = False  # whether black is the value of air in pictures, not a percentile
    inverted: bool = False  # whether projections are drawn dark on white
    outlines_body: bool = False  # whether this scan alone decides where the body is
    lowest: tuple[float, float] | None = None  # between which values the darkest voxel of a whole scan lies


KINDS = {
    "ct": Kind(
        names=("ct", "cbct"),
        air=-1000.0,
        body_above=-500.0,
        scheme="clip_zscore",
        grey_window=(-160.0, 240.0),  # Hounsfield units, soft tissue
        outlines_body=True,
        lowest=(float("-inf"), -500.0),
    ),
    # a cubic kernel would undershoot beside hot spots, and hot spots stretch the range
    "pet": Kind(
        names=("pet", "fdg", "psma"),
        kernel="linear",
        scheme="log_body",
        body_share=0.03,
        starts_at_air=True,
        inverted=True,
        lowest=(-100.0, float("inf")),
    ),
    "mr": Kind(names=("t1", "t2", "flair", "mr", "pd", "dwi", "adc", "swi", "dce"), lowest=(-500.0, float("inf"))),
    "other": Kind(),
}

# what archives write -> the name that this project uses; a name that is not here stays as it is
ALIASES = {
    "pt": "pet",
    "suv": "pet",
    "t1n": "t1",
    "t1w": "t1",
    "t1gd": "t1ce",
    "t1c": "t1ce",
    "t1-ce": "t1ce",
    "t2w": "t2",
    "t2f": "flair",
    "t2-flair": "flair",
    "mri": "mr",
}


def canonical_name(name: str) -> str:
    """`PT` → `pet`, `T1Gd` → `t1ce`, `CT` → `ct`; other names in lower case, blanks as underscores."""
    lower = name.strip().lower().replace(" ", "_")
    return ALIASES.get(lower, lower)


def kind_of(name: str) -> str:
    """`ct`, `pet`, `mr` or `other`."""
    parts = canonical_name(name).replace("-", "_").split("_")
    first = ALIASES.get(parts[0], parts[0])
    if first.startswith(KINDS["mr"].names):  # t1ce, dwi800
        return "mr"
    return next((kind for kind, facts in KINDS.items() if first in facts.names), "other")
