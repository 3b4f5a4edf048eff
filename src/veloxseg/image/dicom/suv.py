"""SUV, body weight, from the tags of a PET series.

    SUV = concentration [Bq/mL] · weight [g] / (dose [Bq] · 2^(-delay / half-life))

The delay runs from injection to the time that the images are decay-corrected to (see `pet_times.py`). Units are never
guessed: every tag has one value over all slices, private tags count with the name of their creator only, and numbers
that cannot be in the unit that DICOM prescribes are refused. The result is held against the one law that it has to
obey whatever the scanner: the image cannot hold more activity than was injected.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from veloxseg.errors import ImageError, shown
from veloxseg.image.dicom.pet_times import REMEDY, SCAN_STARTS, TIME_TAGS, injection_delay, positive, reference_time
from veloxseg.image.dicom.tags import agreed, one_value, private_tags, private_value
from veloxseg.types import Floats

__all__ = ["PET_TAGS", "SuvScale", "check_suv", "suv_scale"]

PHILIPS = (0x7053, "Philips PET Private Group")
SUV_PER_COUNT, BECQUEREL_PER_COUNT = 0x00, 0x09  # elements of Philips' group
PET_TAGS: tuple[str | int, ...] = (
    "Units",
    "SUVType",
    "DecayCorrection",
    "CorrectedImage",
    "PatientWeight",
    "RadiopharmaceuticalInformationSequence",
    *TIME_TAGS,
    *(tag for group, _, element in SCAN_STARTS for tag in private_tags(group, [element])),
    *private_tags(PHILIPS[0], [SUV_PER_COUNT, BECQUEREL_PER_COUNT]),
)
INJECTED = (
    "RadionuclideTotalDose",
    "RadionuclideHalfLife",
    "RadiopharmaceuticalStartTime",
    "RadiopharmaceuticalStartDateTime",
)
HALF_LIVES = {  # of the nuclides of PET, in seconds
    ("C", "carbon", 11): 1222,
    ("N", "nitrogen", 13): 598,
    ("O", "oxygen", 15): 122.2,
    ("F", "fluorine", 18): 6586,
    ("Sc", "scandium", 44): 14500,
    ("Mn", "manganese", 52): 483100,
    ("Cu", "copper", 61): 12020,
    ("Cu", "copper", 62): 580,
    ("Cu", "copper", 64): 45720,
    ("Ga", "gallium", 66): 34160,
    ("Ga", "gallium", 68): 4063,
    ("Br", "bromine", 76): 58320,
    ("Rb", "rubidium", 82): 76.4,
    ("Y", "yttrium", 86): 53060,
    ("Y", "yttrium", 90): 230500,
    ("Zr", "zirconium", 89): 282300,
    ("I", "iodine", 124): 360800,
}
LEAST_DOSE, LITTLE_DOSE, MUCH_DOSE = 1e5, 5e6, 2e10  # Bq; below the first it is certainly in another unit
MOST_WEIGHT, MUCH_WEIGHT, LITTLE_WEIGHT = 700.0, 300.0, 2.0  # kg; above the first it is certainly in another unit
HEAVIEST_BODY = 300_000.0  # g, where the weight is not known
COLD = 0.2  # SUV; a scan of a patient who got the tracer holds more somewhere


@dataclass(frozen=True, kw_only=True)
class SuvScale:
    """What makes SUV of rescaled voxels."""

    factor: float
    weight: float | None = None  # of the patient, in kilograms, where the factor was made with it
    warnings: tuple[str, ...] = ()


def suv_scale(slices: Sequence[Any]) -> SuvScale:
    """The factor to SUV; `slices` are the parsed files of one PET series."""
    units = str(one_value(slices, "Units") or "").upper()
    kind = str(one_value(slices, "SUVType") or "BW").upper()
    check_corrections(slices, units)
    one_value(slices, "PatientWeight")
    if units == "GML":
        if kind != "BW":
            raise ImageError(f"PET in SUV of type {shown(kind, 16)}, expected body weight (BW); {REMEDY}")
        return SuvScale(factor=1.0)
    if units == "CNTS" and (factor := philips_factor(slices, SUV_PER_COUNT)):
        return SuvScale(factor=factor)
    becquerel = 1.0 if units == "BQML" else philips_factor(slices, BECQUEREL_PER_COUNT) if units == "CNTS" else 0.0
    if not becquerel:
        raise ImageError(
            f"PET in units {shown(units, 16) or 'unknown'}, expected BQML, GML, or CNTS with Philips' factors; {REMEDY}"
        )
    weight = positive(slices[0], "PatientWeight")
    doubts = weight_doubts(weight)
    dose, more = dose_left(slices)
    return SuvScale(factor=becquerel * weight * 1000 / dose, weight=weight, warnings=(*doubts, *more))


def check_corrections(slices: Sequence[Any], units: str) -> None:
    """Without correction of attenuation and decay a number is no SUV, whatever the tag of units says."""
    stated = one_value(slices, "CorrectedImage")
    words = [stated] if isinstance(stated, str) else list(stated or [])
    corrected = {str(word).strip().upper() for word in words}
    if not {"ATTN", "DECY"} <= corrected and (corrected or units in ("BQML", "CNTS")):
        raise ImageError(
            f"PET without attenuation or decay correction (CorrectedImage), so SUV is not defined; {REMEDY}"
        )


def dose_left(slices: Sequence[Any]) -> tuple[float, list[str]]:
    """The injected activity in becquerel, decayed to the time that the images are corrected to, and warnings."""
    injection = one_injection(slices)
    dose, half_life = positive(injection, "RadionuclideTotalDose"), positive(injection, "RadionuclideHalfLife")
    if dose < LEAST_DOSE:
        raise ImageError(
            f"PET with a RadionuclideTotalDose of {dose:g} Bq, expected more than {LEAST_DOSE:g} Bq (is it in another "
            f"unit?); {REMEDY}"
        )
    warnings = half_life_doubts(injection, half_life)
    if not LITTLE_DOSE <= dose <= MUCH_DOSE:
        warnings.append(f"a RadionuclideTotalDose of {dose / 1e6:.3g} MBq is unusual; is the unit right?")
    correction = str(one_value(slices, "DecayCorrection") or "").upper()
    if correction == "ADMIN":  # decay-corrected to the injection itself
        return dose, warnings
    if correction != "START":
        raise ImageError(
            f"PET with DecayCorrection {shown(correction, 16) or 'missing'}, expected START or ADMIN; {REMEDY}"
        )
    until, more = reference_time(slices, half_life)
    delay, still_more = injection_delay(slices, injection, until, half_life)
    return dose * 2 ** (-delay / half_life), [*warnings, *more, *still_more]


def one_injection(slices: Sequence[Any]) -> Any:
    """The one injection that all slices state."""
    stated = [list(s.get("RadiopharmaceuticalInformationSequence") or []) for s in slices]
    if not all(stated):
        raise ImageError(f"PET without injection data (RadiopharmaceuticalInformationSequence); {REMEDY}")
    if any(len(items) > 1 for items in stated):
        raise ImageError(
            f"PET with several injections (RadiopharmaceuticalInformationSequence), expected one; {REMEDY}"
        )
    for keyword in INJECTED:
        one_value([items[0] for items in stated], keyword)
    return stated[0][0]


def half_life_doubts(injection: Any, half_life: float) -> list[str]:
    """A half-life is that of the nuclide that the file names, or of one of PET's at least."""
    named = named_nuclide(injection)
    if named is not None and not is_close(half_life, HALF_LIVES[named]):
        raise ImageError(
            f"PET with a RadionuclideHalfLife of {half_life:g} s, expected {HALF_LIVES[named]:g} s for {named[1]}-"
            f"{named[2]} (is it in another unit?); {REMEDY}"
        )
    if any(is_close(half_life, seconds) for seconds in HALF_LIVES.values()):
        return []
    for unit, name in ((60, "minutes"), (3600, "hours")):
        if any(is_close(half_life * unit, seconds) for seconds in HALF_LIVES.values()):
            raise ImageError(
                f"PET with a RadionuclideHalfLife of {half_life:g} s, which is that of a nuclide in {name}, expected "
                f"seconds; {REMEDY}"
            )
    return [f"a RadionuclideHalfLife of {half_life:g} s is of no nuclide that PET uses; are these seconds?"]


