"""What a controller of ZooKeeper's days says, made short."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from tidelog.wire.fields import ZERO_UUID
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

HOST = "127.0.0.1"


class State(NamedTuple):
    """A partition: its leader, the leader's epoch, its replicas, all of them in sync."""

    number: int
    leader: int
    epoch: int
    replicas: list[int]
    version: int


class Topic(NamedTuple):
    name: str
    topic_id: uuid.UUID
    states: tuple[State, ...]


def partition(number: int, leader: int = 1, epoch: int = 0, replicas: Sequence[int] = (1,), version: int | None = None) -> State:
    return State(number, leader, epoch, list(replicas), epoch if version is None else version)


def topic(name: str, *states: State, topic_id: uuid.UUID = ZERO_UUID) -> Topic:
    return Topic(name, topic_id, states)


def broker(broker_id: int, port: int | None = None, rack: str | None = None) -> UpdateMetadataBroker:
    endpoint = UpdateMetadataEndpoint(9000 + broker_id if port is None else port, HOST, "PLAINTEXT", 0)
    return UpdateMetadataBroker(broker_id, endpoints=[endpoint], rack=rack)


def metadata(
    brokers: Sequence[UpdateMetadataBroker],
    topics: Sequence[Topic],
    *,
    is_old: bool = False,
    epoch: int = 1,
    broker_epoch: int = -1,
) -> UpdateMetadataRequest:
    """An UpdateMetadata, with each partition beside its topic's name if `is_old` (before version 5)."""
    request = UpdateMetadataRequest(1, controller_epoch=epoch, broker_epoch=broker_epoch, live_brokers=list(brokers))
    for one in topics:
        states = [
            UpdateMetadataPartitionState(one.name, at.number, epoch, at.leader, at.epoch, at.replicas, at.version, at.replicas)
            for at in one.states
        ]
        if is_old:
            request.ungrouped_partition_states += states
        else:
            request.topic_states.append(UpdateMetadataTopicState(one.name, one.topic_id, states))
    return request


def led(*topics: Topic, leaders: Sequence[int] = (), epoch: int = 1, broker_epoch: int = -1) -> LeaderAndIsrRequest:
    """A LeaderAndIsr of version 2 and later."""
    request = LeaderAndIsrRequest(1, controller_epoch=epoch, broker_epoch=broker_epoch)
    request.live_leaders = [LeaderAndIsrLiveLeader(one, HOST, 9000 + one) for one in leaders]
    for one in topics:
        states = [
            LeaderAndIsrPartitionState(one.name, at.number, epoch, at.leader, at.epoch, at.replicas, at.version, at.replicas)
            for at in one.states
        ]
        request.topic_states.append(LeaderAndIsrTopicState(one.name, one.topic_id, states))
    return request
