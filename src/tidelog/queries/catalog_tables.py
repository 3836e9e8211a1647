"""The tables that list a source's contents: `tidelog.topics`, `tidelog.partitions` and, for a folder, `tidelog.segments`.

The rows are made at each scan, only for the topics that the query's filter accepts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import InvalidArgumentError
from tidelog.model import NO_TIMESTAMP, TopicPartition, is_hidden
from tidelog.queries.arrow_table import ArrowTable, rows_table
from tidelog.queries.pruning import MICROSECONDS, Filter
from tidelog.sources.source import Source

_TOPIC = [("topic", pa.string())]
_PARTITION = [*_TOPIC, ("partition", pa.int32())]

TOPICS = pa.schema([*_TOPIC, ("partitions", pa.int32()), ("is_internal", pa.bool_())])

PARTITIONS = pa.schema(
    [*_PARTITION, ("log_start_offset", pa.int64()), ("log_end_offset", pa.int64()), ("bytes", pa.int64())],
)

SEGMENTS = pa.schema(
    [*_PARTITION, ("base_offset", pa.int64()), ("bytes", pa.int64()), ("largest_timestamp", MICROSECONDS), ("path", pa.string())]
)

Rows = list[dict[str, Any]]


def catalog_tables(open_source: Callable[[], Source]) -> dict[str, ArrowTable]:
    """Return the tables by name. `open_source` is called for each scan."""

    def table(schema: pa.Schema, rows: Callable[[Source, list[TopicPartition]], Rows]) -> ArrowTable:
        def made(expression: pc.Expression | None) -> Rows:
            accepts = Filter(expression, schema)
            with open_source() as source:
                return rows(source, _accepted(source, accepts))

        return rows_table(schema, made)

    return {
        "topics": table(TOPICS, _topics),
        "partitions": table(PARTITIONS, _partitions),
        "segments": table(SEGMENTS, _segments),
    }


def _accepted(source: Source, accepts: Filter) -> list[TopicPartition]:
    found = []
    for topic, numbers in sorted(source.topics().items()):
        if not accepts.can_pass(pc.field("topic") == topic):
            continue
        has_partition = "partition" in accepts.schema.names and accepts.mentions("partition")
        found += [
            TopicPartition(topic, number)
            for number in numbers
            if not has_partition or accepts.can_pass((pc.field("topic") == topic) & (pc.field("partition") == number))
        ]
    return found


def _topics(source: Source, keys: list[TopicPartition]) -> Rows:
    counts: dict[str, int] = {}
    for key in keys:
        counts[key.topic] = counts.get(key.topic, 0) + 1
    return [{"topic": topic, "partitions": count, "is_internal": is_hidden(topic)} for topic, count in counts.items()]


def _partitions(source: Source, keys: list[TopicPartition]) -> Rows:
    sizes = source.sizes(keys)
    return [
        {
            "topic": key.topic,
            "partition": key.partition,
            "log_start_offset": ends.log_start_offset,
            "log_end_offset": ends.log_end_offset,
            "bytes": sizes.get(key),
        }
        for key, ends in source.ends(keys).items()
    ]


def _segments(source: Source, keys: list[TopicPartition]) -> Rows:
    from tidelog.reader.segment_time import largest_timestamp

    if source.log_dir is None:
        raise InvalidArgumentError(
            "tidelog.segments needs a folder: brokers give no access to segment files", path=source.address
        )
    rows = []
    for key in keys:
        with source.log_dir.log(*key) as log:
            for segment in log.segments:
                found = largest_timestamp(segment).timestamp
                rows.append(
                    {
                        "topic": key.topic,
                        "partition": key.partition,
                        "base_offset": segment.base_offset,
                        "bytes": segment.size_bytes,
                        "largest_timestamp": None if found == NO_TIMESTAMP else min(found, 2**63 // 1000 - 1) * 1000,
                        "path": os.fspath(segment.log_path),
                    }
                )
                segment.close()
    return rows