def is_close(half_life: float, seconds: float) -> bool:
    return abs(half_life / seconds - 1) <= 0.05


def named_nuclide(injection: Any) -> tuple[str, str, int] | None:
    """The nuclide by the meaning of its code, which is written as 18F, F-18, Fluorine-18 or ^18^Fluorine."""
    for code in list(injection.get("RadionuclideCodeSequence") or [])[:1]:
        text = str(code.get("CodeMeaning") or "").lower()
        letters, mass = re.sub(r"[^a-z]", "", text), re.sub(r"[^0-9]", "", text)
        for nuclide in HALF_LIVES:
            if letters in (nuclide[0].lower(), nuclide[1]) and mass == str(nuclide[2]):
                return nuclide
    return None


def weight_doubts(weight: float) -> list[str]:
    if weight > MOST_WEIGHT:
        raise ImageError(f"PET with a PatientWeight of {weight:g} kg, expected kilograms; {REMEDY}")
    if not LITTLE_WEIGHT <= weight <= MUCH_WEIGHT:
        return [f"a PatientWeight of {weight:g} kg is unusual; is the unit right?"]
    return []


def philips_factor(slices: Sequence[Any], element: int) -> float:
    """A positive number of Philips' private group; 0 where there is none."""
    text = agreed([private_value(s, *PHILIPS, element) for s in slices], f"Philips' factor (7053,xx{element:02X})")
    try:
        value = float(text or 0)
    except ValueError:
        value = 0.0
    return value if 0 < value < float("inf") else 0.0


def check_suv(array: Floats, voxel_ml: float, weight: float | None) -> list[str]:
    """Holds an image in SUV against the dose: the mean of SUV over a body cannot be above 1.

    Since SUV is concentration · weight / dose, the sum of SUV · volume over weight is the share of the dose that the
    image holds. It is at most 1; twice as much is certainly wrong, and a little more may be calibration.
    """
    if not np.isfinite(array.sum(dtype=np.float64)):
        return []  # the check of all images counts such voxels
    share = float(array.sum(dtype=np.float64)) * voxel_ml / (HEAVIEST_BODY if weight is None else 1000 * weight)
    highest = float(array.max())
    if share > 2:
        raise ImageError(
            f"PET that holds {share:.3g} times the injected dose (highest SUV {highest:.3g}), expected once at most: "
            f"units, dose, half-life or times in its tags are wrong; {REMEDY}"
        )
    if share > 1.1:
        return [f"the PET image holds {share:.2f} times the injected dose; check dose, weight and times in its tags"]
    if highest < COLD:
        return [f"the highest SUV is {highest:.3g}; check units, dose, weight and times in the tags of the PET"]
    lowest = float(array.min())
    if lowest < -max(1.0, 0.1 * highest):
        return [f"SUV goes down to {lowest:.3g}, expected no negative values; are its pixels signed?"]
    return []
