"""Asks a leader where its logs start and end, and where epochs end.

Each function asks for all partitions at once, and returns an error code per partition. Raises what `Channel.call` raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from tidelog.broker.peers.channel import Channel
from tidelog.broker.replicas.following.followed_partition import FollowedPartition
from tidelog.model import EARLIEST, LATEST, TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

MAX_LIST_OFFSETS_VERSION = 9


class Ends(NamedTuple):
    """The start and end offset of a leader's log, or an error code."""

    error_code: int
    start_offset: int = -1
    end_offset: int = -1


class EpochEnd(NamedTuple):
    """The leader's last epoch at or below the requested one, and the epoch's end offset; both -1 if unknown."""

    error_code: int
    epoch: int = -1
    end_offset: int = -1


async def ask_ends(channel: Channel, replica_id: int, partitions: Iterable[FollowedPartition]) -> dict[TopicPartition, Ends]:
    """Ask for the start and end of each partition's log. A partition that is missing from the response gets an error code."""
    asked = list(partitions)
    version = min(channel.version_of(ListOffsetsRequest), MAX_LIST_OFFSETS_VERSION)

    def request(timestamp: int) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(topic, [ListOffsetsPartition(one.key.partition, one.leader_epoch, timestamp) for one in ones])
            for topic, ones in _by_topic(asked).items()
        ]
        return ListOffsetsRequest(replica_id=replica_id, topics=topics)

    last, first = await asyncio.gather(
        channel.call(request(LATEST), version=version), channel.call(request(EARLIEST), version=version)
    )
    ends, starts = _offsets(last), _offsets(first)
    nothing = ErrorCode.UNKNOWN_SERVER_ERROR, -1
    found = {}
    for one in asked:
        (error, end), (other_error, start) = ends.get(one.key, nothing), starts.get(one.key, nothing)
        found[one.key] = Ends(error or other_error, start, end)
    return found


async def ask_epoch_ends(
    channel: Channel, replica_id: int, partitions: Iterable[tuple[FollowedPartition, int]]
) -> dict[TopicPartition, EpochEnd]:
    """Ask where epochs end; each partition is sent with the epoch of the follower's last record."""
    asked = dict(partitions)
    topics = [
        OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(one.key.partition, one.leader_epoch, asked[one]) for one in ones])
        for topic, ones in _by_topic(asked).items()
    ]
    response: OffsetForLeaderEpochResponse = await channel.call(OffsetForLeaderEpochRequest(replica_id=replica_id, topics=topics))
    found = dict.fromkeys((one.key for one in asked), EpochEnd(ErrorCode.UNKNOWN_SERVER_ERROR))
    for topic in response.topics:
        for end in topic.partitions:
            key = TopicPartition(topic.topic, end.partition)
            if key in found:
                found[key] = EpochEnd(end.error_code, end.leader_epoch, end.end_offset)
    return found


def _offsets(response: ListOffsetsResponse) -> dict[TopicPartition, tuple[int, int]]:
    return {
        TopicPartition(topic.name, one.partition_index): (
            one.error_code,
            one.old_style_offsets[0] if one.old_style_offsets else one.offset,
        )
        for topic in response.topics
        for one in topic.partitions
    }


def _by_topic(partitions: Iterable[FollowedPartition]) -> dict[str, list[FollowedPartition]]:
    topics: dict[str, list[FollowedPartition]] = {}
    for one in partitions:
        topics.setdefault(one.key.topic, []).append(one)
    return topics
