"""Queries coordinators for groups of the newer protocols: members of consumer and share groups, and share partitions' offsets.

| information | request | since Kafka |
|---|---|---|
| a consumer group's state and members | ConsumerGroupDescribe (key 69) | 3.7 |
| a share group's state and members | ShareGroupDescribe (77) v1 | 4.1 |
| a share group's start offsets | DescribeShareGroupOffsets (90) | 4.1; its lag since 4.2 |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.client.connections.cluster import Cluster
from tidelog.client.connections.coordinators import ask_coordinator
from tidelog.client.connections.failures import error_for
from tidelog.errors import UnsupportedVersionError
from tidelog.groups.description import GroupDescription, GroupListing, GroupMember, dead
from tidelog.groups.modern_groups import CONSUMER, SHARE
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages import consumer_group_describe, share_group_describe
from tidelog.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)

_OFFSETS_NEWEST = 1


class ShareOffset(NamedTuple):
    """A share group's start offset in a partition, and its lag there, -1 if the brokers do not report the lag."""

    start_offset: int
    lag: int


def describe_modern(cluster: Cluster, listed: GroupListing) -> GroupDescription:
    """Return the description of a listed group of a newer protocol. Members are missing if the brokers cannot describe it.

    Raises BrokerError, BrokerUnreachableError.
    """
    shown = GroupDescription(listed.group, listed.state or "", listed.protocol_type, "", None, (), listed.type or CONSUMER)
    answer: consumer_group_describe.ConsumerGroupDescribeResponse | share_group_describe.ShareGroupDescribeResponse
    try:
        if listed.type == CONSUMER:
            answer = ask_coordinator(
                cluster,
                listed.group,
                consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=[listed.group]),
                consumer_group_describe.ConsumerGroupDescribeResponse,
                lambda response: (one.error_code for one in response.groups),
                newest=0,
            )
        elif listed.type == SHARE:
            answer = ask_coordinator(
                cluster,
                listed.group,
                share_group_describe.ShareGroupDescribeRequest(group_ids=[listed.group]),
                share_group_describe.ShareGroupDescribeResponse,
                lambda response: (one.error_code for one in response.groups),
                newest=1,
                oldest=1,
            )
        else:
            return shown
    except UnsupportedVersionError:
        return shown
    (found,) = answer.groups
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return dead(listed.group)
    if found.error_code:
        raise error_for(found.error_code, f"group {listed.group!r}", cluster, found.error_message)
    return shown._replace(
        state=found.group_state, protocol=found.assignor_name, members=tuple(_member(one) for one in found.members)
    )


def _member(member: consumer_group_describe.Member | share_group_describe.Member) -> GroupMember:
    instance_id = member.instance_id if isinstance(member, consumer_group_describe.Member) else None
    assigned = (
        TopicPartition(topic.topic_name, partition)
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    )
    return GroupMember(member.member_id, instance_id, member.client_id, member.client_host, tuple(sorted(assigned)))


def share_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, ShareOffset]:
    """Return a share group's start offset in each partition that it has begun to read; empty if the brokers do not report them.

    Raises BrokerError, BrokerUnreachableError.
    """
    request = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)])
    try:
        answer = ask_coordinator(cluster, group, request, DescribeShareGroupOffsetsResponse, _codes, newest=_OFFSETS_NEWEST)
    except UnsupportedVersionError:
        return {}
    found: dict[TopicPartition, ShareOffset] = {}
    for one in answer.groups:
        if one.error_code and one.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise error_for(one.error_code, f"offsets of group {group!r}", cluster, one.error_message)
        for topic in one.topics:
            for partition in topic.partitions:
                if not partition.error_code and partition.start_offset >= 0:
                    key = TopicPartition(topic.topic_name, partition.partition_index)
                    found[key] = ShareOffset(partition.start_offset, partition.lag)
    return dict(sorted(found.items()))


def _codes(response: DescribeShareGroupOffsetsResponse) -> Iterable[int]:
    for group in response.groups:
        yield group.error_code
        for topic in group.topics:
            for partition in topic.partitions:
                yield partition.error_code
