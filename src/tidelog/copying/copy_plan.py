"""A copying job's plan for a topic: each partition's splits and offsets.

| source | end of a partition |
|---|---|
| a folder | the last stable offset computed from its files, at most the high-watermark checkpoint |
| brokers | the last stable offset |
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.model import READ_COMMITTED, TopicPartition
from tidelog.sources.bounds import HIGH_WATERMARK, OffsetRanges, TimeRange
from tidelog.sources.scan_plan import ScanRequest
from tidelog.sources.source import Source
from tidelog.sources.split import Split

CLIENT_ID = "tidelog-copy"
"""The client id of copying jobs, and of restores, in the target. It is here because importing `copier` takes long."""

_log = logging.getLogger("tidelog.copying")


class PlannedPartition(NamedTuple):
    """The offsets `[start_offset, end_offset)` of a source partition that must be read for the time range."""

    source: TopicPartition
    splits: tuple[Split, ...]
    start_offset: int
    end_offset: int
    log_start_offset: int
    notes: tuple[str, ...]
    """Notes about requested records that are missing from a data folder."""


def plan_copy(
    source: Source,
    topic: str,
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    partitions: Iterable[int] | None = None,
    offsets: OffsetRanges | None = None,
) -> list[PlannedPartition]:
    """Return the plan to read a topic's records with `start_ms <= timestamp < end_ms`, between the offsets given for its
    partitions.

    Records missing from a data folder are logged as a warning: the copy will lack them. Raises the errors of `Source.plan`.
    """
    request = ScanRequest(
        topic=topic,
        time=TimeRange(start_ms, end_ms),
        partitions=None if partitions is None else tuple(partitions),
        isolation=READ_COMMITTED,
        offsets=offsets,
        until=HIGH_WATERMARK,
    )
    planned = source.plan(request)
    for missing in planned.known.missing:
        _log.warning("%s", missing.sentence)
    splits = planned.by_partition()
    notes: dict[int, list[str]] = defaultdict(list)
    for note in planned.notes:
        name = note.partition(":")[0]
        notes[int(name.rpartition("-")[2])].append(note)
    return [
        PlannedPartition(
            TopicPartition(topic, found.partition),
            splits[found.partition],
            found.start_offset,
            found.end_offset,
            found.log_start_offset,
            tuple(notes[found.partition]),
        )
        for found in planned.partitions
    ]
