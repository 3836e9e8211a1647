"""The records of ``__remote_log_metadata``, the topic that says which segments are in remote storage (KIP-405).

A value has the frame of a metadata record (`frame`); the frame's key is the record's type. These are all the records of Kafka
3.9.1 to 4.4.0. A segment's id is unique. Offset ranges include both ends. Times are epoch milliseconds.

| key | record | written |
|---|---|---|
| 0 | RemoteLogSegmentMetadata | when a copy starts |
| 1 | RemoteLogSegmentMetadataUpdate | at each later change of the segment's state |
| 2 | RemotePartitionDeleteMetadata | when a topic is deleted |
| 3 | RemoteLogSegmentMetadataSnapshot | in a broker's snapshot file of the topic |
"""

from __future__ import annotations

import uuid
from enum import IntEnum
from typing import Final

from tidelog.errors import ProtocolError
from tidelog.metadata.frame import UnknownRecord, read_frame
from tidelog.transitions import Transitions
from tidelog.wire.codec import Bytes, decoder
from tidelog.wire.fields import Message, Struct, array, boolean, data, int8, int32, int64, string, struct, uuid16


class SegmentState(IntEnum):
    """The state of a remote segment. Only a segment whose copy is finished is read."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3

    @property
    def text(self) -> str:
        """The state's name, as Kafka writes it."""
        return self.name


class PartitionDeleteState(IntEnum):
    """The progress of the deletion of a partition's remote segments."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


_S = SegmentState
TRANSITIONS: Final[Transitions[SegmentState | None]] = {
    None: {_S.COPY_SEGMENT_STARTED: "a leader begins to copy a segment"},
    _S.COPY_SEGMENT_STARTED: {
        _S.COPY_SEGMENT_STARTED: "the record is repeated",
        _S.COPY_SEGMENT_FINISHED: "the segment and its indexes are copied",
        _S.DELETE_SEGMENT_STARTED: "the copy failed, or the topic is deleted",
    },
    _S.COPY_SEGMENT_FINISHED: {
        _S.COPY_SEGMENT_FINISHED: "the record is repeated",
        _S.DELETE_SEGMENT_STARTED: "retention, deleted records, another leader's history, or a deleted topic",
    },
    _S.DELETE_SEGMENT_STARTED: {
        _S.DELETE_SEGMENT_STARTED: "the record is repeated",
        _S.DELETE_SEGMENT_FINISHED: "the files are deleted",
    },
    _S.DELETE_SEGMENT_FINISHED: {_S.DELETE_SEGMENT_FINISHED: "the record is repeated"},
}
"""The states of a segment, as in Kafka's RemoteLogSegmentState."""


class TopicIdPartitionEntry(Struct):
    name: str = string()
    id: uuid.UUID = uuid16()
    partition: int = int32()


class RemoteLogSegmentIdEntry(Struct):
    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
    id: uuid.UUID = uuid16()


class SegmentLeaderEpochEntry(Struct):
    leader_epoch: int = int32()
    offset: int = int64()


class RemoteLogSegmentMetadataRecord(Message, key=0, versions="0", flexible="0+"):
    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry)
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = data(nullable="0+", default=None)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(tag=0)


class RemoteLogSegmentMetadataUpdateRecord(Message, key=1, versions="0", flexible="0+"):
    remote_log_segment_id: RemoteLogSegmentIdEntry = struct(RemoteLogSegmentIdEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    custom_metadata: bytes | None = data(nullable="0+", default=None)
    remote_log_segment_state: int = int8()


class RemotePartitionDeleteMetadataRecord(Message, key=2, versions="0", flexible="0+"):
    topic_id_partition: TopicIdPartitionEntry = struct(TopicIdPartitionEntry)
    broker_id: int = int32()
    event_timestamp_ms: int = int64()
    remote_partition_delete_state: int = int8()


class RemoteLogSegmentMetadataSnapshotRecord(Message, key=3, versions="0", flexible="0+"):
    segment_id: uuid.UUID = uuid16()
    start_offset: int = int64()
    end_offset: int = int64()
    broker_id: int = int32()
    max_timestamp_ms: int = int64()
    event_timestamp_ms: int = int64()
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = array(SegmentLeaderEpochEntry)
    segment_size_in_bytes: int = int32()
    custom_metadata: bytes | None = data(nullable="0+", default=None)
    remote_log_segment_state: int = int8()
    txn_index_empty: bool = boolean(tag=0)


REMOTE_LOG_RECORDS: Final[dict[int, type[Message]]] = {
    cls.API_KEY: cls
    for cls in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
        RemoteLogSegmentMetadataSnapshotRecord,
    )
}
"""Every record type by its key."""

STATES: Final[dict[str, type[IntEnum]]] = {
    "remote_log_segment_state": SegmentState,
    "remote_partition_delete_state": PartitionDeleteState,
}
"""Fields that hold a state's number."""


def decode_remote_log_record(value: Bytes) -> Message | UnknownRecord:
    """Decode a record. Raises ProtocolError, with the position in the value, for invalid bytes or an unknown state."""
    frame = read_frame(value)
    cls = REMOTE_LOG_RECORDS.get(frame.api_key)
    if cls is None or frame.version not in cls.VERSIONS:
        return UnknownRecord(frame.api_key, frame.version, bytes(value))
    record: Message = decoder(cls, frame.version, exact=False)(value, frame.position)
    for name, states in STATES.items():
        number = getattr(record, name, 0)
        if number not in list(states):
            raise ProtocolError(f"{cls.__name__} has an unknown state", found=number, expected=f"0 to {max(states)}")
    return record
