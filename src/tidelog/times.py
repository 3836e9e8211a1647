"""Converts times between text and the epoch milliseconds that Kafka stores.

`parse_time` accepts::

    2013-07-10                              the start of that day
    2013-07-10T09, ...T09:30[:15[.250]]     that time ("T" or one space between)
    2013-07-10T09:30:00Z, ...+02:00         with an offset from UTC
    2013-07-10 09:30 Europe/Berlin          with a zone's name, after any of these
    today, yesterday, tomorrow              the start of that day
    last monday                             the latest Monday before today
    yesterday 09:00, last mon 09:00         that day at that time
    09:00, 09:00:15, 9am, 9:30 pm           today at that time
    noon, last mon noon, midnight           12:00; 00:00, the start of the day
    1373414400000                           digits alone: epoch milliseconds
    now                                     the clock's time
    -3d, -90m, -1h30m, -2w, -45s            that long before now (w d h m s ms, largest unit first); also now-3d, 3d ago
    15 minutes ago, -2 hours, 1h 30min ago  units may be words
    now+15m                                 that long after now
    +15m                                    that long after the start of the range, if there is a range

A time without offset or zone is in the zone given by the caller, otherwise in the zone in the environment variable TIDELOG_TZ,
otherwise in UTC. Python callers may also pass an `int` (epoch milliseconds), a `datetime` or a `date`. A date, or a datetime
without a zone, is in that zone, too.

Invariants: a parsed time is a non-negative int64, because Kafka reserves negative values for its special targets and for "no
timestamp"; fractions of a millisecond are rounded down; `parse_time(format_time(ms)) == ms` for each such value. The calendar is
computed here and not by `datetime`, which ends at the year 9999: a log may contain microseconds stored as milliseconds, which
must be displayed without an error. `tidelog.zones` handles zones.

Any layer may import this module. It reads no clock by itself.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, tzinfo

from tidelog import zones
from tidelog.clock import Clock
from tidelog.errors import InvalidArgumentError

__all__ = ["Time", "format_time", "parse_duration", "parse_time"]

ACCEPTED = (
    "2013-07-10, 2013-07-10T09:30:00Z, yesterday 09:00, last monday, 9am, noon, 09:00 Europe/Berlin, epoch milliseconds, now, "
    "or a time ago such as -3d, -90m, 2 hours ago"
)
"""The accepted forms of a time, in one line, for messages and help texts."""

Time = str | int | date
"""What `parse_time` accepts; a `datetime` is a `date`."""

MAX_TIME_MS = 2**63 - 1
"""The latest time that a record can carry, 292278994-08-17."""

LIKELY_MS = range(10**11, 10**14)
"""Numbers in this range are taken as milliseconds without a warning. They are times from March 1973 to the year 5138."""

_SECOND_MS = 1_000
_MINUTE_MS = 60 * _SECOND_MS
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS

_DAYS_IN_MONTH = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_DURATION_UNITS_MS = {
    "w|weeks?": 7 * _DAY_MS,
    "d|days?": _DAY_MS,
    "h|hrs?|hours?": _HOUR_MS,
    "m|mins?|minutes?": _MINUTE_MS,
    "s|secs?|seconds?": _SECOND_MS,
    "ms": 1,
}
"""Each unit's names, as a regular expression → its milliseconds; the largest unit first."""
_SPAN = "".join(rf"(?:\ ?(\d+)\ ?(?:{names}))?" for names in _DURATION_UNITS_MS)
_DURATION = re.compile(_SPAN, re.ASCII)
_RELATIVE = re.compile(rf"(?P<now>now)?\ ?(?P<sign>[-+])\ ?(?P<span>{_SPAN})|(?P<ago>{_SPAN})\ ago", re.IGNORECASE | re.ASCII)

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS_FROM_TODAY = {"yesterday": -1, "today": 0, "tomorrow": 1}

