"""Sets a group's offsets to a time: first a plan, partition by partition, then the commit.

| target | new offset |
|---|---|
| a time | the offset of the first record at or after the time; if there is none, the readable end |
| earliest, latest | the log start; the readable end |
| an offset | that offset, limited to the log |

The readable end is the last stable offset, so that records of open transactions are not skipped; with read_uncommitted it is the
high watermark. If a broker finds no record for a time although the partition's largest timestamp is later (Kafka may do
so, docs/decisions/0002), the log is searched.

The records that are read again, or skipped, are counted from the log's batch headers. Records that consumers do not get are not
counted. If counting would read more than `MAX_COUNTED_BYTES`, the number of offsets is reported instead, which is an upper bound,
and `is_exact` is False.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.group_lag import Ends, log_ends, with_leaders
from tidelog.client.consumer_groups.groups import commit_offsets, committed_offsets, describe_group
from tidelog.client.consumer_groups.next_records import next_records
from tidelog.client.reading.offsets import NotFound, list_offsets
from tidelog.client.reading.partition_fetcher import PartitionFetcher
from tidelog.errors import (
    BrokerError,
    InvalidArgumentError,
    NotFoundError,
    UnknownTopicOrPartitionError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from tidelog.groups.description import DEAD, EMPTY
from tidelog.groups.lag import NextRecord
from tidelog.model import MAX_TIMESTAMP, Isolation, TopicPartition
from tidelog.reader.time_search import FoundOffset
from tidelog.records.records import Bounds, iter_records
from tidelog.wire.error_codes import ErrorCode

MAX_COUNTED_BYTES = 64 * 1024 * 1024
"""The largest number of bytes that one reset reads to count records, over all its partitions."""


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record at or after a time, epoch ms."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class ToOffset:
    """An offset, limited to the log."""

    offset: int


class ToEnd(enum.Enum):
    """An end of the log: its first offset or its readable end."""

    EARLIEST = "earliest"
    LATEST = "latest"


Target: TypeAlias = ToTime | ToOffset | ToEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReset:
    """The effect of a reset on one partition."""

    topic: str
    partition: int
    old_offset: int | None
    """None if the group had no committed offset."""
    old_record: NextRecord | None
    """The record that the group would have read next; None if there is no such record, or the group had no committed offset."""
    new_offset: int
    new_record: NextRecord | None
    """The record that the group reads next after the reset; None at the end."""
    again: int
    """The number of records that the group reads again."""
    skipped: int
    """The number of records that the group skips."""
    is_exact: bool
    """True if records were counted, False if offsets were counted instead."""
    note: str = ""
    """A note on the new offset."""

    @property
    def key(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


NOTHING_THAT_LATE = "no record is at or after that time: using the end of the log"


def plan_reset(
    cluster: Cluster,
    group: str,
    target: Target,
    partitions: Iterable[TopicPartition | str] | None = None,
    isolation: Isolation = "read_committed",
) -> list[PartitionReset]:
    """Return the effect of setting a group's offsets to a target, without changing anything.

    `partitions` lists partitions, or topics for all their partitions; by default all partitions with committed offsets.

    Raises:
        BrokerError: the group has members (NON_EMPTY_GROUP), or another error of a broker.
        NotFoundError: there is nothing to reset.
        UnknownTopicOrPartitionError: an unknown partition.
        UnsupportedForMessageFormatError: the target is a time, but the records have no timestamps.
        UnsupportedVersionError, BrokerUnreachableError
    """
    check_without_members(cluster, group)
    committed = committed_offsets(cluster, group)
    keys = _wanted(cluster, group, committed, partitions)
    ends = log_ends(cluster, keys, isolation)
    offsets, notes = _new_offsets(cluster, target, ends, isolation)
    old = {
        key: min(max(committed[key].offset, end.log_start_offset), end.end_offset)
        for key, end in ends.items()
        if key in committed
    }
    old_records = next_records(cluster, {key: (at, ends[key].end_offset) for key, at in old.items()}, isolation)
    new_records = next_records(cluster, {key: (at, ends[key].end_offset) for key, at in offsets.items()}, isolation)
    counter = RecordCounter(cluster, isolation, MAX_COUNTED_BYTES)
    planned = []
    for key in keys:
        at, new = old.get(key), offsets[key]
        again, again_exact = (0, True) if at is None else counter.count(key, new, at)
        skipped, skipped_exact = (0, True) if at is None else counter.count(key, at, new)
        planned.append(
            PartitionReset(
                topic=key.topic,
                partition=key.partition,
                old_offset=committed[key].offset if key in committed else None,
                old_record=old_records.get(key),
                new_offset=new,
                new_record=new_records[key],
                again=again,
                skipped=skipped,
                is_exact=again_exact and skipped_exact,
                note=notes.get(key, ""),
            )
        )
    return planned


def check_without_members(cluster: Cluster, group: str) -> None:
    """Raise BrokerError if a group has members: members would continue from their own positions, and commit them."""
    found = describe_group(cluster, group)
    if found.state not in (EMPTY, DEAD):
        count = len(found.members)
        members = f"{count} member{'' if count == 1 else 's'}" if count else "members"
        raise BrokerError(
            f"group {group!r} has {members}: its offsets can be set only while it has none",
            error_code=ErrorCode.NON_EMPTY_GROUP,
            path=str(cluster),
            found=found.state,
            expected=EMPTY,
        )


def apply_reset(cluster: Cluster, group: str, planned: Iterable[PartitionReset]) -> None:
    """Commit the new offsets. Raises BrokerError, also if the group has members by then."""
    commit_offsets(cluster, group, {one.key: one.new_offset for one in planned})


def _wanted(
    cluster: Cluster, group: str, committed: Mapping[TopicPartition, object], partitions: Iterable[TopicPartition | str] | None
) -> list[TopicPartition]:
    if partitions is None:
        if not committed:
            raise NotFoundError(f"group {group!r} has no committed offsets: name the topics to reset", path=str(cluster))
        keys = with_leaders(cluster, committed)
        if not keys:
            raise NotFoundError(f"none of the topics of group {group!r} exists any longer", path=str(cluster))
        return sorted(keys)
    wanted: set[TopicPartition] = set()
    for one in partitions:
        if isinstance(one, str):
            wanted.update(TopicPartition(one, number) for number in cluster.topic_now(one).partitions)
        else:
            cluster.leader(one)  # its error names the partitions that exist
            wanted.add(one)
    if not wanted:
        raise UnknownTopicOrPartitionError("there is no partition to reset", path=str(cluster))
    return sorted(wanted)


def _new_offsets(
    cluster: Cluster, target: Target, ends: Mapping[TopicPartition, Ends], isolation: Isolation
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, str]]:
    notes: dict[TopicPartition, str] = {}
    if isinstance(target, ToOffset):
        if target.offset < 0:
            raise InvalidArgumentError(f"cannot reset to the invalid offset {target.offset}: it must be 0 or greater")
        offsets = {}
        for key, end in ends.items():
            offsets[key] = min(max(target.offset, end.log_start_offset), end.end_offset)
            if offsets[key] != target.offset:
                side = "after the end of" if target.offset > offsets[key] else "below"
                notes[key] = f"offset {target.offset} is {side} the log"
        return offsets, notes
    if target is ToEnd.EARLIEST:
        return {key: end.log_start_offset for key, end in ends.items()}, notes
    if target is ToEnd.LATEST:
        return {key: end.end_offset for key, end in ends.items()}, notes
    assert isinstance(target, ToTime)
    offsets = {}
    for key, offset in first_offsets_at(cluster, target.time_ms, ends, isolation).items():
        # Records appended since the ends were read are after those ends.
        is_late = offset is None or offset >= ends[key].end_offset
        offsets[key] = ends[key].end_offset if offset is None or is_late else max(offset, ends[key].log_start_offset)
        if is_late:
            notes[key] = NOTHING_THAT_LATE
    return offsets, notes


def first_offsets_at(
    cluster: Cluster, time_ms: int, ends: Mapping[TopicPartition, Ends], isolation: Isolation
) -> dict[TopicPartition, int | None]:
    """Return the offset of the first record at or after a time in each partition, None if there is none.

    A broker's "none" is checked by searching the log. Raises UnsupportedForMessageFormatError if records have no timestamps, and
    the errors of `list_offsets`.
    """
    answers = list_offsets(cluster, dict.fromkeys(ends, time_ms), isolation)
    found: dict[TopicPartition, int | None] = {}
    for key, answer in answers.items():
        if answer is NotFound.NO_TIMESTAMPS:
            raise UnsupportedForMessageFormatError(f"{key.topic}-{key.partition}: {answer.value}", path=str(cluster))
        found[key] = answer.offset if isinstance(answer, FoundOffset) else None
    doubtful = [key for key, offset in found.items() if offset is None and ends[key].log_start_offset < ends[key].end_offset]
    if doubtful:
        try:
            largest = list_offsets(cluster, dict.fromkeys(doubtful, MAX_TIMESTAMP))
        except UnsupportedVersionError:
            return found  # Kafka before 3.0 does not report the largest timestamp.
        for key, answer in largest.items():
            if isinstance(answer, FoundOffset) and answer.timestamp >= time_ms:
                found[key] = _search(cluster, key, time_ms, ends[key], isolation)
    return found


def _search(cluster: Cluster, key: TopicPartition, time_ms: int, ends: Ends, isolation: Isolation) -> int | None:
    place = f"{cluster} {key.topic}-{key.partition}"
    bounds = Bounds(time_ms, None, ends.log_start_offset, ends.end_offset)
    for header, records, at in PartitionFetcher(cluster, key, ends.log_start_offset, ends.end_offset, isolation=isolation):
        if header.max_timestamp >= time_ms:
            for record in iter_records(header, records[at : at + header.size], path=place, bounds=bounds):
                return record.offset
    return None


class RecordCounter:
    """Counts the records that a consumer would get between two offsets, reading at most a limited number of bytes."""

    def __init__(self, cluster: Cluster, isolation: Isolation, limit_bytes: int) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._left_bytes = limit_bytes

    def count(self, key: TopicPartition, start: int, end: int) -> tuple[int, bool]:
        """Return the number of records in [start, end) and True; or the number of offsets, and False, once the byte limit is
        reached.
        """
        if start >= end:
            return 0, True
        place = f"{self._cluster} {key.topic}-{key.partition}"
        if not self._left_bytes:
            return end - start, False
        fetcher = PartitionFetcher(self._cluster, key, start, end, isolation=self._isolation)
        count = 0
        batches = iter(fetcher)
        try:
            for header, records, at in batches:
                if fetcher.bytes_read > self._left_bytes:
                    self._left_bytes = 0
                    return end - start, False
                if header.magic == 2 and start <= header.base_offset and header.last_offset < end:
                    count += header.record_count
                else:
                    batch = records[at : at + header.size]
                    count += sum(1 for _ in iter_records(header, batch, path=place, bounds=Bounds(None, None, start, end)))
            self._left_bytes = max(0, self._left_bytes - fetcher.bytes_read)
        finally:
            batches.close()  # type: ignore[attr-defined]  # a generator
        return count, True
