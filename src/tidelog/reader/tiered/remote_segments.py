"""The remote segments of each partition, according to the records of ``__remote_log_metadata`` in a data folder (KIP-405).

Only a segment whose copy is finished and whose deletion has not begun is read. An unfinished copy may be incomplete, and Kafka
may at any time remove the files of a segment whose deletion has begun. A partition that is marked for deletion has no segments.

Kafka chooses the partition of ``__remote_log_metadata`` by a hash of topic id and partition number.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import IllegalStateError, ProtocolError, UnknownTopicOrPartitionError
from tidelog.formats.leader_epochs import EpochEntry
from tidelog.metadata.batches import ValueReader
from tidelog.metadata.frame import UnknownRecord
from tidelog.metadata.remote_log_records import (
    TRANSITIONS,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
    SegmentState,
    TopicIdPartitionEntry,
    decode_remote_log_record,
)
from tidelog.model import REMOTE_LOG_METADATA_TOPIC, TopicPartition
from tidelog.transitions import checked

if TYPE_CHECKING:
    from tidelog.reader.log_dir import LogDir
    from tidelog.wire.fields import Message


class TopicIdPartition(NamedTuple):
    """A partition identified by topic id as well, because a topic may be deleted and created again under the same name."""

    topic: str
    topic_id: uuid.UUID
    partition: int

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RemoteSegment:
    """A segment in remote storage, as of the newest metadata record about it. `end_offset` is inclusive; times are epoch ms."""

    partition: TopicIdPartition
    id: uuid.UUID
    start_offset: int
    end_offset: int
    max_timestamp: int
    epochs: tuple[EpochEntry, ...]
    """The leader epochs of the segment's records. The first epoch begins at or before `start_offset`."""
    size_bytes: int
    custom_metadata: bytes | None
    state: SegmentState
    broker_id: int
    event_ms: int

    def __str__(self) -> str:
        return f"remote segment {self.id} (offsets {self.start_offset} to {self.end_offset})"


