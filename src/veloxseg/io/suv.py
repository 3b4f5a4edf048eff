"""SUV, body weight, from the tags of a PET series.

    SUV = concentration [Bq/mL] · weight [g] / (dose [Bq] · 2^(-delay / half-life))

The delay runs from injection to the time that the images are decay-corrected to: the start of the series
(DecayCorrection START), or the injection itself (ADMIN, delay 0). Follows the QIBA profile's vendor-neutral steps.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import exp, log
from typing import Any

from veloxseg.errors import ImageError
from veloxseg.io.checks import shown

__all__ = ["PET_TAGS", "suv_factor"]

PET_TAGS = (
    "Units",
    "SUVType",
    "DecayCorrection",
    "CorrectedImage",
    "PatientWeight",
    "SeriesDate",
    "SeriesTime",
    "AcquisitionDate",
    "AcquisitionTime",
    "FrameReferenceTime",
    "ActualFrameDuration",
    "RadiopharmaceuticalInformationSequence",
    "0009100D",  # GE: start of the scan
    "70531000",  # Philips: SUV per count
    "70531009",  # Philips: Bq/mL per count
)
GE_SCAN_START = 0x0009100D
TIME_FORMATS = {14: "%Y%m%d%H%M%S", 12: "%Y%m%d%H%M", 10: "%Y%m%d%H"}
LONGEST_DELAY = timedelta(hours=24)
REMEDY = "convert the series to SUV with the scanner's software, or give it as NIfTI in SUV"


def suv_factor(slices: Sequence[Any]) -> float:
    """What to multiply rescaled voxels by to get SUV; `slices` are the parsed files of one PET series."""
    first = slices[0]
    units = str(first.get("Units") or "").upper()
    if units == "GML":
        if str(first.get("SUVType") or "BW").upper() != "BW":
            raise ImageError(
                f"PET in SUV of type {shown(first.SUVType)}, expected body weight (BW); {REMEDY}"
            )
        return 1.0
    becquerel = 1.0
    if units == "CNTS":  # Philips counts, with the factors in private tags
        if suv := private_number(first, 0x70531000):
            return suv
        becquerel = private_number(first, 0x70531009)
    if units not in ("BQML", "CNTS") or not becquerel:
        raise ImageError(f"PET in units {shown(units) or 'unknown'}, expected BQML or GML; {REMEDY}")
    corrected = [str(word).upper() for word in first.get("CorrectedImage") or []]
    if "ATTN" not in corrected or "DECY" not in corrected:
        raise ImageError(
            f"PET without attenuation or decay correction (CorrectedImage), so SUV is not defined; {REMEDY}"
        )
    injection = (first.get("RadiopharmaceuticalInformationSequence") or [None])[0]
    if injection is None:
        raise ImageError(f"PET without injection data (RadiopharmaceuticalInformationSequence); {REMEDY}")
    weight = positive(first, "PatientWeight")
    dose = positive(injection, "RadionuclideTotalDose")
    half_life = positive(injection, "RadionuclideHalfLife")
    correction = str(first.get("DecayCorrection") or "").upper()
    if correction == "ADMIN":
        delay = 0.0
    elif correction == "START":
        delay = seconds_from_injection(injection, reference_time(slices, half_life))
    else:
        raise ImageError(
            f"PET with DecayCorrection {shown(correction) or 'missing'}, expected START or ADMIN; {REMEDY}"
        )
    return float(becquerel * weight * 1000 / (dose * 2 ** (-delay / half_life)))


def positive(dataset: Any, keyword: str) -> float:
    value = float(dataset.get(keyword) or 0)
    if not 0 < value < float("inf"):
        raise ImageError(f"PET without a positive {keyword}; {REMEDY}")
    return value


def private_number(dataset: Any, tag: int) -> float:
    """A positive number of a private tag, which may come as bytes; 0 where there is none."""
    element = dataset.get(tag)
    value = element.value if element is not None else 0
    number = float(value.decode("ascii", "replace").strip(" \0") if isinstance(value, bytes) else value or 0)
    return number if 0 < number < float("inf") else 0.0


def reference_time(slices: Sequence[Any], half_life: float) -> datetime:
    """The time that the series is decay-corrected to."""
    acquired = min(moment(s, "AcquisitionDate", "AcquisitionTime") for s in slices)
    series = moment(slices[0], "SeriesDate", "SeriesTime")
    if series <= acquired:
        return series
    # A series made anew later carries the later time. GE keeps the start of the scan in a tag of its own; else
    # each frame still knows how far it lies after the start.
    if (element := slices[0].get(GE_SCAN_START)) is not None:
        value = element.value
        return parsed(
            (value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)).strip(" \0")
        )
    first = slices[0]
    rate = log(2) / half_life
    lost = rate * positive(first, "ActualFrameDuration") / 1000
    average = log(lost / (1 - exp(-lost))) / rate
    acquired = moment(first, "AcquisitionDate", "AcquisitionTime")
    return acquired + timedelta(seconds=average - float(first.get("FrameReferenceTime") or 0) / 1000)


def moment(dataset: Any, date: str, time: str) -> datetime:
    day, clock = str(dataset.get(date) or ""), str(dataset.get(time) or "")
    if not day or not clock:
        raise ImageError(f"PET without {date} or {time}; {REMEDY}")
    return parsed(day + clock)


def parsed(text: str) -> datetime:
    """A DICOM date and time, with or without seconds, fraction and time zone."""
    digits, _, rest = text.replace(":", "").partition(".")
    digits = digits.split("+")[0].split("-")[0]
    fraction = rest.split("+")[0].split("-")[0]
    try:
        whole = datetime.strptime(digits, TIME_FORMATS[len(digits)])
        return whole + timedelta(seconds=float(f"0.{fraction or 0}"))
    except (KeyError, ValueError) as error:
        raise ImageError(f"PET with a date or time that cannot be read; {REMEDY}") from error


def seconds_from_injection(injection: Any, until: datetime) -> float:
    """Seconds between the injection and `until`; a time without a date is the last one before."""
    if stated := injection.get("RadiopharmaceuticalStartDateTime"):
        delay = until - parsed(str(stated))
    else:
        clock = injection.get("RadiopharmaceuticalStartTime")
        if not clock:
            raise ImageError(f"PET without RadiopharmaceuticalStartTime; {REMEDY}")
        delay = until - parsed(f"{until:%Y%m%d}{clock}")
        if delay < timedelta(0):  # injected before midnight
            delay += timedelta(days=1)
    if not timedelta(0) <= delay <= LONGEST_DELAY:
        raise ImageError(
            f"PET scan starts {delay} after the injection, expected between 0 and 24 hours; {REMEDY}"
        )
    return delay.total_seconds()
