"""Times as people write them, and the epoch milliseconds that Kafka stores.

What `parse_time` accepts::

    2013-07-10                          midnight, UTC
    2013-07-10T09:30[:15[.250]]         without a zone: UTC ("T" or one space as separator)
    2013-07-10T09:30:00Z, ...+02:00     with a zone
    1373414400000                       digits alone: epoch milliseconds
    now                                 the clock's current time
    -3d, -90m, -1h30m, -2w, -45s        that long before now (w d h m s, largest unit first)

Python callers may also pass an `int` (epoch milliseconds), a `datetime` (naive = UTC) or a `date`.

Invariants: a parsed time is a non-negative int64, because Kafka reserves negative values for its special targets and for "no
timestamp"; anything finer than a millisecond is floored; `parse_time(format_time(ms)) == ms` for each such value. The calendar is
computed here and not by `datetime`, whose years end at 9999: a log may hold microseconds stored as milliseconds, which must be
displayed without an error.

Any layer may import this. It reads no clock of its own.
"""

from __future__ import annotations

import re
from datetime import date, datetime

from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError

__all__ = ["Time", "format_time", "parse_duration", "parse_time"]

ACCEPTED = "2013-07-10, 2013-07-10T09:30:00Z (no zone means UTC), epoch milliseconds, now, or a time ago as -3d, -90m, -1h30m"
"""The accepted forms of a time, in one line, for messages and help texts."""

Time = str | int | date
"""What `parse_time` accepts; a `datetime` is a `date`."""

MAX_TIME_MS = 2**63 - 1
"""The latest time that a record can carry, 292278994-08-17."""

LIKELY_MS = range(10**11, 10**14)
"""Numbers that are plainly milliseconds: March 1973 to the year 5138."""

_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS

_DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_ISO = re.compile(
    r"""(?P<year>[+]?\d{4,9})-(?P<month>\d\d)-(?P<day>\d\d)
        (?:[Tt\ ]
           (?P<hour>\d\d):(?P<minute>\d\d)
           (?: :(?P<second>\d\d) (?:[.,](?P<fraction>\d+))? )?
           \ ?(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?
        )?""",
    re.VERBOSE | re.ASCII,
)
_AGO = re.compile(r"-(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_AGO_UNITS_MS = (7 * _DAY_MS, _DAY_MS, _HOUR_MS, _MINUTE_MS, _SECOND_MS)
_INTEGER = re.compile(r"-?\d+", re.ASCII)

# Longer texts are not times, and Python raises its own error for thousands of digits.
_MAX_TEXT = 100


def parse_time(value: str | int | date, clock: Clock) -> int:
    """Return epoch milliseconds for a time as a person or a program writes it.

    `clock` gives "now"; it is read only if the value is relative to it.
    Raises InvalidArgumentError, which lists the accepted forms, for anything that is not a time or lies before 1970.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | date):
        raise InvalidArgumentError(f"not a time: {value!r}; accepted: {ACCEPTED}")
    if isinstance(value, str):
        return _parse_text(value, clock)
    if isinstance(value, int):
        # Python raises its own error when it prints a number of thousands of digits.
        return _checked(value, str(value) if value.bit_length() <= 64 else "a number of more than 64 bits")
    return _checked(_from_date(value), str(value))


def format_time(time_ms: int) -> str:
    """Return an instant in epoch milliseconds as ISO 8601 in UTC, always with three decimals.

    A year beyond 9999 is written with a plus sign and one before 0 with a minus sign, as ISO 8601 expands years.
    """
    days, rest_ms = divmod(time_ms, _DAY_MS)
    year, month, day = _date_of_days(days)
    hour, rest_ms = divmod(rest_ms, _HOUR_MS)
    minute, rest_ms = divmod(rest_ms, _MINUTE_MS)
    second, millisecond = divmod(rest_ms, _SECOND_MS)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{millisecond:03d}Z"


def doubtful_unit(number: int) -> str | None:
    """Return a warning for a number that is read as epoch milliseconds but is more likely in another unit; else None.

    Numbers of up to 8 digits are no recent time in any unit, and get no warning.
    """
    if number < 10**8 or number in LIKELY_MS:
        return None
    unit, time_ms = "seconds", number * 1000
    if number >= LIKELY_MS.stop:
        unit, time_ms = ("microseconds", number // 1000) if number < 10**17 else ("nanoseconds", number // 10**6)
    return f"{number} is taken as milliseconds, {format_time(number)}; as {unit} it would be {format_time(time_ms)}, {time_ms}"


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration: ``7d``, ``1h30m``, ``45s``, or digits alone, which are milliseconds.

    Raises InvalidArgumentError for anything else, and for a duration beyond an int64.
    """
    stripped = text.strip()
    match = _AGO.fullmatch(f"-{stripped}") if len(stripped) <= _MAX_TEXT else None
    if match is not None and any(match.groups()):
        amounts = (int(amount or 0) for amount in match.groups())
        span_ms = sum(n * unit for n, unit in zip(amounts, _AGO_UNITS_MS, strict=True))
    elif len(stripped) <= _MAX_TEXT and stripped.isascii() and stripped.isdigit():
        span_ms = int(stripped)
    else:
        shown = stripped if len(stripped) <= _MAX_TEXT else f"{stripped[:20]}..."
        raise InvalidArgumentError("not a span of time", found=repr(shown), expected="7d, 36h, 90m, 1h30m, 45s, or milliseconds")
    if span_ms > MAX_TIME_MS:
        raise InvalidArgumentError("a span of time is too long", found=stripped, expected=f"at most {MAX_TIME_MS} ms")
    return span_ms


def _parse_text(text: str, clock: Clock) -> int:
    stripped = text.strip()
    if len(stripped) > _MAX_TEXT:
        raise InvalidArgumentError(f"not a time: {stripped[:20]!r}... ({len(text)} characters); accepted: {ACCEPTED}")
    if _INTEGER.fullmatch(stripped):
        return _checked(int(stripped), stripped)
    if stripped.lower() == "now":
        return _checked(clock.now_ms(), "now")
    ago = _AGO.fullmatch(stripped)
    if ago is not None and any(ago.groups()):
        amounts = (int(amount or 0) for amount in ago.groups())
        return _checked(clock.now_ms() - sum(n * unit for n, unit in zip(amounts, _AGO_UNITS_MS, strict=True)), stripped)
    iso = _ISO.fullmatch(stripped)
    if iso is None:
        raise InvalidArgumentError(f"not a time: {text!r}; accepted: {ACCEPTED}")
    return _checked(_from_iso(iso, stripped), stripped)


def _from_iso(match: re.Match[str], text: str) -> int:
    year, month, day = int(match["year"]), int(match["month"]), int(match["day"])
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    zone_ms = _zone_ms(match["zone"], text)
    if not 1 <= month <= 12 or not 1 <= day <= _days_in_month(year, month):
        raise InvalidArgumentError(f"not a time: {text!r} names a day that is not in the calendar")
    if hour > 23 or minute > 59 or second > 59:
        raise InvalidArgumentError(f"not a time: {text!r} names no time of day: hours end at 23, minutes and seconds at 59")
    millisecond = int(f"{match['fraction'] or ''}000"[:3])
    time_of_day_ms = hour * _HOUR_MS + minute * _MINUTE_MS + second * _SECOND_MS + millisecond
    return _days_of_date(year, month, day) * _DAY_MS + time_of_day_ms - zone_ms


def _zone_ms(zone: str | None, text: str) -> int:
    if zone is None or zone in "Zz":
        return 0
    digits = zone[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 23 or minutes > 59:
        raise InvalidArgumentError(f"not a time: {text!r} names no zone: {zone} is beyond a day or an hour")
    return (-1 if zone[0] == "-" else 1) * (hours * _HOUR_MS + minutes * _MINUTE_MS)


def _from_date(value: date) -> int:
    days_ms = _days_of_date(value.year, value.month, value.day) * _DAY_MS
    if not isinstance(value, datetime):
        return days_ms
    offset = value.utcoffset()
    # Integers throughout: datetime.timestamp() goes through a float, and would take a naive time as local.
    time_of_day_us = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if offset is not None:
        time_of_day_us -= (offset.days * 86_400 + offset.seconds) * 1_000_000 + offset.microseconds
    return days_ms + time_of_day_us // 1_000


def _checked(time_ms: int, text: str) -> int:
    if time_ms < 0:
        raise InvalidArgumentError(f"{text} is before 1970, where Kafka's timestamps begin; accepted: {ACCEPTED}")
    if time_ms > MAX_TIME_MS:
        raise InvalidArgumentError(f"{text} is beyond the largest timestamp, {MAX_TIME_MS} ms")
    return time_ms


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_in_month(year: int, month: int) -> int:
    return 29 if month == 2 and _is_leap(year) else _DAYS_IN_MONTH[month - 1]


# The calendar below starts its years in March, so that the leap day is a year's last day and the month lengths repeat evenly (153
# days in five months). Any 400 years have 146097 days.
_DAYS_IN_400_YEARS = 146_097
_MARCH_0000_TO_1970 = 719_468


def _days_of_date(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date of the proleptic Gregorian calendar."""
    march_month = (month - 3) % 12
    march_year = year - (1 if month <= 2 else 0)
    era, year_of_era = divmod(march_year, 400)
    day_of_year = (153 * march_month + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * _DAYS_IN_400_YEARS + day_of_era - _MARCH_0000_TO_1970


def _date_of_days(days: int) -> tuple[int, int, int]:
    """The date (year, month, day) that many days after 1970-01-01."""
    era, day_of_era = divmod(days + _MARCH_0000_TO_1970, _DAYS_IN_400_YEARS)
    # Every fourth year has a leap day, every hundredth does not, every four hundredth does.
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    return era * 400 + year_of_era + (1 if month <= 2 else 0), month, day
