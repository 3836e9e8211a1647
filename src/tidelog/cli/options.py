"""The arguments and options that several commands share. `time_options` has the options with times."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from tidelog.cli.client_options import TIER_OPTIONS, Decorated, client_options, keep_broker_file, reached
from tidelog.cli.option_values import usage_errors
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import show_time
from tidelog.config import INT32_MAX
from tidelog.folder_path import folder_path
from tidelog.model import READ_COMMITTED, READ_UNCOMMITTED
from tidelog.sources.opening import FOLDERS, OBJECTS, POINT, TIERED, kind_of
from tidelog.times import parse_duration

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from tidelog.storage.topics.topic_settings import TopicSettings

    _NumberParam = click.ParamType[int]
else:
    _NumberParam = click.ParamType  # older releases of click cannot be subscripted


def suggest(what: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return a function of `completion.SUGGESTIONS`; that module is imported only for completion."""

    def suggestions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from tidelog.cli import completion

        return completion.SUGGESTIONS[what](ctx, param, incomplete)

    return suggestions


def directory_argument(function: Decorated) -> Decorated:
    """Add DIR, the data folder. The log layer checks that it exists and is a data folder."""
    return click.argument("directory", metavar="DIR", type=click.Path(), callback=_folder, shell_complete=suggest("source"))(
        function
    )


def folders_argument(function: Decorated) -> Decorated:
    """Add DIR, a data folder or several: /d1:/d2, a pattern, or a broker's server.properties."""
    for option in TIER_OPTIONS:
        function = option(function)
    return click.argument("directory", metavar="DIR", callback=_folders)(function)


def source_argument(function: Decorated) -> Decorated:
    """Add DIR|HOST:PORT, a data folder or brokers. A folder whose name looks like an address is written ./name."""
    return click.argument("source", metavar="DIR|HOST:PORT", callback=reached, shell_complete=suggest("source"))(
        client_options(function)
    )


def brokers_argument(function: Decorated) -> Decorated:
    """Add HOST:PORT, for commands that need brokers; a folder is refused with an explanation."""
    return click.argument("brokers", metavar="HOST:PORT", callback=_brokers)(client_options(function))


def check_brokers(value: str, refusal: str) -> str:
    """Return `value` if it is the address of brokers; otherwise raise a UsageError with the text `refusal`."""
    if not kind_of(value).is_cluster:
        raise click.UsageError(refusal)
    return value


def data_dir_of(source: str) -> str | None:
    """Return the local folder of a source, where no output may be written; None if the source is not one local folder."""
    return source if kind_of(source).is_local else None


def _brokers(ctx: click.Context, param: click.Parameter, value: str) -> str:
    value = reached(ctx, param, value) or ""
    return check_brokers(value, f"{ctx.info_name} needs brokers, HOST:PORT, not a folder: {value!r}.")


def _folders(ctx: click.Context, param: click.Parameter, value: str) -> str:
    value = reached(ctx, param, value) or ""
    return value if kind_of(value) in (FOLDERS, TIERED, POINT) else _folder(ctx, param, value)


