"""What a copying job reads of a topic: each partition's splits and offsets, out of a folder or from brokers.

| source | what is taken of a partition ends at |
|---|---|
| a folder | the last stable offset, as its files tell, and not past the high-watermark checkpoint |
| brokers | the last stable offset |
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from tidelog.client.connections.addresses import is_address
from tidelog.client.connections.cluster import Cluster
from tidelog.model import READ_COMMITTED, TopicPartition
from tidelog.sources.bounds import HIGH_WATERMARK, OffsetRanges
from tidelog.sources.brokers import AnySplit, BrokerPlan, plan_from_brokers
from tidelog.sources.plan import ScanPlan, plan

_log = logging.getLogger("tidelog.copying")


class PlannedPartition(NamedTuple):
    """What is to be read of a source partition: offsets `[start_offset, end_offset)`, as far as the time range wants them."""

    source: TopicPartition
    splits: tuple[AnySplit, ...]
    start_offset: int
    end_offset: int
    log_start_offset: int
    notes: tuple[str, ...]
    """What was asked for and is not there."""


def plan_copy(
    source: str,
    topic: str,
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    partitions: Iterable[int] | None = None,
    offsets: OffsetRanges | None = None,
    cluster: Cluster | None = None,
) -> list[PlannedPartition]:
    """Plan to read `start_ms <= timestamp < end_ms` of a topic, between the offsets given for its partitions.

    What is missing from a folder is logged as a warning: the copy will lack it, too.

    `cluster` is the source's, if it is brokers and one is open already. Raises as `tidelog.sources.plan.plan` and
    `tidelog.sources.brokers.plan_from_brokers`.
    """
    make_plan: Callable[..., ScanPlan | BrokerPlan]
    make_plan = partial(plan_from_brokers, source, topic, cluster=cluster) if is_address(source) else partial(plan, source, topic)
    planned = make_plan(
        start=start_ms,
        end=end_ms,
        partitions=partitions,
        isolation=READ_COMMITTED,
        offsets=offsets,
        until=HIGH_WATERMARK,
    )
    for missing in planned.known.missing:
        _log.warning("%s", missing.sentence)
    splits: dict[int, list[AnySplit]] = defaultdict(list)
    for split in planned.splits:
        splits[split.partition].append(split)
    notes: dict[int, list[str]] = defaultdict(list)
    for note in planned.notes:
        name = note.partition(":")[0]
        notes[int(name.rpartition("-")[2])].append(note)
    return [
        PlannedPartition(
            TopicPartition(topic, found.partition),
            tuple(splits[found.partition]),
            found.start_offset,
            found.end_offset,
            found.log_start_offset,
            tuple(notes[found.partition]),
        )
        for found in planned.partitions
    ]
