"""Requests about a group's offsets, short to write; answers as dictionaries by topic and partition."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tests.broker.conftest import RunningBroker
from tests.broker.raw import RawClient
from tests.patience import PATIENCE_S
from tidelog.broker.coordinators.groups.groups import Groups
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

Key = tuple[str, int]


class Offset(NamedTuple):
    """What is committed, or was."""

    offset: int
    epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0


NOTHING = Offset(-1)


def _topics(keys: Iterable[Key]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in keys:
        topics.setdefault(topic, []).append(partition)
    return topics


def _codes(response: Any) -> dict[Key, int]:
    return {(topic.name, one.partition_index): one.error_code for topic in response.topics for one in topic.partitions}


def commit(
    client: RawClient, group: str, offsets: Mapping[Key, Offset], version: int = 9, timestamp: int = -1, **more: Any
) -> dict[Key, int]:
    """Commit; what became of each partition."""
    request = OffsetCommitRequest(
        group,
        topics=[
            OffsetCommitRequestTopic(
                topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition,
                        offsets[topic, partition].offset,
                        offsets[topic, partition].epoch,
                        timestamp,
                        offsets[topic, partition].metadata,
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in _topics(offsets).items()
        ],
        **more,
    )
    return _codes(client.ask(request, version))


def commit_in_transaction(
    client: RawClient,
    group: str,
    offsets: Mapping[Key, Offset],
    transactional_id: str,
    producer: tuple[int, int],
    version: int = 4,
    **more: Any,
) -> dict[Key, int]:
    """The same in a transaction; `producer` is its id and epoch."""
    request = TxnOffsetCommitRequest(
        transactional_id,
        group,
        *producer,
        topics=[
            TxnOffsetCommitRequestTopic(
                topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition,
                        offsets[topic, partition].offset,
                        offsets[topic, partition].epoch,
                        offsets[topic, partition].metadata,
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in _topics(offsets).items()
        ],
        **more,
    )
    return _codes(client.ask(request, version))


def fetch_many(
    client: RawClient, groups: Mapping[str, Iterable[Key] | None], version: int = 9, *, require_stable: bool = False
) -> dict[str, dict[Key, Offset] | int]:
    """Fetch the offsets of several groups, each of some partitions or, by None, of all; an error code for a group as a whole."""
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group,
                topics=None
                if keys is None
                else [OffsetFetchRequestTopics(topic, partition_indexes=some) for topic, some in _topics(keys).items()],
            )
            for group, keys in groups.items()
        ],
        require_stable=require_stable,
    )
    response = client.ask(request, version)
    return {one.group_id: one.error_code or _found(one.topics) for one in response.groups}


def fetch(
    client: RawClient, group: str, keys: Iterable[Key] | None = None, version: int = 9, *, require_stable: bool = False
) -> dict[Key, Offset] | int:
    """The same of one group, in any version."""
    if version >= 8:
        return fetch_many(client, {group: keys}, version, require_stable=require_stable)[group]
    topics = None
    if keys is not None:
        topics = [OffsetFetchRequestTopic(topic, some) for topic, some in _topics(keys).items()]
    response = client.ask(OffsetFetchRequest(group, topics, require_stable=require_stable), version)
    return response.error_code or _found(response.topics)


def _found(topics: Any) -> dict[Key, Offset]:
    return {
        (topic.name, one.partition_index): Offset(one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code)
        for topic in topics
        for one in topic.partitions
    }


def delete_offsets(client: RawClient, group: str, keys: Iterable[Key]) -> dict[Key, int] | int:
    """Forget offsets; an error code for the group as a whole."""
    topics = [
        OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(one) for one in partitions])
        for topic, partitions in _topics(keys).items()
    ]
    response = client.ask(OffsetDeleteRequest(group, topics), 0)
    return response.error_code or _codes(response)


def delete_groups(client: RawClient, *groups: str, version: int = 2) -> dict[str, int]:
    """Delete groups."""
    response = client.ask(DeleteGroupsRequest(list(groups)), version)
    return {one.group_id: one.error_code for one in response.results}


def loaded(broker: RunningBroker) -> Groups:
    """Wait until a broker has loaded all its groups, and return them."""
    groups = broker.node.groups
    deadline = time.monotonic() + PATIENCE_S
    while any(
        broker.on_loop(lambda one=one: groups.log.readiness(one)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # type: ignore[misc]
        for one in range(groups.log.partitions)
    ):
        if time.monotonic() > deadline:
            raise TimeoutError("the broker still loads its groups")
    return groups