def _folder(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if kind_of(value) in (OBJECTS, POINT):
        return reached(ctx, param, value) or ""
    if data_dir_of(value) is None and not Path(value).exists():
        raise click.UsageError(f"{ctx.info_name} needs a data folder, DIR, not {kind_of(value).name}: {value!r}.")
    return str(folder_path(value))


def broker_config_option(function: Decorated) -> Decorated:
    """Add --config FILE, a broker's configuration file, used instead of the configuration with which the folder was served."""
    return click.option(
        "--config",
        "config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        callback=keep_broker_file,
        help="A broker's server.properties, for its topic defaults; or a bucket's options. [default: the properties with "
        "which DIR was last served]",
    )(function)


def broker_properties(path: Path | None) -> dict[str, str] | None:
    """Return the properties in a broker's configuration file, None if no file is given. Raises InvalidArgumentError."""
    from tidelog.properties_file import read_properties_file

    return None if path is None else read_properties_file(path)


def note_kafkas_since(settings: TopicSettings) -> None:
    """Print a note if Kafka has served the folder since Tidelog stored a broker's settings in it."""
    if settings.is_kafkas_since and settings.served is not None:
        notices.note(
            f"Kafka has served the folder since Tidelog last did, at {show_time(settings.served.time_ms)}: "
            "Kafka's configuration is not in the folder; pass it with --config"
        )


topic_argument = click.argument("topic", metavar="TOPIC", shell_complete=suggest("topics"))


def topics_argument(*, required: bool) -> Callable[[Decorated], Decorated]:
    """Add the argument TOPIC..., which may be patterns (`records.topic_names`)."""
    metavar = "TOPIC..." if required else "[TOPIC...]"
    return click.argument("topics", metavar=metavar, nargs=-1, required=required, shell_complete=suggest("topics"))


class PartitionType(_NumberParam):
    """A partition's number. Lists are refused with an explanation, because the option is repeated instead."""

    name = "partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip()
        if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > INT32_MAX:
            self.fail(
                f"{text!r} is not one number from 0 to {INT32_MAX}; for several partitions, repeat the option: -p 0 -p 1",
                param,
                ctx,
            )
        return int(text)


partition_option = click.option(
    "--partition",
    "-p",
    "partitions",
    type=PartitionType(),
    multiple=True,
    metavar="N",
    help="Only this partition; may be repeated. [default: all]",
)


def optional_topic(function: Decorated) -> Decorated:
    """Add [TOPIC], by default all topics, and --partition, which requires TOPIC."""

    @functools.wraps(function)
    def checked(*args: Any, topic: str | None, partitions: tuple[int, ...], **rest: Any) -> Any:
        if topic is None and partitions:
            raise click.UsageError("--partition needs a TOPIC.")
        return function(*args, topic=topic, partitions=partitions, **rest)

    topic_argument = click.argument("topic", metavar="[TOPIC]", required=False, shell_complete=suggest("topics"))
    return topic_argument(partition_option(cast("Decorated", checked)))


def _isolation(default: str, other: str, text: str) -> Callable[[Decorated], Decorated]:
    return click.option("--isolation", type=click.Choice([default, other]), default=default, show_default=True, help=text)


_SKIPS = "read_committed skips aborted and open transactions."

isolation_option = _isolation(READ_UNCOMMITTED, READ_COMMITTED, _SKIPS)
group_isolation_option = _isolation(READ_COMMITTED, READ_UNCOMMITTED, f"The isolation level of the group's consumers: {_SKIPS}")
window_option = click.option(
    "--window",
    default="10m",
    show_default=True,
    metavar="TIME",
    help="Measure the rates over this much time before now: 90s, 1h.",
)


def lag_options(function: Decorated) -> Decorated:
    """Add --group, --isolation, --window and --max-lag: which groups, how their lag is measured, and the limit for an alarm."""
    for option in (
        click.option(
            "--max-lag",
            metavar="TIME",
            help="Exit with code 1 if a group is further behind than this, or has lost records to retention: 5m, 2h.",
        ),
        window_option,
        group_isolation_option,
        click.option(
            "--group",
            "groups",
            multiple=True,
            metavar="GROUP",
            shell_complete=suggest("groups"),
            help="Only this group; may be repeated.",
        ),
    ):
        function = option(function)
    return function


def lag_times(window: str, max_lag: str | None) -> tuple[int, int | None]:
    """Return --window and --max-lag in ms. Raises UsageError."""
    return positive_duration_ms("--window", window), None if max_lag is None else duration_ms("--max-lag", max_lag)


def duration_ms(option: str, text: str) -> int:
    """Return the value of an option in ms. Raises a UsageError that names the option."""
    with usage_errors(option):
        return parse_duration(text)


def positive_duration_ms(option: str, text: str) -> int:
    """Return the value of an option in ms. Raises a UsageError that names the option, also for 0."""
    found = duration_ms(option, text)
    if not found:
        raise click.UsageError(f"{option} must be positive.")
    return found


# For folders, which have no topic configuration.
message_format_option = click.option(
    "--message-format",
    type=click.Choice(["v0", "v1", "v2"]),
    callback=lambda ctx, param, value: None if value is None else int(value[1:]),
    help="The topic's message format. [default: that of the partition's last batch]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line, for scripts.")


def wanted_partitions(partitions: tuple[int, ...]) -> list[int] | None:
    """Return the requested partitions, sorted and without duplicates; None for all."""
    return sorted(set(partitions)) or None
