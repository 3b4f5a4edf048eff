"""Times of a PET series: when the tracer was injected, and the moment that the voxels are decay-corrected to.

DICOM writes local clock times, with the offset from UTC in a tag of its own (TimezoneOffsetFromUTC) or within a value.
A time is aware of its zone here where the file states one. If only one of two times does, their clocks are compared,
because scanner and injection are in one hospital, and a warning says so.

With DecayCorrection START the moment is, in this order (the vendor-neutral steps of QIBA's profile):

    1. DecayCorrectionDateTime, where the file states it;
    2. the time of the series, if it is not later than the earliest acquisition;
    3. else, because the series was made anew later, the start of the scan by GE's or Siemens' private tag;
    4. else, the acquisition's time less what the frame lies after the start (FrameReferenceTime), over all slices.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from math import exp, log
from typing import Any

from veloxseg.errors import ImageError
from veloxseg.image.dicom.tags import agreed, number_or_none, one_value, private_value

__all__ = ["REMEDY", "TIME_TAGS", "injection_delay", "reference_time"]

TIME_TAGS = (
    "SeriesDate",
    "SeriesTime",
    "AcquisitionDate",
    "AcquisitionTime",
    "FrameReferenceTime",
    "ActualFrameDuration",
    "DecayCorrectionDateTime",
    "TimezoneOffsetFromUTC",
)
SCAN_STARTS = ((0x0009, "GEMS_PETD_01", 0x0D), (0x0071, "SIEMENS MED PT", 0x22))  # group, creator, element
WRITTEN = re.compile(r"(\d{8})(\d\d)(\d\d)?(\d\d)?(\.\d{1,6})?([+-]\d{4})?")
LONGEST_NIGHT = timedelta(hours=12)  # between an injection in the evening and a scan after midnight
MOST_HALF_LIVES = 8  # after which 0.4 % of the dose is left, and nothing can be seen
UNEXPLAINED = timedelta(minutes=5)
REMEDY = "convert the series to SUV with the scanner's software, or give it as NIfTI in SUV"


def reference_time(slices: Sequence[Any], half_life: float) -> tuple[datetime, list[str]]:
    """The time that a series with DecayCorrection START is decay-corrected to, and warnings."""
    zone = zone_of(slices)
    if stated := one_value(slices, "DecayCorrectionDateTime"):
        return parsed(str(stated), zone), []
    acquired = [moment(s, "AcquisitionDate", "AcquisitionTime", zone) for s in slices]
    agreed([(str(s.get("SeriesDate")), str(s.get("SeriesTime"))) for s in slices], "SeriesTime")
    series = moment(slices[0], "SeriesDate", "SeriesTime", zone)
    if series <= min(acquired):
        return series, gap_doubts(slices, series, min(acquired), half_life)
    for group, creator, element in SCAN_STARTS:
        if stated := agreed(
            [private_value(s, group, creator, element) for s in slices], "the private start of the scan"
        ):
            return parsed(stated, zone), []
    starts = [time - frame_offset(s, half_life) for s, time in zip(slices, acquired, strict=True)]
    if max(starts) - min(starts) > timedelta(seconds=half_life / 100):
        raise ImageError(
            f"PET made anew after its acquisition (SeriesTime), and the start by FrameReferenceTime differs by "
            f"{max(starts) - min(starts)} between slices; {REMEDY}"
        )
    return starts[0], []


def frame_offset(dataset: Any, half_life: float) -> timedelta:
    """How far the start of a frame's acquisition lies after the start of the scan.

    FrameReferenceTime is the moment at which the decaying activity has its mean over the frame.
    """
    lost = log(2) / half_life * positive(dataset, "ActualFrameDuration") / 1000
    mean = log(lost / (1 - exp(-lost))) * half_life / log(2)
    after = number_or_none(dataset, "FrameReferenceTime")
    if after is None:
        raise ImageError(f"PET made anew after its acquisition (SeriesTime), without FrameReferenceTime; {REMEDY}")
    return timedelta(seconds=after / 1000 - mean)


def gap_doubts(slices: Sequence[Any], start: datetime, acquired: datetime, half_life: float) -> list[str]:
    """The first acquisition starts with the series, or some frames after it; another gap is doubtful."""
    gap = acquired - start
    after = [number_or_none(s, "FrameReferenceTime") for s in slices]
    known = [timedelta(milliseconds=value) for value in after if value is not None]
    if gap <= UNEXPLAINED or (known and abs(gap - min(known)) <= UNEXPLAINED):
        return []
    change = 100 * (2 ** (gap.total_seconds() / half_life) - 1)
    return [
        f"the PET series starts {gap} before its first acquisition, and it is taken as decay-corrected to its start; "
        f"if that is wrong, SUV is {change:.0f} % off"
    ]


def injection_delay(
    slices: Sequence[Any], injection: Any, until: datetime, half_life: float
) -> tuple[float, list[str]]:
    """Seconds from the injection to `until`, and warnings."""
    zone, warnings = zone_of(slices), []
    stated, clock = injection.get("RadiopharmaceuticalStartDateTime"), injection.get("RadiopharmaceuticalStartTime")
    if stated:
        start = parsed(str(stated), zone)
        if (start.tzinfo is None) != (until.tzinfo is None):
            warnings.append(
                "only one of the times of injection and scan states a time zone; both clocks are taken as local"
            )
            start, until = start.replace(tzinfo=None), until.replace(tzinfo=None)
        delay = until - start
        if clock and clock_difference(str(stated), str(clock)) > timedelta(minutes=1):
            warnings.append(
                "RadiopharmaceuticalStartTime and RadiopharmaceuticalStartDateTime disagree; the latter is used"
            )
    elif clock:
        delay = until - parsed(f"{until:%Y%m%d}{clock}", until.tzinfo)
        if delay < timedelta(0):  # the clock time is that of the evening before
            delay += timedelta(days=1)
            if delay > LONGEST_NIGHT:
                raise ImageError(
                    f"PET scan starts {timedelta(days=1) - delay} before the injection by their clock times; {REMEDY}"
                )
    else:
        raise ImageError(f"PET without RadiopharmaceuticalStartTime; {REMEDY}")
    longest = timedelta(seconds=MOST_HALF_LIVES * half_life)
    if not timedelta(0) <= delay <= longest:
        raise ImageError(
            f"PET scan starts {delay} after the injection, expected between 0 and {longest} ({MOST_HALF_LIVES} "
            f"half-lives); {REMEDY}"
        )
    return delay.total_seconds(), warnings


def clock_difference(stated: str, clock: str) -> timedelta:
    """How far the clock time within a date and time is from a clock time alone, around midnight too."""
    day = parsed(stated, None).replace(tzinfo=None)
    apart = abs(day - parsed(f"{day:%Y%m%d}{clock}", None).replace(tzinfo=None))
    return min(apart, timedelta(days=1) - apart)


def moment(dataset: Any, date: str, time: str, zone: tzinfo | None) -> datetime:
    day, clock = str(dataset.get(date) or ""), str(dataset.get(time) or "")
    if not day or not clock:
        raise ImageError(f"PET without {date} or {time}; {REMEDY}")
    return parsed(day + clock, zone)


def parsed(text: str, zone: tzinfo | None) -> datetime:
    """A DICOM date and time, with or without minutes, seconds and fraction; its own offset goes before `zone`."""
    try:
        day, hour, minute, second, fraction, offset = WRITTEN.fullmatch(text.strip().replace(":", "")).groups()  # type: ignore[union-attr]
        whole = datetime.strptime(f"{day}{hour}{minute or '00'}{second or '00'}", "%Y%m%d%H%M%S")
        whole += timedelta(seconds=float(fraction or 0))
        return whole.replace(tzinfo=zone if offset is None else parsed_offset(offset))
    except (AttributeError, ValueError) as error:
        raise ImageError(f"PET with a date or time that cannot be read; {REMEDY}") from error


def zone_of(slices: Sequence[Any]) -> tzinfo | None:
    """The zone of all times of a series that state none themselves; None where the file does not say."""
    text = str(one_value(slices, "TimezoneOffsetFromUTC") or "").strip()
    if text and not re.fullmatch(r"[+-]\d{4}", text):
        raise ImageError(f"PET with a TimezoneOffsetFromUTC that cannot be read; {REMEDY}")
    return parsed_offset(text) if text else None


def parsed_offset(text: str) -> tzinfo:
    ahead = timedelta(hours=int(text[1:3]), minutes=int(text[3:5]))
    if int(text[3:5]) > 59 or ahead > timedelta(hours=14):
        raise ImageError(f"PET with an offset from UTC that cannot be; {REMEDY}")
    return timezone(-ahead if text[0] == "-" else ahead)


def positive(dataset: Any, keyword: str) -> float:
    value = number_or_none(dataset, keyword) or 0.0
    if value <= 0:
        raise ImageError(f"PET without a positive {keyword}; {REMEDY}")
    return value
