"""`tidelog find DIR|HOST:PORT TOPIC --at TIME`: the offset for a time, in each partition.

The answer is the same as for Kafka's ListOffsets: the first record, by offset, at or after the time. If no record is that
late, the answer is -1, not an error. `earliest`, `latest` and `max` are Kafka's special timestamps -2, -1 and -3;
`earliest-local` and `latest-tiered` are -4 and -5, for tiered topics. If the source is a broker, it gets a ListOffsets
request, and its answer is shown unchanged.

This command must start fast: it must import neither pyarrow nor rich.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from tidelog.cli.options import (
    isolation_option,
    json_option,
    message_format_option,
    partition_option,
    source_argument,
    topic_argument,
    wanted_partitions,
)
from tidelog.cli.printing.layout import json_line, one_line, show_time, some, table
from tidelog.cli.printing.notices import INCOMPLETE, note, print_line
from tidelog.cli.printing.output import print_lines
from tidelog.cli.time_options import Moment, TimeType, echo_moment, time_zone_option
from tidelog.model import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP, Isolation, TopicPartition
from tidelog.reader.explain import explain
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing.missing_offsets import MissingOffsets, is_any_lost
from tidelog.reader.time_search import FoundOffset, find_offset
from tidelog.reader.trace import Trace
from tidelog.reader.warned_search import missing_for
from tidelog.sources.opening import kind_of, open_source
from tidelog.times import format_time

if TYPE_CHECKING:
    from tidelog.sources.source import Source

TARGETS = {
    "earliest": EARLIEST,
    "latest": LATEST,
    "max": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
}
"""Words for `--at` → the special timestamps of Kafka's ListOffsets."""

NOT_FOUND = FoundOffset(-1, -1, -1)


@click.command()
@source_argument
@topic_argument
@time_zone_option
@click.option(
    "--at",
    "target",
    type=TimeType(*TARGETS),
    required=True,
    help="The first record at or after TIME, or one of Kafka's special timestamps.",
)
@partition_option
@isolation_option
@message_format_option
@click.option("--explain", "explained", is_flag=True, help="Report the search step by step (on stderr with --json).")
@json_option
def command(
    source: str,
    topic: str,
    target: Moment | str,
    partitions: tuple[int, ...],
    isolation: Isolation,
    message_format: int | None,
    explained: bool,
    as_json: bool,
) -> None:
    """Find, in each partition, the offset of the first record whose timestamp is TIME or later.

    The answer is the same as from a consumer's offsetsForTimes. `max` finds the record with the largest timestamp; `earliest` and
    `latest` find the ends of the log.
    """
    kind = kind_of(source)
    if not kind.reads_files and (explained or message_format is not None):
        raise click.UsageError(f"--explain and --message-format need a folder, not {kind.name}.")
    if isinstance(target, Moment):
        echo_moment(target)
        timestamp = target.time_ms
    else:
        timestamp = TARGETS[target]
    wanted = wanted_partitions(partitions)
    with open_source(source) as opened:
        if opened.log_dir is None:
            answers, is_complete = _ask(opened, topic, wanted, timestamp, isolation, as_json)
        else:
            folder = opened.log_dir
            answers, is_complete = _search_folder(folder, topic, wanted, timestamp, isolation, message_format, explained, as_json)
    if isinstance(target, Moment) and answers and is_complete and all(found.offset < 0 for _, found in answers):
        note(f"no record of {topic} is at or after {format_time(timestamp)}; to see the time range of each topic, run tidelog ls")
    if not as_json:
        rows = (
            [topic, partition, some(found.offset), show_time(found.timestamp), some(found.leader_epoch)]
            for partition, found in answers
        )
        print_lines(table(["topic", "partition", "offset", "timestamp", "leader epoch"], rows))
    if not is_complete:
        raise click.exceptions.Exit(INCOMPLETE)


def _ask(
    source: Source, topic: str, wanted: list[int] | None, timestamp: int, isolation: Isolation, as_json: bool
) -> tuple[list[tuple[int, FoundOffset]], bool]:
    """Return the answer of a source without files, and whether it is certain: True unless missing records could change it."""
    keys = [TopicPartition(topic, number) for number in wanted or source.partitions(topic)]
    found = source.find(dict.fromkeys(keys, timestamp), isolation)
    missing = source.missing_in({key: (0, None if one is None else one.offset) for key, one in found.items()})
    for one in missing:
        note(str(one))
    answers = [(key.partition, found[key] or NOT_FOUND) for key in keys]
    if as_json:
        print_lines(_json_line(topic, partition, timestamp, answer) for partition, answer in answers)
    return answers, not is_any_lost(missing)


def _search_folder(
    log_dir: LogDir,
    topic: str,
    wanted: list[int] | None,
    timestamp: int,
    isolation: Isolation,
    message_format: int | None,
    explained: bool,
    as_json: bool,
) -> tuple[list[tuple[int, FoundOffset]], bool]:
    """Return the answer from the files, and whether it is certain: True unless missing records could change the answer.

    Explanations and JSON lines are printed during the search, partition by partition.
    """
    answers: list[tuple[int, FoundOffset]] = []
    lost = [] if wanted else log_dir.missing_partitions(topic)
    is_complete = not lost
    for partition in wanted or log_dir.partitions(topic):
        with log_dir.log(topic, partition, message_format=message_format) as log:
            trace = Trace() if explained else None
            found = find_offset(log, timestamp, isolation=isolation, trace=trace) or NOT_FOUND
            if trace is not None:
                _print_trace(map(one_line, explain(log, timestamp, trace, found)), on_stderr=as_json)
            if found.is_past_high_watermark:
                note(f"{topic}-{partition}: offset {found.offset} is past the high-watermark checkpoint, {log.high_watermark}")
            missing = missing_for(log, timestamp, isolation, found)
        for one in missing:
            note(str(one))
            is_complete = is_complete and not one.is_loss
        if as_json:
            print_lines([_json_line(topic, partition, timestamp, found, missing)])
        answers.append((partition, found))
    for one in lost:
        note(str(one))
        if as_json:
            print_lines([_json_line(topic, one.partition, timestamp, NOT_FOUND, [one])])
    return answers, is_complete


def _print_trace(lines: Iterator[str], *, on_stderr: bool) -> None:
    if not on_stderr:
        print_lines(lines)
        return
    for line in lines:
        print_line(line)


def _json_line(topic: str, partition: int, timestamp: int, found: FoundOffset, missing: Sequence[MissingOffsets] = ()) -> str:
    return json_line(
        {
            "topic": topic,
            "partition": partition,
            "target": timestamp,
            "offset": found.offset,
            "timestamp": found.timestamp,
            "leader_epoch": found.leader_epoch,
            **({"missing": [one.fields() for one in missing]} if missing else {}),
        }
    )
