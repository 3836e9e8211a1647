"""Reads a group's committed offsets, waiting until they are stable. Programs that store their progress in a group use this.

| `require_stable` | while a transaction that may change an offset is open |
|---|---|
| True | wait for its end (UNSTABLE_OFFSET_COMMIT, KIP-447) |
| False | return the offset committed before it |

Brokers before Kafka 2.5 do not support stable offsets. After `BatchAppender.init` no transaction of that transactional id is
open, but such a broker shows the last transaction's offsets only a moment after the transaction has ended.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.coordinators import PASSING, ask_coordinator
from tidelog.client.connections.failures import error_for
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)

_OLDEST, _NEWEST = 2, 7
UNSTABLE = PASSING | {ErrorCode.UNSTABLE_OFFSET_COMMIT}
_NOTHING = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def committed_offsets(
    cluster: Cluster, group: str, keys: Iterable[TopicPartition] | None, *, require_stable: bool = True
) -> dict[TopicPartition, tuple[int, str]]:
    """Return the (offset, metadata) committed for each of `keys`; `keys` None means all partitions.

    Partitions without a committed offset are left out. Raises the errors of `fetch_committed`.
    """
    found = fetch_committed(cluster, group, keys, require_stable=require_stable)
    return {key: (one.committed_offset, one.metadata or "") for key, one in found.items()}


def fetch_committed(
    cluster: Cluster, group: str, keys: Iterable[TopicPartition] | None, *, require_stable: bool
) -> dict[TopicPartition, OffsetFetchResponsePartition]:
    """Return the coordinator's result for each of `keys` that has a committed offset; `keys` None means all partitions.

    Raises BrokerError (also if an offset stays unstable until the cluster's timeout), BrokerUnreachableError,
    UnsupportedVersionError (before Kafka 0.10.2).
    """
    topics: list[OffsetFetchRequestTopic] | None = None
    if keys is not None:
        numbers: dict[str, list[int]] = {}
        for key in keys:
            numbers.setdefault(key.topic, []).append(key.partition)
        if not numbers:
            return {}
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=listed) for name, listed in numbers.items()]
    answer = ask_coordinator(
        cluster,
        group,
        OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable),
        OffsetFetchResponse,
        _codes,
        newest=_NEWEST,
        oldest=_OLDEST,
        passing=UNSTABLE,
    )
    if answer.error_code and answer.error_code not in _NOTHING:
        raise error_for(answer.error_code, f"offsets of group {group!r}", cluster)
    # The partitions in `keys` may not exist (yet).
    nothing = frozenset() if keys is None else _NOTHING
    found: dict[TopicPartition, OffsetFetchResponsePartition] = {}
    for topic in answer.topics:
        for partition in topic.partitions:
            key = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code and partition.error_code not in nothing:
                raise error_for(partition.error_code, f"offset of group {group!r} in {key.topic}-{key.partition}", cluster)
            if partition.committed_offset >= 0:
                found[key] = partition
    return dict(sorted(found.items()))


def _codes(response: OffsetFetchResponse) -> Iterable[int]:
    yield response.error_code
    for topic in response.topics:
        for partition in topic.partitions:
            yield partition.error_code
