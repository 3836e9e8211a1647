"""Finds the offsets at which a consumer group continues in a mirror after the source has failed, and how many records it will
read twice (KIP-32's use case 3).

The group's position in the source comes from the first of these that applies:

| source of the position | if |
|---|---|
| the source: a cluster that still answers, or what is left of its data folder | the source is given |
| the mirror's folder: the groups' offsets when the mirror last read them | the folder is given, and has the group |
| the caller: the time up to which everything was read | `read_until_ms` is given |

| position | is | skips |
|---|---|---|
| by the map | the copy of the first record that the group has not read | nothing |
| by time | the first record at or after *time of the last record read* - MaxLatency | nothing, if MaxLatency is right |

MaxLatency is the longest delay between a record's CreateTime and its append to the source's log, including clock skew.

The position by time is safe. An unread record was appended to the source's log after the last read record, so after that record's
time. The unread record was created at most MaxLatency before its append. So neither its CreateTime nor its append time in the
mirror is before the searched time. If the source has LogAppendTime, the last record's time is its append time. Then the same
holds, and fewer records are read twice.

A position by time that is after the map's position is never used: MaxLatency was too small, and a note says so.

Records that will be read twice are counted in the mirror, between the position and the copy of the first unread record. Without a
map that copy is unknown. The records up to the end are then counted, as an upper bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

import pyarrow as pa

from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.group_lag import Ends, log_ends
from tidelog.client.consumer_groups.group_reset import RecordCounter, check_without_members, first_offsets_at
from tidelog.client.consumer_groups.groups import commit_offsets
from tidelog.copying.copier import committed_positions
from tidelog.copying.mirror_folder import read_groups, read_identity
from tidelog.copying.mirror_groups import offsets_of_groups
from tidelog.copying.offset_map import OffsetMap, PartitionMap
from tidelog.errors import InvalidArgumentError, NotFoundError, UnknownTopicOrPartitionError
from tidelog.model import TopicPartition
from tidelog.sources.opening import open_source
from tidelog.sources.stream import scan

By: TypeAlias = Literal["map", "time"]

MAX_COUNTED_BYTES = 1024 * 1024 * 1024
"""At most this many bytes of the mirror are read to count records. If that is not enough, offsets are counted, as an upper bound.
"""

_LOOKED_BACK = (1, 100, 10_000)
"""The number of offsets before a position that are searched for the last record. Larger numbers follow because markers and gaps
may fill the smaller ranges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOptions:
    """The inputs of a failover."""

    group: str
    map_dir: str | os.PathLike[str] | None = None
    """The mirror's folder."""
    source: str | None = None
    """The source: `host:port` if it still answers, or its data folder."""
    max_latency_ms: int | None = None
    """The longest delay between a record's CreateTime and its append to the source's log; needed for positions by time."""
    read_until_ms: int | None = None
    """The time up to which the group has read everything, if its offsets are unknown."""
    topics: tuple[str, ...] = ()
    """Topics of the source; empty for all topics of the group. Required with `read_until_ms`."""
    by: By | None = None
    """Which position to use; by default the map's, if there is a map."""
    prefix: str = ""
    """The prefix of topic names in the mirror, if no folder stores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFailover:
    """The result of a failover for one partition."""

    source: TopicPartition
    target: TopicPartition
    committed_offset: int | None
    """The group's offset in the source; None if only a time is known."""
    by_map: int | None
    """The group's offset in the target by the map; None without a map."""
    is_exact: bool
    """Whether the map's position is exactly the first unread record."""
    last_read_ms: int | None
    """The time of the last record read, None if unknown."""
    by_time: int | None
    """The group's offset in the target by time; None without a time or MaxLatency."""
    position: int | None
    """The offset at which the group continues in the target; None if unknown."""
    again: int
    """The number of records at or after the position that the group has already read in the source."""
    again_is_exact: bool
    """Whether `again` is exact; otherwise it is an upper bound."""
    note: str = ""


def plan_failover(target: Cluster, options: FailoverOptions) -> list[PartitionFailover]:
    """Return, for each partition, where the group would continue. Changes nothing.

    Raises:
        InvalidArgumentError: no partition's position can be found; the mirror's folder belongs to a different cluster.
        NotFoundError: the group is unknown, or none of its topics is in the target.
        BrokerError, BrokerUnreachableError, CorruptDataError, StorageError
    """
    return _Planner(target, options).plan()


