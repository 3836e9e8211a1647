"""The arguments and options that several commands share.

A time on the command line becomes a `Moment`: what was written, and the epoch milliseconds that it means. All times of one
run are relative to the same "now", so that `--from -3d --to now` is three days to the millisecond. `echo_moment` prints the
resolved time on stderr, whatever the output format: a forgotten time zone shows there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from tidelog.cli.client_options import client_options, reached
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import show_time
from tidelog.clock import Clock, ManualClock, SystemClock
from tidelog.errors import InvalidArgumentError
from tidelog.folder_path import folder_path
from tidelog.sources.opening import kind_of
from tidelog.times import LIKELY_MS, MAX_TIME_MS, doubtful_unit, format_time, parse_duration, parse_time

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_NOW_KEY = "tidelog.now"


class Moment(NamedTuple):
    """A time on the command line: the text as written, and its epoch milliseconds."""

    text: str
    time_ms: int


if TYPE_CHECKING:
    from tidelog.storage.topics.topic_settings import TopicSettings

    _TimeParam = click.ParamType["Moment | str"]
else:
    _TimeParam = click.ParamType  # older releases of click cannot be subscripted


class TimeType(_TimeParam):
    """Converts a text to a `Moment`; `words` are texts with a meaning of their own, which are passed on unchanged."""

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
            return Moment(text, parse_time(text, run_clock(ctx)))
        except InvalidArgumentError as error:
            words = f" (or {', '.join(self.words)})" if self.words else ""
            self.fail(f"{error.message}{words}", param, ctx)


def run_clock(ctx: click.Context | None) -> Clock:
    """Return the clock of this run. It stands still: the first time that anything asks is "now" for all of the run."""
    if ctx is None:
        return SystemClock()
    clock: Clock | None = ctx.meta.get(_NOW_KEY)
    if clock is None:
        given = ctx.find_root().obj
        clock = ManualClock((given or SystemClock()).now_ms())
        ctx.meta[_NOW_KEY] = clock
    return clock


def echo_moment(moment: Moment | None) -> None:
    """Say on stderr which instant a time on the command line resolved to."""
    if moment is None:
        return
    notices.print_line(f"{moment.text} = {moment.time_ms} ms, {format_time(moment.time_ms)}")
    if not moment.text.isdigit():
        return
    if 0 < moment.time_ms < LIKELY_MS.start:
        notices.note(f"digits alone are milliseconds; {moment.text} seconds would be {moment.time_ms * 1000}")
    elif moment.time_ms < MAX_TIME_MS and (doubt := doubtful_unit(moment.time_ms)) is not None:
        notices.note(doubt)


def directory_argument(function: Decorated) -> Decorated:
    """DIR, the data folder. That it exists is for the log layer to say: it knows what a data folder holds."""
    return click.argument("directory", metavar="DIR", type=click.Path(), callback=_folder)(function)


def source_argument(function: Decorated) -> Decorated:
    """DIR|HOST:PORT, a data folder or brokers. A folder whose name looks like an address is written ./name."""
    return click.argument("source", metavar="DIR|HOST:PORT", callback=reached)(client_options(function))


def brokers_argument(function: Decorated) -> Decorated:
    """HOST:PORT, for what only brokers do; a folder is refused with a sentence that says so."""
    return click.argument("brokers", metavar="HOST:PORT", callback=_brokers)(client_options(function))


def check_brokers(value: str, refusal: str) -> str:
    """Return what names brokers; raise a UsageError with `refusal` for any other kind of place."""
    if not kind_of(value).is_cluster:
        raise click.UsageError(refusal)
    return value


def data_dir_of(source: str) -> str | None:
    """Return the folder that a source is, which only its owner writes to; None for anything but a folder of this machine."""
    return source if kind_of(source).is_local else None


def _brokers(ctx: click.Context, param: click.Parameter, value: str) -> str:
    value = reached(ctx, param, value) or ""
    return check_brokers(value, f"{ctx.info_name} needs brokers, HOST:PORT, not a folder: {value!r}.")


def _folder(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if data_dir_of(value) is None and not Path(value).exists():
        raise click.UsageError(f"{ctx.info_name} needs a data folder, DIR, not {kind_of(value).name}: {value!r}.")
    return str(folder_path(value))


def broker_config_option(function: Decorated) -> Decorated:
    """--config FILE, the broker's: in place of what the folder was served with."""
    return click.option(
        "--config",
        "config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A broker's server.properties, for its topic defaults. [default: those that DIR was served with]",
    )(function)


