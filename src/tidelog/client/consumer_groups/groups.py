"""Consumer groups on brokers: list, describe, committed offsets, and commits by non-members.

| request | API | sent to |
|---|---|---|
| all groups | ListGroups (key 16) | every broker: each knows the groups that it coordinates |
| state, members, assignments | DescribeGroups (15) | the group's coordinator |
| the same for groups of the newer protocols | see `modern_groups` | the group's coordinator |
| committed offsets, of all partitions | OffsetFetch (9) v2 and later, Kafka 0.10.2 | the coordinator |
| commits by a non-member | OffsetCommit (8) | the coordinator, which refuses while the group has members |

The results are instances of the classes in `groups.description`, as for groups in a data folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.coordinators import PASSING, ask_coordinator
from tidelog.client.connections.failures import RetryTimer, error_for
from tidelog.client.consumer_groups.committed import fetch_committed
from tidelog.client.consumer_groups.modern_groups import describe_modern
from tidelog.errors import BrokerError, BrokerUnreachableError
from tidelog.groups.description import DEAD, GroupDescription, GroupListing, dead, describe
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.groups.modern_groups import CLASSIC
from tidelog.model import NO_TIMESTAMP, TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

_LIST_NEWEST = 5
_WITH_STATES, _WITH_TYPES = 4, 5
_DESCRIBE_NEWEST = 5
_COMMIT_OLDEST, _COMMIT_NEWEST = 2, 8
_NO_GENERATION = -1


def list_groups(cluster: Cluster) -> list[GroupListing]:
    """Return all groups, sorted by name. Raises BrokerUnreachableError if a broker does not answer, BrokerError."""
    cluster.refresh(None)
    found: dict[str, GroupListing] = {}
    for address in dict.fromkeys(cluster.brokers.values()):
        timer = RetryTimer(cluster.timeout_ms)
        while True:
            try:
                with cluster.connection_to(address) as connection:
                    version = connection.version(ListGroupsRequest, newest=_LIST_NEWEST)
                    answer = connection.ask(ListGroupsRequest(), version, ListGroupsResponse)
            except BrokerUnreachableError as error:
                timer.wait(error)
                continue
            if not answer.error_code:
                break
            refusal = error_for(answer.error_code, "list of groups", address)
            if answer.error_code not in PASSING:
                raise refusal
            timer.wait(refusal)
        for group in answer.groups:
            state = group.group_state if version >= _WITH_STATES else None
            kind = group.group_type.lower() if version >= _WITH_TYPES else None
            found[group.group_id] = GroupListing(group.group_id, state, group.protocol_type, str(address), kind)
    return [found[name] for name in sorted(found)]


def describe_group(cluster: Cluster, group: str) -> GroupDescription:
    """Return a group's state and members. An unknown group has the state `Dead`. Raises BrokerError, BrokerUnreachableError.

    DescribeGroups also reports groups of newer protocols as `Dead`. For a dead group, the brokers' lists of groups are
    therefore checked as well.
    """
    found = _describe(cluster, group)
    if found.state == DEAD:
        for listed in list_groups(cluster):
            if listed.group == group and listed.type not in (None, CLASSIC):
                return describe_modern(cluster, listed)
            if listed.group == group and listed.state is not None:
                return found._replace(state=listed.state, protocol_type=listed.protocol_type)
    return found


def _describe(cluster: Cluster, group: str) -> GroupDescription:
    answer = ask_coordinator(
        cluster,
        group,
        DescribeGroupsRequest(groups=[group]),
        DescribeGroupsResponse,
        lambda response: (one.error_code for one in response.groups),
        newest=_DESCRIBE_NEWEST,
    )
    (found,) = answer.groups
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return dead(group)
    if found.error_code:
        raise error_for(found.error_code, f"group {group!r}", cluster)
    members = ((one, one.member_assignment) for one in found.members)
    return describe(found.group_id, found.group_state, found.protocol_type, found.protocol_data, members)


def committed_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, CommittedOffset]:
    """Return a group's committed offsets in all partitions; empty if the group is unknown. Brokers do not report commit times.

    Raises BrokerError, BrokerUnreachableError, UnsupportedVersionError (before Kafka 0.10.2).
    """
    return {
        key: CommittedOffset(one.committed_offset, one.committed_leader_epoch, one.metadata or "", NO_TIMESTAMP)
        for key, one in fetch_committed(cluster, group, None, require_stable=False).items()
    }


def commit_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], *, metadata: str = "") -> None:
    """Commit offsets for a group, all with the same metadata. If one is refused, none is set. The group must have no members.

    Raises BrokerError: UNKNOWN_MEMBER_ID while the group has members, and other errors of the coordinator.
    """
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for key, offset in offsets.items():
        partition = OffsetCommitRequestPartition(
            partition_index=key.partition, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=metadata
        )
        topics.setdefault(key.topic, []).append(partition)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id="",
        group_instance_id=None,
        retention_time_ms=-1,
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )
    answer = ask_coordinator(cluster, group, request, OffsetCommitResponse, _codes, newest=_COMMIT_NEWEST, oldest=_COMMIT_OLDEST)
    for topic in answer.topics:
        for committed in topic.partitions:
            code = committed.error_code
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                raise BrokerError(
                    f"group {group!r} has members: its offsets can be set only while it has none",
                    error_code=code,
                    path=str(cluster),
                    found=ErrorCode.UNKNOWN_MEMBER_ID.name,
                )
            if code:
                raise error_for(code, f"offset of group {group!r} in {topic.name}-{committed.partition_index}", cluster)


def _codes(response: OffsetCommitResponse) -> Iterable[int]:
    return (partition.error_code for topic in response.topics for partition in topic.partitions)
