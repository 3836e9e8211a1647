"""`tidelog groups list|describe|lag|reset`: lists consumer groups, shows their lag in records and in time, and sets offsets.

| command | with brokers | with a data folder |
|---|---|---|
| list | yes | yes, the last written state |
| describe | yes | yes, with the exact time at which retention deletes unread records |
| lag | yes | yes |
| reset | yes | no: a coordinator has to write the offsets |

`tidelog.groups.lag` defines the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from tidelog.backup.opening import point_after
from tidelog.cli.client_options import Decorated
from tidelog.cli.commands.groups_lag import lag_command, note_missing_commits
from tidelog.cli.lazy_group import NamedGroup
from tidelog.cli.options import (
    brokers_argument,
    duration_ms,
    group_isolation_option,
    json_option,
    positive_duration_ms,
    source_argument,
    suggest,
    window_option,
)
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import Amount, json_line, one_line, show_count, show_span, show_time, table
from tidelog.cli.printing.missing import end_with_missing, report_missing
from tidelog.cli.printing.output import print_lines
from tidelog.cli.time_options import Moment, TimeType, echo_moment, run_clock, time_zone_option
from tidelog.clock import ManualClock
from tidelog.errors import InvalidArgumentError
from tidelog.groups.description import DEAD
from tidelog.groups.modern_groups import CLASSIC, SHARE
from tidelog.model import OFFSETS_TOPIC, Isolation, TopicPartition
from tidelog.sources.group_lags import no_such_group
from tidelog.sources.opening import kind_of, open_source

if TYPE_CHECKING:
    from tidelog.client.consumer_groups.group_lag import GroupLag
    from tidelog.client.consumer_groups.group_reset import PartitionReset, Target
    from tidelog.groups.description import GroupDescription
    from tidelog.groups.lag import PartitionLag, Retention, TimeToEnd

_ENDS = ("earliest", "latest")
_TOPIC = re.compile(r"(?P<topic>[^:]+)(?::(?P<partitions>\d{1,10}(?:,\d{1,10})*))?")


@click.group("groups", cls=NamedGroup)
def command() -> None:
    """List consumer groups, show how far behind they are, in records and in time, and set their offsets to a time."""


def topic_option(function: Decorated) -> Decorated:
    """Add the option --topic T[:p,...], which may be repeated."""
    return click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="TOPIC[:N,...]",
        shell_complete=suggest("topics"),
        help="Only this topic, or these partitions of it; may be repeated. [default: all of the group]",
    )(function)


command.add_command(lag_command)


def at_option(function: Decorated) -> Decorated:
    """Add the option --at, for folders and backups."""
    text = "Show the offsets committed up to this time. In a backup, the first point after this time is read."
    return time_zone_option(click.option("--at", "moment", type=TimeType(), help=text)(function))


def _at(source: str, moment: Moment | None) -> str:
    """Return the source from which to read the commits up to a time: for a backup, its first point after that time."""
    return source if moment is None or kind_of(source).is_cluster else point_after(source, moment.time_ms)


# --- list


@command.command("list", short_help="List the groups.")
@source_argument
@at_option
@json_option
def list_command(source: str, moment: Moment | None, as_json: bool) -> None:
    """List the groups of brokers or of a data folder."""
    with open_source(_at(source, moment)) as opened:
        groups = opened.groups() if moment is None else opened.groups().at(moment.time_ms)
        listings, missing = groups.list(), groups.missing_commits()
    note_missing_commits(missing)
    if as_json:
        print_lines(json_line(one._asdict()) for one in listings)
    else:
        rows = ([one.group, one.type, one.state, one.protocol_type or None, one.coordinator] for one in listings)
        print_lines(table(("group", "type", "state", "protocol", "coordinator"), rows))
    report_missing(missing, as_json=as_json)
    end_with_missing(missing)


# --- describe


@command.command("describe", short_help="Show how far behind a group is.")
@source_argument
@click.argument("group", metavar="GROUP", shell_complete=suggest("groups"))
@topic_option
@group_isolation_option
@window_option
@at_option
@json_option
@click.pass_context
def describe_command(
    ctx: click.Context,
    source: str,
    group: str,
    topics: tuple[str, ...],
    isolation: Isolation,
    window: str,
    moment: Moment | None,
    as_json: bool,
) -> None:
    """Show how far behind GROUP is in each partition: in records, and in time.

    The lag in time is the age of the next record that the group would read. Two more columns show when the group will catch up at
    the present rates, and when retention will delete unread records.
    """
    window_ms = positive_duration_ms("--window", window)
    wanted = _parse_topics(topics)
    clock = run_clock(ctx) if moment is None else ManualClock(moment.time_ms)
    with open_source(_at(source, moment)) as opened:
        groups = opened.groups() if moment is None else opened.groups().at(moment.time_ms)
        found = groups.describe(group, clock, isolation, window_ms)
        is_there = found.description.state != DEAD or found.partitions
        absent = None if is_there else no_such_group(group, opened)
    if groups.unknown_configs:
        names = ", ".join(sorted(groups.unknown_configs)[:5])
        notices.note(f"the configuration of {names} is not in the folder: Kafka's default retention of 7 days is assumed")
    partitions = [one for one in found.partitions if _is_wanted(one.key, wanted)]
    missing = [
        one for one in found.missing if one.topic == OFFSETS_TOPIC or _is_wanted(TopicPartition(one.topic, one.partition), wanted)
    ]
    note_missing_commits(missing)
    if absent is not None:
        raise absent
    _note_notices(found, partitions)
    readers = {key: member.member_id for member in found.description.members for key in member.assignment or ()}
    if as_json:
        print_lines(_json_lines(found.description, partitions, readers))
    else:
        print_lines(_lines(found.description, partitions, readers))
    report_missing(missing, as_json=as_json)
    end_with_missing(missing)


def _note_notices(found: GroupLag, partitions: Iterable[PartitionLag]) -> None:
    for key in found.without_log:
        notices.note(f"{key.topic}-{key.partition}: the partition no longer exists, or has no leader")
    for one in partitions:
        place = f"{one.topic}-{one.partition}"
        if one.lost:
            notices.note(f"{place}: {one.lost} offsets from the committed offset {one.committed_offset} on were deleted unread")
        elif one.is_beyond_end:
            notices.note(f"{place}: the committed offset {one.committed_offset} is beyond the log's end {one.high_watermark}")
        if one.end_offset < one.high_watermark:
            notices.note(
                f"{place}: an open transaction stops readers at {one.end_offset}, before the log's end {one.high_watermark}"
            )


_COMMITTED, _START = "committed", "start"
"""The name of a group's stored position: a share group has a start offset instead of committed offsets."""