def broker_properties(path: Path | None) -> dict[str, str] | None:
    """Return what a broker's configuration file says, None without one. Raises InvalidArgumentError."""
    from tidelog.properties_file import read_properties_file

    return None if path is None else read_properties_file(path)


def note_kafkas_since(settings: TopicSettings) -> None:
    """Say that a Kafka has served the folder after the broker whose settings are noted in it."""
    if settings.is_kafkas_since and settings.served is not None:
        notices.note(
            f"Kafka has served the folder after {show_time(settings.served.time_ms)}, when Tidelog did: its configuration is not "
            "in the folder; pass it with --config"
        )


def topic_argument(function: Decorated) -> Decorated:
    """TOPIC, exactly one."""
    return click.argument("topic", metavar="TOPIC")(function)


def partition_option(function: Decorated) -> Decorated:
    """--partition N, any number of times."""
    return click.option(
        "--partition",
        "-p",
        "partitions",
        type=click.IntRange(0, 2**31 - 1),
        multiple=True,
        metavar="N",
        help="Only this partition; may be repeated. [default: all]",
    )(function)


def optional_topic(function: Decorated) -> Decorated:
    """[TOPIC], none for all, and --partition, which needs one."""

    @functools.wraps(function)
    def checked(*args: Any, topic: str | None, partitions: tuple[int, ...], **rest: Any) -> Any:
        if topic is None and partitions:
            raise click.UsageError("--partition needs a TOPIC.")
        return function(*args, topic=topic, partitions=partitions, **rest)

    return click.argument("topic", metavar="[TOPIC]", required=False)(partition_option(cast("Decorated", checked)))


def isolation_option(function: Decorated) -> Decorated:
    """--isolation, Kafka's names."""
    return click.option(
        "--isolation",
        type=click.Choice(["read_uncommitted", "read_committed"]),
        default="read_uncommitted",
        show_default=True,
        help="read_committed skips aborted and open transactions.",
    )(function)


def group_isolation_option(function: Decorated) -> Decorated:
    """--isolation, of the group's consumers; read_committed unless configured otherwise."""
    return click.option(
        "--isolation",
        type=click.Choice(["read_committed", "read_uncommitted"]),
        default="read_committed",
        show_default=True,
        help="The isolation level of the group's consumers: read_committed skips aborted and open transactions.",
    )(function)


def lag_options(function: Decorated) -> Decorated:
    """--group, --isolation, --window and --max-lag: whose lag, how it is measured, and from when on it is an alarm."""
    for option in (
        click.option(
            "--max-lag",
            metavar="TIME",
            help="Exit with 1 if a group is further behind than this, or lost records to retention: 5m, 2h.",
        ),
        click.option(
            "--window",
            default="10m",
            show_default=True,
            metavar="TIME",
            help="Measure the rates over this long before now: 90s, 1h.",
        ),
        group_isolation_option,
        click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group; may be repeated."),
    ):
        function = option(function)
    return function


def lag_times(window: str, max_lag: str | None) -> tuple[int, int | None]:
    """Return --window and --max-lag in ms. Raises UsageError, InvalidArgumentError."""
    window_ms = parse_duration(window)
    if window_ms < 1:
        raise click.UsageError("--window must be positive.")
    return window_ms, None if max_lag is None else parse_duration(max_lag)


def message_format_option(function: Decorated) -> Decorated:
    """--message-format, for folders, which have no topic configuration."""
    return click.option(
        "--message-format",
        type=click.Choice(["v0", "v1", "v2"]),
        callback=_magic,
        help="The topic's message format. [default: that of the partition's last batch]",
    )(function)


def json_option(function: Decorated) -> Decorated:
    """--json, one line each for scripts."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for scripts.")(function)


def wanted_partitions(partitions: tuple[int, ...]) -> list[int] | None:
    """Return the partitions asked for, sorted and once each; None for all."""
    return sorted(set(partitions)) or None


def _magic(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    return None if value is None else int(value[1:])
