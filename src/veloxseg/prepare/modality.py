"""Modality names: what people and archives call a scan, and the kind that decides how it is treated."""

__all__ = ["canonical_name", "kind_of"]

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
MR_NAMES = ("t1", "t2", "flair", "mr", "pd", "dwi", "adc", "swi", "dce")


def canonical_name(name: str) -> str:
    """`PT` → `pet`, `T1Gd` → `t1ce`, `CT` → `ct`; other names in lower case, blanks as underscores."""
    lower = name.strip().lower().replace(" ", "_")
    return ALIASES.get(lower, lower)


def kind_of(name: str) -> str:
    """`ct`, `pet`, `mr` or `other`."""
    parts = canonical_name(name).replace("-", "_").split("_")
    first = ALIASES.get(parts[0], parts[0])
    if first in ("ct", "cbct"):
        return "ct"
    if first in ("pet", "fdg", "psma"):
        return "pet"
    if first.startswith(MR_NAMES):
        return "mr"
    return "other"