_HEADER = (
    *("topic", "partition", _COMMITTED, "end", "lag", "behind", "next record", "its time"),
    *("to the end", "deleted", "member"),
)
_SPARE = ("member", "deleted", "next record", "its time", "to the end")


def _lines(
    description: GroupDescription, partitions: Sequence[PartitionLag], readers: dict[TopicPartition, str]
) -> Iterator[str]:
    count = description.member_count
    members = "its members are not shown" if count is None else f"{count} member{'' if count == 1 else 's'}"
    kind = "" if description.type == CLASSIC else f"{description.type} group"
    protocol_type = "" if description.protocol_type == description.type else description.protocol_type
    parts = [kind, description.state, members, protocol_type, description.protocol]
    yield one_line(f"{description.group}: {', '.join(part for part in parts if part)}")
    if partitions:
        header = [_START if description.type == SHARE and name == _COMMITTED else name for name in _HEADER]
        yield from table(header, (_cells(one, readers.get(one.key)) for one in partitions), spare=_SPARE)


def _cells(one: PartitionLag, reader: str | None) -> list[object]:
    record = one.next_record
    return [
        *(one.topic, one.partition, one.committed_offset, one.end_offset, show_count(one.lag)),
        None if one.lag_ms is None else Amount(show_span(one.lag_ms)),
        *((None, None) if record is None else (record.offset, show_time(record.timestamp))),
        *(_show_time_to_end(one.time_to_end), _show_retention(one.retention, one.now_ms), reader),
    ]


