"""Requests offsets for times from the partitions' leaders (ListOffsets).

| version | since | adds |
|---|---|---|
| 0 | 0.8 | earliest and latest; compares times with the segments' modification times (not used here) |
| 1 | 0.10.1 (KIP-79) | the record's offset and timestamp for a time |
| 2 | 0.11 (KIP-98) | the isolation level |
| 4 | 2.1 (KIP-320) | leader epochs |
| 7 | 3.0 (KIP-734) | the record with the largest timestamp |

An offset can be missing for two reasons, and neither is an error: see `NotFound`. Brokers search only up to the high watermark,
or up to the last stable offset for read_committed.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

from tidelog.client.connections.addresses import BrokerAddress
from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.connection import Connection
from tidelog.client.connections.failures import RETRIABLE, error_for
from tidelog.errors import ProtocolError, TidelogError
from tidelog.model import (
    EARLIEST,
    EARLIEST_LOCAL,
    ISOLATION_LEVELS,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Isolation,
    TopicPartition,
    check_isolation,
)
from tidelog.reader.time_search import FoundOffset
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

NEWEST_VERSION = 7
CONSUMER = -1

_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""Special targets → the first version of ListOffsets that has them."""


class NotFound(enum.Enum):
    """The reason why there is no offset for a time. It is falsy; a `FoundOffset` is always truthy."""

    NOTHING_THAT_LATE = "no record is at or after that time"
    NO_TIMESTAMPS = "the topic's message format has no timestamps"

    def __bool__(self) -> bool:
        return False


OffsetAnswer: TypeAlias = FoundOffset | NotFound


def list_offsets(
    cluster: Cluster, targets: Mapping[TopicPartition, int], isolation: Isolation = "read_uncommitted"
) -> dict[TopicPartition, OffsetAnswer]:
    """Return the offset for each partition's time (ms), or for LATEST, EARLIEST and MAX_TIMESTAMP of `reader.time_search`.

    Raises InvalidArgumentError (an invalid isolation level), UnknownTopicOrPartitionError, UnsupportedVersionError (the broker is
    too old for a target), BrokerUnreachableError, BrokerError.
    """
    # Every read begins here, so a misspelled level cannot cause aborted records to be read.
    check_isolation(isolation)
    answers: dict[TopicPartition, OffsetAnswer] = {}
    oldest = _oldest_version(targets, isolation)

    def make(connection: Connection, keys: list[TopicPartition]) -> tuple[Message, int]:
        version = connection.version(ListOffsetsRequest, newest=max(NEWEST_VERSION, oldest), oldest=oldest)
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for key in keys:
            asked = ListOffsetsPartition(
                partition_index=key.partition,
                current_leader_epoch=cluster.leader(key).epoch,
                timestamp=targets[key],
                max_num_offsets=1,
            )
            by_topic.setdefault(key.topic, []).append(asked)
        request = ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=ISOLATION_LEVELS[isolation],
            topics=[ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in by_topic.items()],
        )
        return request, version

    def read(
        response: ListOffsetsResponse, keys: list[TopicPartition], place: BrokerAddress
    ) -> dict[TopicPartition, TidelogError]:
        failed: dict[TopicPartition, TidelogError] = {}
        missing = set(keys)
        for topic in response.topics:
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                missing.discard(key)
                if partition.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                    answers[key] = NotFound.NO_TIMESTAMPS
                elif partition.error_code:
                    error = error_for(partition.error_code, f"offsets of {key.topic}-{key.partition}", place)
                    if partition.error_code not in RETRIABLE:
                        raise error
                    failed[key] = error
                else:
                    answers[key] = _answer(partition)
        if missing:
            raise ProtocolError("the broker's response lacks some of the partitions", path=str(place), found=sorted(missing)[0])
        return failed

    cluster.ask_leaders(targets, ListOffsetsResponse, make, read)
    return {key: answers[key] for key in targets}


def _oldest_version(targets: Mapping[TopicPartition, int], isolation: Isolation) -> int:
    """Return the first version that supports all targets."""
    oldest = 0
    for target in targets.values():
        oldest = max(oldest, _SINCE.get(target, 1 if target >= 0 else 0))
        if target != EARLIEST and isolation == "read_committed":
            oldest = max(oldest, 2)
    return oldest


def _answer(partition: ListOffsetsPartitionResponse) -> OffsetAnswer:
    if partition.old_style_offsets:
        return FoundOffset(partition.old_style_offsets[0], -1, -1)
    if partition.offset < 0:
        return NotFound.NOTHING_THAT_LATE
    return FoundOffset(partition.offset, partition.timestamp, partition.leader_epoch)
