"""CT in Hounsfield units: what its tags and its values must say.

A CT has one slope and one intercept for all slices, and RescaleType HU if any. A scanner also writes maps of other
quantities as CT (effective atomic number, electron density), which must not pass for Hounsfield units.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from veloxseg.errors import ImageError, shown
from veloxseg.image.dicom.frames import Frame
from veloxseg.image.dicom.tags import one_value
from veloxseg.types import Floats

__all__ = ["check_hounsfield"]

BRIGHTEST = 32767.0  # metal reaches 30,000 in the extended scale; the sign bit read as a value lies above
REMEDY = "convert the series to Hounsfield units with the scanner's software"


def check_hounsfield(slices: Sequence[Any], frames: Sequence[Frame], array: Floats) -> list[str]:
    """Refuses what is not in Hounsfield units for certain; returns warnings of what is doubtful."""
    units = str(one_value(slices, "RescaleType") or "").strip().upper()
    if units not in ("", "HU", "US"):
        raise ImageError(f"CT in units {shown(units, 16)} (RescaleType), expected HU; {REMEDY}")
    rescales = {frame.rescale for frame in frames}
    if len(rescales) > 1:
        raise ImageError(
            f"CT with {len(rescales)} different RescaleSlope or RescaleIntercept, expected the same in all slices; "
            f"{REMEDY}"
        )
    low, high = float(array.min()), float(array.max())
    warnings = []
    if units == "US":
        warnings.append("CT in unspecified units (RescaleType US); they are taken for Hounsfield units")
    if frames[0].rescale is None:
        warnings.append(
            "CT without RescaleSlope and RescaleIntercept; its stored numbers are taken for Hounsfield units"
        )
    if np.isfinite(low) and (low >= 0 or high > BRIGHTEST):
        warnings.append(
            f"CT with values from {low:.0f} to {high:.0f}; are these Hounsfield units (air −1000, water 0)?"
        )
    return warnings