def _show_time_to_end(found: TimeToEnd) -> str:
    text: str = found.catch_up.value
    return f"{text} {show_span(found.time_ms)}" if found.time_ms else text


def _show_retention(found: Retention, now_ms: int) -> str | None:
    from tidelog.groups.lag import Precision

    if found.precision is Precision.NOTHING:
        return None
    if found.goes_ms is None:
        text: str = found.precision.value
        return text
    when = "now" if found.goes_ms <= now_ms else f"in {show_span(found.goes_ms - now_ms)}"
    return when if found.precision is Precision.EXACT else f"{when} {found.precision.value}"


def _json_lines(
    description: GroupDescription, partitions: Iterable[PartitionLag], readers: dict[TopicPartition, str]
) -> Iterator[str]:
    yield json_line(
        {
            "type": "group",
            "group": description.group,
            "group_type": description.type,
            "state": description.state,
            "protocol_type": description.protocol_type,
            "protocol": description.protocol,
            "members": description.member_count,
        }
    )
    for member in description.members:
        yield json_line(
            {
                "type": "member",
                "group": description.group,
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "assignment": None if member.assignment is None else [list(key) for key in member.assignment],
            }
        )
    for one in partitions:
        yield json_line(_json_partition(description.group, one, readers.get(one.key)))


def _json_partition(group: str, one: PartitionLag, reader: str | None) -> dict[str, object]:
    record, to_end, retention = one.next_record, one.time_to_end, one.retention
    return {
        "type": "partition",
        "group": group,
        "topic": one.topic,
        "partition": one.partition,
        "committed_offset": one.committed_offset,
        "metadata": one.metadata,
        "delivered": one.delivered,
        "log_start_offset": one.log_start_offset,
        "end_offset": one.end_offset,
        "high_watermark": one.high_watermark,
        "lag": one.lag,
        "lag_ms": one.lag_ms,
        "lost": one.lost,
        "next_offset": None if record is None else record.offset,
        "next_timestamp": None if record is None else record.timestamp,
        "group_per_second": one.group_per_second,
        "topic_per_second": one.topic_per_second,
        "catches_up": to_end.catch_up.name.lower(),
        "time_to_end_ms": to_end.time_ms,
        "retention": retention.precision.name.lower(),
        "retention_at": retention.goes_ms,
        "retention_in_ms": None if retention.goes_ms is None else retention.goes_ms - one.now_ms,
        "member_id": reader,
    }


# --- reset