def apply_failover(target: Cluster, group: str, planned: Iterable[PartitionFailover]) -> None:
    """Commit the positions in the target. Raises BrokerError, also if the group has members there."""
    check_without_members(target, group)
    commit_offsets(target, group, {one.target: one.position for one in planned if one.position is not None})


class _Planner:
    """The state of one call to `plan_failover`."""

    def __init__(self, target: Cluster, options: FailoverOptions) -> None:
        self._target = target
        self._options = options
        self._counter = RecordCounter(target, "read_committed", MAX_COUNTED_BYTES)
        self._maps: OffsetMap | None = None
        self._prefix = options.prefix
        if options.map_dir is not None:
            self._maps = self._open_maps(options.map_dir)

    def _open_maps(self, folder: str | os.PathLike[str]) -> OffsetMap:
        identity = read_identity(folder)
        if identity is None:
            return OffsetMap.open(folder)
        self._target.refresh([])  # Only a metadata response has the cluster id.
        if self._target.cluster_id is not None and identity.target != self._target.cluster_id:
            # The target may be the source itself, whose own offsets would be overwritten.
            raise InvalidArgumentError(
                "the folder belongs to a mirror into a different cluster",
                path=folder,
                found=self._target.cluster_id,
                expected=identity.target,
            )
        self._prefix = identity.prefix
        sources = OffsetMap.open(folder).partitions()
        targets = {source: TopicPartition(identity.prefix + source.topic, source.partition) for source in sources}
        # The mirror may have died after it committed a chunk and before it confirmed the chunk in its map.
        return OffsetMap.open(folder, committed_positions(self._target, identity.job_id, targets, require_stable=False))

    def plan(self) -> list[PartitionFailover]:
        options = self._options
        committed: Mapping[TopicPartition, int | None] = self._committed()
        targets = {source: self._target_of(source) for source in committed}
        there = self._target.topics()
        known = {
            source: target
            for source, target in targets.items()
            if target.topic in there and target.partition in there[target.topic].partitions
        }
        if not known:
            missing = sorted({target.topic for target in targets.values()})
            raise NotFoundError(f"none of the group's topics exists in the target: {', '.join(missing)}", path=str(self._target))
        ends = log_ends(self._target, list(known.values()), "read_committed")
        planned = [self._plan(source, target, committed[source], ends[target]) for source, target in sorted(known.items())]
        if all(one.position is None for one in planned):
            raise InvalidArgumentError(
                f"cannot find where group {options.group!r} continues in the target, by {options.by or 'map or time'}",
                path=str(self._target),
                expected="a map of its topics, or a MaxLatency and the time of the last record read",
            )
        return planned

    def _committed(self) -> Mapping[TopicPartition, int | None]:
        """Return the group's offsets in the source; None for each partition for which only a time is known."""
        options, group = self._options, self._options.group
        if options.read_until_ms is not None:
            return self._partitions_of_topics()
        found: Mapping[TopicPartition, int] | None = None
        if options.source is not None:
            with open_source(options.source) as source:
                found = offsets_of_groups(source.groups(), [group]).get(group)
        elif options.map_dir is not None:
            seen = read_groups(options.map_dir)
            found = None if seen is None else seen.groups.get(group)
        else:
            raise InvalidArgumentError(
                "it is unknown what the group has read",
                expected="the source, a mirror's folder, or the time up to which it has read",
            )
        if options.topics:
            found = {key: offset for key, offset in (found or {}).items() if key.topic in options.topics}
        if not found:
            place = options.source if options.source is not None else options.map_dir
            raise NotFoundError(f"no committed offsets of group {group!r} were found", path=place)
        return found

    def _partitions_of_topics(self) -> dict[TopicPartition, int | None]:
        if not self._options.topics:
            raise InvalidArgumentError("without committed offsets, name the topics that the group has read")
        found: dict[TopicPartition, int | None] = {}
        for topic in self._options.topics:
            try:
                partitions = self._target.topic_now(self._prefix + topic).partitions
            except UnknownTopicOrPartitionError as error:
                error.message += ", which is the name in the mirror of a topic that the group has read"
                raise
            found.update((TopicPartition(topic, number), None) for number in partitions)
        return found

    def _target_of(self, source: TopicPartition) -> TopicPartition:
        known = self._map_of(source)
        topic = self._prefix + source.topic if known is None else known.target_topic
        return TopicPartition(topic, source.partition)

    def _map_of(self, source: TopicPartition) -> PartitionMap | None:
        if self._maps is not None:
            with suppress(NotFoundError):
                return self._maps.partition(source)
        return None

    def _plan(self, source: TopicPartition, target: TopicPartition, committed: int | None, ends: Ends) -> PartitionFailover:
        options = self._options
        known = self._map_of(source)
        notes: list[str] = []
        by_map, is_exact = None, False
        if known is not None and committed is not None:
            by_map, is_exact = known.target_of(committed)
            if committed > known.next_source_offset:
                notes.append(f"{committed - known.next_source_offset} offsets that the group has read are not in the mirror")
            elif committed < known.start_offset:
                notes.append(f"{known.start_offset - committed} offsets that the group has not read are not in the mirror")
        last_read_ms = self._last_read_ms(source, target, committed, by_map)
        by_time = None
        if last_read_ms is not None and options.max_latency_ms is not None:
            by_time = self._first_at(target, last_read_ms - options.max_latency_ms, ends)
        elif committed == 0 or (by_map is not None and by_map <= ends.log_start_offset):
            by_time = ends.log_start_offset if options.max_latency_ms is not None else None  # The group has not read any record.
        position = by_time if options.by == "time" or by_map is None else by_map
        again, again_is_exact = 0, True
        if position is None:
            notes.append("no position is known: the partition has no offset map, and a time or MaxLatency is missing")
        else:
            if by_map is not None and position > by_map:
                notes.append(f"the position by time would skip {position - by_map} offsets: MaxLatency is too small")
                position = by_map
            if position < ends.log_start_offset:
                notes.append(f"the mirror begins at offset {ends.log_start_offset}")
            position = min(max(position, ends.log_start_offset), ends.high_watermark)
            again, again_is_exact = self._again(target, position, known, committed, ends)
        return PartitionFailover(
            source=source,
            target=target,
            committed_offset=committed,
            by_map=by_map,
            is_exact=is_exact,
            last_read_ms=last_read_ms,
            by_time=by_time,
            position=position,
            again=again,
            again_is_exact=again_is_exact,
            note="; ".join(notes),
        )

    def _again(
        self, target: TopicPartition, position: int, known: PartitionMap | None, committed: int | None, ends: Ends
    ) -> tuple[int, bool]:
        """Return the number of records at or after the position that were already read in the source, and whether that
        number is exact.
        """
        unread = least = None
        if known is not None and committed is not None:
            unread, least = known.behind(committed), known.target_of(committed).offset
        end = ends.end_offset if unread is None else min(unread, ends.end_offset)
        count, is_counted = self._counter.count(target, position, end)
        return count, is_counted and (unread == least or not count) and (unread is not None or position >= end)

    def _first_at(self, target: TopicPartition, time_ms: int, ends: Ends) -> int:
        found = first_offsets_at(self._target, max(0, time_ms), {target: ends}, "read_committed")[target]
        return ends.end_offset if found is None else min(max(found, ends.log_start_offset), ends.end_offset)

    def _last_read_ms(
        self, source: TopicPartition, target: TopicPartition, committed: int | None, by_map: int | None
    ) -> int | None:
        """Return the timestamp of the last record read: from the source if it can be read, otherwise from the record's copy."""
        if committed is None:
            return self._options.read_until_ms
        if self._options.source is not None:
            return _time_before(self._options.source, source, committed)
        return None if by_map is None else _time_before(self._target.place, target, by_map)


def _time_before(place: str, key: TopicPartition, offset: int) -> int | None:
    """Return the timestamp of the last record before an offset; None if there is no record or it has no timestamp."""
    for distance in (*_LOOKED_BACK, offset):
        begin = max(0, offset - distance)
        reader = scan(
            place,
            key.topic,
            columns=("timestamp",),
            offsets={key.partition: (begin, offset)},
            isolation="read_committed",
        )
        times = reader.read_all().column("timestamp").cast(pa.int64())
        if len(times):
            last: int | None = times[-1].as_py()
            return last
        if not begin:
            break
    return None