class RemoteSegments:
    """The remote segments that a data folder's ``__remote_log_metadata`` lists. `refresh` reads records that have been added."""

    def __init__(self) -> None:
        self.partitions: dict[TopicIdPartition, dict[uuid.UUID, RemoteSegment]] = {}
        self.notices: list[str] = []
        """A notice for each record that was ignored because it is malformed, unknown, or contradicts earlier records."""
        self.metadata_partitions: dict[int, int] = {}
        """The partitions of ``__remote_log_metadata`` that were read, and the offset after the last record of each."""
        self._deleted: set[TopicIdPartition] = set()
        self._values = ValueReader()

    def refresh(self, log_dir: LogDir) -> None:
        """Apply the records that were added since the last call. Raises what reading a log raises."""
        try:
            numbers = log_dir.partitions(REMOTE_LOG_METADATA_TOPIC)
        except UnknownTopicOrPartitionError:
            return
        for number in numbers:
            log = log_dir.log(REMOTE_LOG_METADATA_TOPIC, number)
            start = self.metadata_partitions.get(number, 0)
            for segment, header in log.segment_headers(start, check_crc=True):
                if not header.is_control:
                    for value in self._values.values(header, segment.read_batch(header)):
                        self.apply_value(bytes(value), f"{REMOTE_LOG_METADATA_TOPIC}-{number}, batch at {header.base_offset}")
            self.metadata_partitions[number] = log.log_end_offset
            log.close()

    def apply_value(self, value: bytes, where: str) -> None:
        """Apply a record's value. A value that cannot be applied is ignored, as in Kafka, with a notice that names `where`."""
        try:
            record = decode_remote_log_record(value)
            if isinstance(record, UnknownRecord):
                raise ProtocolError("a record has an unknown type or version", found=f"{record.name}, version {record.version}")
            self.apply(record)
        except (ProtocolError, IllegalStateError) as error:
            self.notices.append(f"{where}: ignored a record: {error}")

    def apply(self, record: Message) -> None:
        """Apply a record. Raises IllegalStateError for a state transition that `TRANSITIONS` does not list."""
        if isinstance(record, RemoteLogSegmentMetadataRecord):
            self._created(record)
        elif isinstance(record, RemoteLogSegmentMetadataUpdateRecord):
            self._updated(record)
        elif isinstance(record, RemotePartitionDeleteMetadataRecord):
            partition = _partition(record.topic_id_partition)
            self._deleted.add(partition)
            self.partitions.pop(partition, None)

    def readable(self, partition: TopicIdPartition) -> list[RemoteSegment]:
        """Return the partition's segments whose copy is finished and whose deletion has not begun, ordered by first offset."""
        found = self.partitions.get(partition, {}).values()
        whole = [one for one in found if one.state is SegmentState.COPY_SEGMENT_FINISHED]
        return sorted(whole, key=lambda one: (one.start_offset, one.end_offset))

    def topic_ids(self, key: TopicPartition) -> list[uuid.UUID]:
        """Return the ids of the topics of this name that have this partition and are not marked for deletion. The id with the
        newest record is last.
        """
        found = [partition for partition in self.partitions if partition.key == key]
        return [one.topic_id for one in sorted(found, key=self._newest_ms)]

    def keys(self) -> Iterable[TopicPartition]:
        """Return the partitions that have segments to read."""
        return {partition.key for partition in self.partitions if self.readable(partition)}

    def _newest_ms(self, partition: TopicIdPartition) -> int:
        return max((one.event_ms for one in self.partitions[partition].values()), default=-1)

    def _created(self, record: RemoteLogSegmentMetadataRecord) -> None:
        partition = _partition(record.remote_log_segment_id.topic_id_partition)
        if partition in self._deleted:
            return
        known = self.partitions.setdefault(partition, {})
        segment_id = record.remote_log_segment_id.id
        before = known.get(segment_id)
        state = SegmentState(record.remote_log_segment_state)
        checked(TRANSITIONS, None if before is None else before.state, state, f"remote segment {segment_id}")
        known[segment_id] = RemoteSegment(
            partition,
            segment_id,
            record.start_offset,
            record.end_offset,
            record.max_timestamp_ms,
            tuple(sorted(EpochEntry(one.leader_epoch, one.offset) for one in record.segment_leader_epochs)),
            record.segment_size_in_bytes,
            record.custom_metadata,
            state,
            record.broker_id,
            record.event_timestamp_ms,
        )

    def _updated(self, record: RemoteLogSegmentMetadataUpdateRecord) -> None:
        partition = _partition(record.remote_log_segment_id.topic_id_partition)
        segment_id = record.remote_log_segment_id.id
        before = self.partitions.get(partition, {}).get(segment_id)
        state = SegmentState(record.remote_log_segment_state)
        if partition in self._deleted or (before is None and state >= SegmentState.DELETE_SEGMENT_STARTED):
            return  # Retention may have removed the record that created the segment.
        if before is None:
            raise IllegalStateError(f"remote segment {segment_id} has an update, but no record that creates it")
        checked(TRANSITIONS, before.state, state, f"remote segment {segment_id}")
        self.partitions[partition][segment_id] = replace(
            before,
            state=state,
            custom_metadata=before.custom_metadata if record.custom_metadata is None else record.custom_metadata,
            event_ms=record.event_timestamp_ms,
        )


def _partition(entry: TopicIdPartitionEntry) -> TopicIdPartition:
    return TopicIdPartition(entry.name, entry.id, entry.partition)


def metadata_partition(partition: TopicIdPartition, count: int) -> int:
    """Return the partition of ``__remote_log_metadata`` that has the records about `partition`, if that topic has `count`
    partitions.

    Kafka's RemoteLogMetadataTopicPartitioner has the same rule: murmur2 of Java's hash of the topic id's halves and the partition
    number.
    """
    from tidelog.records.kernel import murmur2

    number = 1
    for part in (partition.topic_id.int & (1 << 64) - 1, partition.topic_id.int >> 64):
        number = 31 * number + (part ^ part >> 32)
    number = (31 * number + partition.partition) & 0xFFFFFFFF
    return (int(murmur2(number.to_bytes(4, "big"))) & 0x7FFFFFFF) % count
