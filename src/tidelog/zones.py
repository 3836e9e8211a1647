"""Finds time zones by name, and converts local times in a zone to instants.

A zone is an IANA name (`Europe/Berlin`, in any case), or `UTC`. The rules come from the system's time zone database, or from the
package `tzdata` if the system has none.

Local times are irregular when clocks change:

| local time | instant |
|---|---|
| occurs once | that instant |
| occurs twice, because clocks go back | an error, which lists both offsets |
| never occurs, because clocks go forward | an error |
| the start of a day | always the first instant of that day |

`tidelog.times` imports this module, and so `zoneinfo`, only if a text or a setting names a zone.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta, tzinfo

from tidelog.errors import InvalidArgumentError
from tidelog.near_names import did_you_mean

VARIABLE = "TIDELOG_TZ"
"""The environment variable that has the zone for times without a zone."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def default_zone() -> tzinfo | None:
    """Return the zone named by the environment variable TIDELOG_TZ, None (UTC) if it is not set.

    Raises:
        InvalidArgumentError: the variable does not name a zone.
    """
    name = os.environ.get(VARIABLE, "").strip()
    if not name:
        return None
    try:
        return find_zone(name)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"environment variable {VARIABLE}: {error}") from None


def find_zone(name: str) -> tzinfo:
    """Return a zone by its name, ignoring case.

    Raises:
        InvalidArgumentError: there is no such zone; the message names similar ones.
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    names = {known.lower(): known for known in available_timezones()}
    if not names:
        raise InvalidArgumentError(f"this system has no time zone database, so {name!r} is unknown: pip install tzdata")
    if name.lower() in names:
        return ZoneInfo(names[name.lower()])
    found = f"{name!r}{did_you_mean(name, sorted(names.values()), most=3)}"
    raise InvalidArgumentError("no such time zone", found=found, expected="an IANA name, such as Europe/Berlin")


def check_zone(name: str, argument: str) -> None:
    """Check that a zone exists. Raises InvalidArgumentError, whose message begins with the name of the caller's argument."""
    if not isinstance(name, str):
        raise InvalidArgumentError(argument, found=repr(name), expected="an IANA name, such as Europe/Berlin")
    try:
        find_zone(name)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"{argument}: {error.message}", found=error.found, expected=error.expected) from None


def zone_name(zone: tzinfo) -> str:
    """Return the zone's IANA name."""
    return str(getattr(zone, "key", "UTC"))


def local_time(time_ms: int, zone: tzinfo) -> datetime:
    """Return the local time of an instant, to the millisecond. Raises InvalidArgumentError after the year 9999."""
    try:
        return (_EPOCH + time_ms * _MILLISECOND).astimezone(zone)
    except (OverflowError, ValueError):
        raise InvalidArgumentError(f"times in {zone_name(zone)} have years from 1 to 9999: give the time in UTC") from None


def instant(local: datetime, zone: tzinfo, text: str, *, is_start_of_day: bool) -> int:
    """Return the epoch milliseconds of a local time without a zone. `text` is the user's text, for errors.

    Raises:
        InvalidArgumentError: the local time does not occur, or occurs twice, and is not the start of a day.
    """
    first, second = local.replace(tzinfo=zone), local.replace(tzinfo=zone, fold=1)
    try:
        before, after = first.utcoffset() or timedelta(), second.utcoffset() or timedelta()
        # A skipped local time, converted with the offset from before the change, is the instant to which the clocks jump.
        time_ms = (local - before - _EPOCH.replace(tzinfo=None)) // _MILLISECOND
        if before == after or is_start_of_day:
            return time_ms
        occurs = first.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == local
    except OverflowError:
        raise InvalidArgumentError(f"times in {zone_name(zone)} have years from 1 to 9999: give the time in UTC") from None
    if not occurs:
        raise InvalidArgumentError(
            f"not a time: {text!r} does not exist in {zone_name(zone)}, because clocks are set forward past it"
        )
    choices = " or ".join(one.isoformat(timespec="minutes") for one in (first, second))
    raise InvalidArgumentError(f"{text!r} occurs twice in {zone_name(zone)}, where clocks go back then: write {choices}")