@command.command("reset", short_help="Set a group's offsets to a time.")
@brokers_argument
@click.argument("group", metavar="GROUP", shell_complete=suggest("groups"))
@time_zone_option
@click.option(
    "--to", "target", type=TimeType(*_ENDS), help="The first record at or after TIME, or the end of the log if there is none."
)
@click.option("--to-offset", type=click.IntRange(0, 2**63 - 1), metavar="N", help="This offset, or the nearest in the log.")
@click.option("--by", "duration", metavar="TIME", help="This much time before now: 90m, 3d. --by 90m is the same as --to -90m.")
@topic_option
@group_isolation_option
@click.option("--execute", is_flag=True, help="Set the offsets. Without this option, only show what would change.")
@click.option("--dry-run", is_flag=True, help="Only show what would change, which is the default.")
@json_option
@click.pass_context
def reset_command(
    ctx: click.Context,
    brokers: str,
    group: str,
    target: Moment | str | None,
    to_offset: int | None,
    duration: str | None,
    topics: tuple[str, ...],
    isolation: Isolation,
    execute: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set the offsets of GROUP, or show what that would change. GROUP must have no members.

    The command shows each partition's old and new offset, the time at each, and how many records would be read again or skipped.
    Offsets change only with --execute.
    """
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run cannot be combined.")
    if sum(given is not None for given in (target, to_offset, duration)) != 1:
        raise click.UsageError("give exactly one of --to, --to-offset and --by.")
    wanted = _parse_topics(topics)
    goal = _goal(ctx, target, to_offset, duration)
    from tidelog.client.client import connect
    from tidelog.client.consumer_groups.group_reset import apply_reset, plan_reset

    with connect(brokers, clock=run_clock(ctx)) as client:
        named = None if wanted is None else [key for topic, keys in wanted.items() for key in keys or (topic,)]
        planned = plan_reset(client.cluster, group, goal, named, isolation)
        if execute:
            apply_reset(client.cluster, group, planned)
    if as_json:
        print_lines(json_line(_json_reset(group, one, not execute)) for one in planned)
    else:
        print_lines(table(_RESET_HEADER, map(_reset_cells, planned), spare=("note", "skipped")))
    done = f"offsets set: {len(planned)}" if execute else "dry run: nothing was changed; to set the offsets, add --execute"
    notices.print_line(f"{group}: {done}")


def _goal(ctx: click.Context, target: Moment | str | None, to_offset: int | None, duration: str | None) -> Target:
    from tidelog.client.consumer_groups.group_reset import ToEnd, ToOffset, ToTime

    if to_offset is not None:
        return ToOffset(to_offset)
    if isinstance(target, str):
        return ToEnd(target)
    if target is None:
        assert duration is not None
        time_ms = run_clock(ctx).now_ms() - duration_ms("--by", duration)
        if time_ms < 0:
            raise InvalidArgumentError("--by goes back to a time before 1970", found=duration)
        target = Moment(f"-{duration.strip()}", time_ms)
    echo_moment(target)
    return ToTime(target.time_ms)


_RESET_HEADER = (*("topic", "partition", "old offset", "its time", "new offset", "its time", "read again", "skipped", "note"),)


def _reset_cells(one: PartitionReset) -> list[object]:
    return [
        *(one.topic, one.partition, one.old_offset, _time_of(one.old_record), one.new_offset, _time_of(one.new_record)),
        *(_count(one.again, one.is_exact), _count(one.skipped, one.is_exact), one.note),
    ]


def _time_of(record: tuple[int, int] | None) -> str | None:
    return None if record is None else show_time(record[1])


def _count(count: int, is_exact: bool) -> object:
    return count if is_exact or not count else Amount(f"at most {count}")


def _json_reset(group: str, one: PartitionReset, dry_run: bool) -> dict[str, object]:
    return {
        "group": group,
        "topic": one.topic,
        "partition": one.partition,
        "old_offset": one.old_offset,
        "old_timestamp": None if one.old_record is None else one.old_record.timestamp,
        "new_offset": one.new_offset,
        "new_timestamp": None if one.new_record is None else one.new_record.timestamp,
        "read_again": one.again,
        "skipped": one.skipped,
        "is_exact": one.is_exact,
        "note": one.note,
        "dry_run": dry_run,
    }


# --- topics


def _parse_topics(texts: Iterable[str]) -> dict[str, list[TopicPartition]] | None:
    """Return the --topic options as topic → partitions (empty for all); None without the option."""
    found: dict[str, list[TopicPartition]] = {}
    for text in texts:
        match = _TOPIC.fullmatch(text)
        if match is None:
            raise click.UsageError(
                f"--topic: {text!r} is neither a topic nor a topic with partitions: expected orders or orders:0,3, for example."
            )
        topic = match["topic"]
        numbers = [] if match["partitions"] is None else [int(number) for number in match["partitions"].split(",")]
        if any(number >= 2**31 for number in numbers):
            raise click.UsageError(f"{text!r} is not a partition number.")
        known = found.get(topic)
        # A topic without partitions means all its partitions, even if another --topic option names some of them.
        found[topic] = [] if not numbers or known == [] else [*(known or ()), *(TopicPartition(topic, n) for n in numbers)]
    return found or None


def _is_wanted(key: TopicPartition, wanted: dict[str, list[TopicPartition]] | None) -> bool:
    return wanted is None or (key.topic in wanted and (not wanted[key.topic] or key in wanted[key.topic]))
