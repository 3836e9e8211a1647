"""`tidelog ls DIR|HOST:PORT [TOPIC...]`: lists topics, or the partitions of topics, with sizes and times.

It reads the ends of logs, file sizes and indexes, never whole logs. The columns are the same for every kind of source. `stat`
counts records and shows segments, or what brokers report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar

import click

from tidelog.cli.options import json_option, source_argument, topics_argument
from tidelog.cli.printing import notices
from tidelog.cli.printing.layout import json_line, show_bytes_size, show_count, show_time, table
from tidelog.cli.printing.missing import end_with_missing, report_missing
from tidelog.cli.printing.output import print_lines
from tidelog.cli.records.topic_names import named_topics
from tidelog.errors import TidelogError, UnsupportedForMessageFormatError, UnsupportedVersionError
from tidelog.model import MAX_TIMESTAMP, TopicPartition, is_hidden
from tidelog.reader.time_search import FoundOffset
from tidelog.sources.opening import open_source
from tidelog.sources.source import Ends, Source

Found = TypeVar("Found")


class PartitionRow(NamedTuple):
    """A partition: its offsets, its size, the timestamp of its first record and the largest timestamp. None if unknown."""

    key: TopicPartition
    ends: Ends | None
    size_bytes: int | None
    first_timestamp: int | None
    largest_timestamp: int | None


@click.command("ls")
@source_argument
@topics_argument(required=False)
@json_option
def command(source: str, topics: tuple[str, ...], as_json: bool) -> None:
    """List the topics, or the partitions of some TOPICs, with their sizes and times.

    TOPIC may be a pattern: 'order*', or '^orders[0-9]' for a regular expression. `tidelog topics` is the same command. `tidelog
    stat` counts records and shows segments.
    """
    with open_source(source) as opened:
        if topics:
            numbers = {name: opened.partitions(name) for name in named_topics(opened, topics)}
        else:
            numbers = dict(sorted(opened.topics().items(), key=lambda one: (is_hidden(one[0]), one[0])))
        rows, failures = _partitions(opened, [TopicPartition(name, number) for name in numbers for number in numbers[name]])
        folder = opened.log_dir
        wanted = numbers if topics else (None,)
        missing = [] if folder is None else [one for name in wanted for one in folder.missing(name)]
    if topics:
        print_lines(map(_partition_json, rows) if as_json else table(_HEADER, map(_partition_cells, rows), spare=_SPARE))
    else:
        by_topic = [list(some) for _, some in groupby(rows, key=lambda row: row.key.topic)]
        print_lines(
            map(_topic_json, by_topic)
            if as_json
            else table(_TOPIC_HEADER, map(_topic_cells, by_topic), spare=("first record", "partitions"))
        )
    report_missing(missing, as_json=as_json)
    for failure in failures:
        notices.complain(str(failure))
    if failures:
        raise click.exceptions.Exit(1)
    end_with_missing(missing)


def _partitions(source: Source, keys: list[TopicPartition]) -> tuple[list[PartitionRow], list[TidelogError]]:
    failures: dict[str, TidelogError] = {}

    def asked(ask: Callable[[list[TopicPartition]], Mapping[TopicPartition, Found]]) -> Mapping[TopicPartition, Found]:
        """Ask about all partitions at once. If that fails, ask one by one, so that one unreadable partition does not hide
        the others.
        """
        found: dict[TopicPartition, Found] = {}
        for some in (keys, *([key] for key in keys)):
            try:
                found.update(ask(some))
            except (UnsupportedForMessageFormatError, UnsupportedVersionError):
                continue  # Old records have no timestamps, and old brokers do not know the largest one.
            except TidelogError as error:
                if some is not keys:
                    failures.setdefault(str(error), error)
                continue
            if some is keys:
                break
        return found

    ends: Mapping[TopicPartition, Ends] = asked(source.ends)
    sizes: Mapping[TopicPartition, int] = asked(source.sizes)
    first: Mapping[TopicPartition, FoundOffset | None] = asked(lambda some: source.find(dict.fromkeys(some, 0)))
    largest: Mapping[TopicPartition, FoundOffset | None] = asked(lambda some: source.find(dict.fromkeys(some, MAX_TIMESTAMP)))
    rows = [
        PartitionRow(key, ends.get(key), sizes.get(key), _timestamp(first.get(key)), _timestamp(largest.get(key))) for key in keys
    ]
    return rows, list(failures.values())


def _timestamp(found: FoundOffset | None) -> int | None:
    return None if found is None or found.timestamp < 0 else found.timestamp


_HEADER = ("topic", "partition", "log start", "log end", "offsets", "size", "first record", "latest time")
_SPARE = ("log start", "log end", "first record")
_TOPIC_HEADER = ("topic", "partitions", "offsets", "size", "first record", "latest time")


def _offsets(row: PartitionRow) -> int | None:
    return None if row.ends is None else row.ends.log_end_offset - row.ends.log_start_offset


def _sum(numbers: Sequence[int | None]) -> int | None:
    """Return the sum of the known numbers, None if there are none."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _times(rows: Sequence[PartitionRow]) -> tuple[int | None, int | None]:
    first = [row.first_timestamp for row in rows if row.first_timestamp is not None]
    largest = [row.largest_timestamp for row in rows if row.largest_timestamp is not None]
    return min(first, default=None), max(largest, default=None)


def _shown(size_bytes: int | None, first: int | None, largest: int | None) -> list[object]:
    times = (None if time is None else show_time(time) for time in (first, largest))
    return [None if size_bytes is None else show_bytes_size(size_bytes), *times]


def _partition_cells(row: PartitionRow) -> list[object]:
    ends = (None, None) if row.ends is None else (row.ends.log_start_offset, row.ends.log_end_offset)
    return [*row.key, *ends, show_count(_offsets(row)), *_shown(row.size_bytes, row.first_timestamp, row.largest_timestamp)]


def _topic_cells(rows: Sequence[PartitionRow]) -> list[object]:
    counts = (show_count(len(rows)), show_count(_sum([_offsets(row) for row in rows])))
    return [rows[0].key.topic, *counts, *_shown(_sum([row.size_bytes for row in rows]), *_times(rows))]


def _partition_json(row: PartitionRow) -> str:
    return json_line(
        {
            "type": "partition",
            "topic": row.key.topic,
            "partition": row.key.partition,
            "log_start_offset": None if row.ends is None else row.ends.log_start_offset,
            "log_end_offset": None if row.ends is None else row.ends.log_end_offset,
            "bytes": row.size_bytes,
            "first_timestamp": row.first_timestamp,
            "largest_timestamp": row.largest_timestamp,
        }
    )


def _topic_json(rows: Sequence[PartitionRow]) -> str:
    first, largest = _times(rows)
    return json_line(
        {
            "type": "topic",
            "topic": rows[0].key.topic,
            "partitions": len(rows),
            "offsets": _sum([_offsets(row) for row in rows]),
            "bytes": _sum([row.size_bytes for row in rows]),
            "first_timestamp": first,
            "largest_timestamp": largest,
        }
    )