_NAMED_TIMES_OF_DAY = {"midnight": "00:00", "noon": "12:00"}
_TIME_OF_DAY = rf"(?: {'|'.join(_NAMED_TIMES_OF_DAY)} | \d\d?(?: :\d\d )?\ ?[ap]m | \d\d?:\d\d (?: :\d\d (?:[.,]\d+)? )? )"
_ZONE = r"(?P<offset>[Zz]|[+-]\d\d(?::?\d\d)?) | \ (?P<zone>[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*)"
_LOCAL = re.compile(
    rf"""(?: (?P<year>[+]?\d{{4,9}})-(?P<month>\d\d)-(?P<day>\d\d) (?: [T\ ] (?P<at>{_TIME_OF_DAY}|\d\d) )?
           | (?P<word>{"|".join(_DAYS_FROM_TODAY)} | last\ (?P<weekday>[a-z]{{3,9}})) (?: \ (?P<word_at>{_TIME_OF_DAY}|\d\d?) )?
           | (?P<today_at>{_TIME_OF_DAY})
         )
         (?: \ ?{_ZONE} )?""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_INTEGER = re.compile(r"-?\d+", re.ASCII)

_MAX_DATETIME_MS = 253_402_214_400_000
"""The start of the last day that `datetime` supports, in UTC."""

# Longer texts are not times, and Python raises ValueError for integers with thousands of digits.
_MAX_TEXT = 100


def parse_time(value: Time, clock: Clock, *, zone: str | None = None, start_ms: int | None = None, name: str = "") -> int:
    """Return the epoch milliseconds of a time given by a person or a program.

    Args:
        value: the time, in a form listed in the module.
        clock: returns "now"; it is read only if the value is relative to it.
        zone: the zone's name for a value without a zone. [default: TIDELOG_TZ, else UTC]
        start_ms: the start of the range that ends at the value, for `+15m`.
        name: the name of the caller's argument, with which errors begin.

    Raises:
        InvalidArgumentError: the value is not a time (the message lists the accepted forms), is before 1970, has an unknown zone,
            or is a local time that does not occur in its zone or occurs twice.
    """
    try:
        return _parse(value, clock, zone, start_ms)
    except InvalidArgumentError as error:
        if not name:
            raise
        raise InvalidArgumentError(f"{name}: {error.message}", found=error.found, expected=error.expected) from None


def _parse(value: Time, clock: Clock, zone: str | None, start_ms: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int | date):
        raise InvalidArgumentError(f"not a time: {value!r}; accepted: {ACCEPTED}")
    if isinstance(value, str):
        return _parse_text(value, clock, zone, start_ms)
    if isinstance(value, int):
        # Python raises ValueError when it prints a number with thousands of digits.
        return _checked(value, str(value) if value.bit_length() <= 64 else "a number of more than 64 bits")
    return _checked(_from_date(value, zone), str(value))


def format_time(time_ms: int) -> str:
    """Return an instant in epoch milliseconds as ISO 8601 in UTC, always with three decimals.

    Years after 9999 get a plus sign and years before 0 a minus sign (ISO 8601 expanded years).
    """
    days, rest_ms = divmod(time_ms, _DAY_MS)
    year, month, day = _date_of_days(days)
    hour, rest_ms = divmod(rest_ms, _HOUR_MS)
    minute, rest_ms = divmod(rest_ms, _MINUTE_MS)
    second, millisecond = divmod(rest_ms, _SECOND_MS)
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{millisecond:03d}Z"


def is_after_start(text: str) -> bool:
    """Return whether a time is relative to the start of its range, like `+15m`."""
    match = _RELATIVE.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    return match is not None and match["sign"] == "+" and not match["now"] and bool(match["span"])


def is_time_of_day(text: str) -> bool:
    """Return whether a time has no date, like `09:15`, so that it is a time of today."""
    match = _LOCAL.fullmatch(text.strip()) if len(text) <= _MAX_TEXT else None
    return match is not None and match["today_at"] is not None


def format_local(time_ms: int, zone: str | None = None) -> str | None:
    """Return an instant as local time in a zone, with its offset and the zone's name; None if the zone is UTC.

    `zone` has the same meaning as in `parse_time`. Raises InvalidArgumentError.
    """
    found = _named_zone(zone)
    if found is None or time_ms > _MAX_DATETIME_MS:
        return None
    return f"{zones.local_time(time_ms, found).isoformat(timespec='milliseconds')} {zones.zone_name(found)}"


def show_timestamp(timestamp: int) -> str:
    """Return the text of a record's or an index entry's timestamp for a message: in ISO 8601, and as the stored number."""
    return f"{format_time(timestamp)} ({timestamp})" if timestamp >= 0 else f"no time ({timestamp})"


def doubtful_unit(number: int) -> str | None:
    """Return a warning for a number that is parsed as epoch milliseconds but is more likely in a different unit; otherwise None.

    Numbers of up to 8 digits are not a recent time in any unit, so there is no warning for them.
    """
    if number < 10**8 or number in LIKELY_MS:
        return None
    unit, time_ms = "seconds", number * 1000
    if number >= LIKELY_MS.stop:
        unit, time_ms = ("microseconds", number // 1000) if number < 10**17 else ("nanoseconds", number // 10**6)
    return f"{number} is taken as milliseconds, {format_time(number)}; as {unit} it would be {format_time(time_ms)}, {time_ms}"


def parse_duration(text: str) -> int:
    """Return a duration in milliseconds: ``7d``, ``1h30m``, ``500ms``, or digits alone, which are milliseconds.

    Raises InvalidArgumentError for any other text, and for a duration beyond an int64.
    """
    stripped = text.strip()
    match = _DURATION.fullmatch(stripped) if len(stripped) <= _MAX_TEXT else None
    if match is not None and any(match.groups()):
        span_ms = _span_ms(stripped)
    elif len(stripped) <= _MAX_TEXT and stripped.isascii() and stripped.isdigit():
        span_ms = int(stripped)
    else:
        shown = stripped if len(stripped) <= _MAX_TEXT else f"{stripped[:20]}..."
        raise InvalidArgumentError(
            "the text is not a duration", found=repr(shown), expected="7d, 36h, 90m, 1h30m, 45s, 500ms, or milliseconds"
        )
    if span_ms > MAX_TIME_MS:
        raise InvalidArgumentError("the duration is too long", found=stripped, expected=f"at most {MAX_TIME_MS} ms")
    return span_ms


def _parse_text(text: str, clock: Clock, zone: str | None, start_ms: int | None) -> int:
    stripped = text.strip()
    if len(stripped) > _MAX_TEXT:
        raise InvalidArgumentError(f"not a time: {stripped[:20]!r}... ({len(text)} characters); accepted: {ACCEPTED}")
    if _INTEGER.fullmatch(stripped):
        return _checked(int(stripped), stripped)
    if stripped.lower() == "now":
        return _checked(clock.now_ms(), "now")
    relative = _RELATIVE.fullmatch(stripped)
    if relative is not None and (span := relative["span"] or relative["ago"]):
        if not is_after_start(stripped):
            base_ms = clock.now_ms()
        elif start_ms is not None:
            base_ms = start_ms
        else:
            raise InvalidArgumentError(f"{stripped!r} is relative to the start of a range, but here there is no range")
        return _checked(base_ms + (_span_ms(span) if relative["sign"] == "+" else -_span_ms(span)), stripped)
    local = _LOCAL.fullmatch(stripped)
    if local is None:
        if (word := stripped.lower().partition(" ")[0]) in (*_WEEKDAYS, *(day[:3] for day in _WEEKDAYS)):
            raise InvalidArgumentError(f"not a time: {text!r}; for the latest {word} before today: {f'last {stripped}'!r}")
        raise InvalidArgumentError(f"not a time: {text!r}; accepted: {ACCEPTED}")
    return _checked(_from_local(local, stripped, clock, zone), stripped)


def _span_ms(text: str) -> int:
    match = _DURATION.fullmatch(text.lower())
    assert match is not None
    return sum(int(amount or 0) * unit for amount, unit in zip(match.groups(), _DURATION_UNITS_MS.values(), strict=True))


def _from_local(match: re.Match[str], text: str, clock: Clock, default: str | None) -> int:
    """Return the epoch milliseconds of a day and a time of day."""
    at = match["at"] or match["word_at"] or match["today_at"]
    offset = match["offset"]
    if offset is not None and at is None:
        raise InvalidArgumentError(f"not a time: {text!r} has an offset from UTC and no time of day; accepted: {ACCEPTED}")
    offset_ms = None if offset is None else _offset_ms(offset, text)
    zone = None if offset is not None else _named_zone(match["zone"] or default)
    if match["year"] is not None:
        days = _calendar_day(int(match["year"]), int(match["month"]), int(match["day"]), text)
    else:
        days = _day_in_words(match["word"], match["weekday"], _local_day(clock.now_ms(), zone, offset_ms or 0), text)
    time_of_day_ms = 0 if at is None else _time_of_day_ms(at, text)
    if zone is None:
        return days * _DAY_MS + time_of_day_ms - (offset_ms or 0)
    year, month, day = _date_of_days(days)
    if not 1 <= year <= 9999:
        raise InvalidArgumentError(f"times in {zones.zone_name(zone)} have years from 1 to 9999: give the time in UTC")
    second, millisecond = divmod(time_of_day_ms, _SECOND_MS)
    local = datetime(year, month, day, second // 3600, second // 60 % 60, second % 60, millisecond * 1000)
    return zones.instant(local, zone, text, is_start_of_day=at is None or at.lower() == "midnight")


def _named_zone(name: str | None) -> tzinfo | None:
    """Return the zone named `name`, or the default zone if `name` is None. The result None stands for UTC, in which any year is
    valid.
    """
    zone = zones.default_zone() if name is None else zones.find_zone(name)
    return None if zone is UTC else zone


def _local_day(now_ms: int, zone: tzinfo | None, offset_ms: int) -> int:
    """Return the current day in a zone, in days since 1970-01-01."""
    if zone is not None:
        today = zones.local_time(now_ms, zone)
        return _days_of_date(today.year, today.month, today.day)
    return (now_ms + offset_ms) // _DAY_MS


def _day_in_words(word: str | None, weekday: str | None, today: int, text: str) -> int:
    if weekday is None:
        return today + _DAYS_FROM_TODAY[(word or "today").lower()]
    wanted = next((number for number, name in enumerate(_WEEKDAYS) if weekday.lower() in (name, name[:3])), None)
    if wanted is None:
        raise InvalidArgumentError(f"not a time: {text!r}; 'last' must be followed by a day of the week, such as monday or mon")
    # 1970-01-01 was a Thursday.
    return today - ((today + 3 - wanted - 1) % 7 + 1)


def _calendar_day(year: int, month: int, day: int, text: str) -> int:
    if not 1 <= month <= 12 or not 1 <= day <= _days_in_month(year, month):
        raise InvalidArgumentError(f"not a time: {text!r} names a day that is not in the calendar")
    return _days_of_date(year, month, day)


def _time_of_day_ms(text: str, whole: str) -> int:
    text = _NAMED_TIMES_OF_DAY.get(text.lower(), text)
    half = text[-2:].lower() if text[-1] in "mM" else None
    if half is not None:
        clock_hour, colon, minute = text[:-2].strip().partition(":")
        if not 1 <= int(clock_hour) <= 12:
            raise InvalidArgumentError(f"not a time: {whole!r} is not a time of day: hours with am and pm are 1 to 12")
        text = f"{int(clock_hour) % 12 + (12 if half == 'pm' else 0)}{colon or ':'}{minute or '00'}"
    hour, minute, second, fraction = (*re.split("[:.,]", text), "0", "0", "0")[:4]
    if int(hour) > 23 or int(minute) > 59 or int(second) > 59:
        raise InvalidArgumentError(f"not a time: {whole!r} is not a time of day: hours end at 23, minutes and seconds at 59")
    return int(hour) * _HOUR_MS + int(minute) * _MINUTE_MS + int(second) * _SECOND_MS + int(f"{fraction}000"[:3])


def _offset_ms(offset: str, text: str) -> int:
    if offset in "Zz":
        return 0
    digits = offset[1:].replace(":", "")
    hours, minutes = int(digits[:2]), int(digits[2:] or 0)
    if hours > 23 or minutes > 59:
        raise InvalidArgumentError(f"not a time: {text!r}: the offset from UTC {offset} exceeds 23 hours or 59 minutes")
    return (-1 if offset[0] == "-" else 1) * (hours * _HOUR_MS + minutes * _MINUTE_MS)


def _from_date(value: date, default: str | None) -> int:
    days_ms = _days_of_date(value.year, value.month, value.day) * _DAY_MS
    moment = value if isinstance(value, datetime) else None
    offset = None if moment is None else moment.utcoffset()
    if offset is None and (zone := _named_zone(default)) is not None:
        local = datetime(value.year, value.month, value.day) if moment is None else moment.replace(tzinfo=None)
        return zones.instant(local, zone, str(value), is_start_of_day=moment is None)
    if moment is None:
        return days_ms
    # Integers only: datetime.timestamp() uses a float and treats a naive time as local.
    time_of_day_us = ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1_000_000 + moment.microsecond
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


# The calendar below starts its years in March, so that the leap day ends a year and the month lengths repeat evenly (153
# days in five months). Any 400 years have 146097 days.
_DAYS_IN_400_YEARS = 146_097
_MARCH_0000_TO_1970 = 719_468


def _days_of_date(year: int, month: int, day: int) -> int:
    """Return the number of days from 1970-01-01 to a date of the proleptic Gregorian calendar."""
    march_month = (month - 3) % 12
    march_year = year - (1 if month <= 2 else 0)
    era, year_of_era = divmod(march_year, 400)
    day_of_year = (153 * march_month + 2) // 5 + day - 1
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return era * _DAYS_IN_400_YEARS + day_of_era - _MARCH_0000_TO_1970


def _date_of_days(days: int) -> tuple[int, int, int]:
    """Return the date (year, month, day) that is `days` days after 1970-01-01."""
    era, day_of_era = divmod(days + _MARCH_0000_TO_1970, _DAYS_IN_400_YEARS)
    # Every fourth year has a leap day, except every hundredth year, but including every four hundredth.
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    march_month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * march_month + 2) // 5 + 1
    month = march_month + 3 if march_month < 10 else march_month - 9
    return era * 400 + year_of_era + (1 if month <= 2 else 0), month, day
