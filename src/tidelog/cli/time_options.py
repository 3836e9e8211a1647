"""Times on the command line: --from, --to, --tz, and the type of other options with a time.

A time becomes a `Moment`: the text and its epoch milliseconds. All times of one run are relative to the same "now", so `--from
-3d --to now` is exactly three days. `echo_moment` prints the resolved time on stderr, in UTC and in the zone of --tz, for every
output format, so that a forgotten time zone is noticed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click

from tidelog.cli.client_options import Decorated
from tidelog.cli.printing import notices
from tidelog.clock import Clock, ManualClock, SystemClock
from tidelog.errors import InvalidArgumentError
from tidelog.times import (
    LIKELY_MS,
    MAX_TIME_MS,
    doubtful_unit,
    format_local,
    format_time,
    is_after_start,
    is_time_of_day,
    parse_time,
)
from tidelog.zones import default_zone, find_zone, zone_name

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _TimeParam = click.ParamType["Moment | str"]
    _TextParam = click.ParamType[str]
else:
    _TimeParam = _TextParam = click.ParamType  # older releases of click cannot be subscripted

_DAY_MS = 86_400_000

_NOW_KEY = "tidelog.now"
_ZONE_KEY = "tidelog.zone"

_TYPICAL_TIMES = ("now", "today", "yesterday", "noon", "midnight", "-15m", "-1h", "-1d")
"""The suggestions for shell completion."""


class Moment(NamedTuple):
    """A time on the command line: its text and its epoch milliseconds.

    `is_relative` says that the text is relative to now: tomorrow it means a different time. `zone` is the zone of --tz.
    """

    text: str
    time_ms: int
    is_relative: bool = False
    zone: str | None = None


class TimeType(_TimeParam):
    """Converts a text to a `Moment`. `words` are texts with a special meaning, which are returned unchanged."""

    name = "time"

    def __init__(self, *words: str) -> None:
        self.words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "|".join(("TIME", *self.words))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment | str:
        if isinstance(value, Moment):
            return value
        text = str(value).strip()
        if text.lower() in self.words:
            return text.lower()
        try:
            return _moment(text, ctx)
        except InvalidArgumentError as error:
            words = f" (or {', '.join(self.words)})" if self.words else ""
            self.fail(f"{error}{words}", param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(text) for text in (*self.words, *_TYPICAL_TIMES) if text.startswith(incomplete)]


class _EndType(TimeType):
    """Validates a text that may be relative to another option, such as `+15m`, and returns it unchanged."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Moment | str:
        try:
            _moment(str(value), ctx, Moment("", 0))
        except InvalidArgumentError as error:
            self.fail(str(error), param, ctx)
        return str(value).strip()


class _WatchedClock:
    """A clock that records whether it was read, which shows that a time was relative."""

    def __init__(self, clock: Clock) -> None:
        self.was_asked = False
        self._clock = clock

    def now_ms(self) -> int:
        self.was_asked = True
        return self._clock.now_ms()


def _moment(text: str, ctx: click.Context | None, start: Moment | None = None) -> Moment:
    clock = _WatchedClock(run_clock(ctx))
    zone = None if ctx is None else ctx.meta.get(_ZONE_KEY)
    time_ms = parse_time(text, clock, zone=zone, start_ms=None if start is None else start.time_ms)
    follows_start = start is not None and start.is_relative and is_after_start(text)
    return Moment(text, time_ms, clock.was_asked or follows_start, zone)


def _note_zone(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        try:
            find_zone(value)
        except InvalidArgumentError as error:
            raise click.BadParameter(str(error), ctx, param) from None
        ctx.meta[_ZONE_KEY] = value


class _ZoneType(_TextParam):
    name = "zone"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from zoneinfo import available_timezones

        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in sorted(available_timezones()) if name.lower().startswith(incomplete.lower())]


def zone_in_use() -> str | None:
    """Return the zone of this run's times: --tz, else TIDELOG_TZ; None for UTC."""
    ctx = click.get_current_context(silent=True)
    given = None if ctx is None else ctx.meta.get(_ZONE_KEY)
    zone = default_zone() if given is None else find_zone(given)
    return None if zone is None or zone is UTC else zone_name(zone)


# In any position, --tz is parsed before the times.
time_zone_option = click.option(
    "--tz",
    metavar="ZONE",
    type=_ZoneType(),
    is_eager=True,
    expose_value=False,
    callback=_note_zone,
    help="The time zone of times without one, such as Europe/Berlin. [default: TIDELOG_TZ, else UTC]",
)


def time_range_options(start_help: str, end_help: str) -> Callable[[Decorated], Decorated]:
    """Add --from, --to (which may be relative to --from) and --tz. Both times are resolved, checked for order, and printed."""

    def decorate(function: Decorated) -> Decorated:
        @functools.wraps(function)
        def resolved(*args: Any, start: Moment | None, end: str | None, **rest: Any) -> Any:
            ctx = click.get_current_context()
            try:
                until = None if end is None else _moment(end, ctx, start)
            except InvalidArgumentError as error:
                raise click.UsageError(f"--to: {error}") from None
            if start is not None and until is not None and until.time_ms < start.time_ms:
                ends, starts = format_time(until.time_ms), format_time(start.time_ms)
                raise click.UsageError(f"the range ends at {ends}, before its start {starts}.")
            if (
                start is not None
                and until is not None
                and is_time_of_day(until.text)
                and until.time_ms - start.time_ms >= _DAY_MS
            ):
                notices.note(f"--to {until.text} is today, a day or more after --from: for 15 minutes after --from, use +15m")
            return function(*args, start=start, end=until, **rest)

        until = click.option("--to", "end", type=_EndType(), help=end_help)(time_zone_option(cast("Decorated", resolved)))
        return click.option("--from", "start", type=TimeType(), help=start_help)(until)

    return decorate


def run_clock(ctx: click.Context | None) -> Clock:
    """Return the clock of this run. It is frozen: the time at which it is first read is "now" for the whole run."""
    if ctx is None:
        return SystemClock()
    clock: Clock | None = ctx.meta.get(_NOW_KEY)
    if clock is None:
        given = ctx.find_root().obj
        clock = ManualClock((given or SystemClock()).now_ms())
        ctx.meta[_NOW_KEY] = clock
    return clock


def echo_moment(moment: Moment | None) -> None:
    """Print the instant to which a time on the command line was resolved, on stderr."""
    if moment is None:
        return
    local = format_local(moment.time_ms, moment.zone)
    also = "" if local is None else f", {local}"
    notices.print_line(f"{moment.text} = {moment.time_ms} ms, {format_time(moment.time_ms)}{also}")
    if not moment.text.isdigit():
        return
    if 0 < moment.time_ms < LIKELY_MS.start:
        notices.note(f"digits alone are epoch milliseconds; for {moment.text} seconds, use {moment.time_ms * 1000}")
    elif moment.time_ms < MAX_TIME_MS and (doubt := doubtful_unit(moment.time_ms)) is not None:
        notices.note(doubt)
