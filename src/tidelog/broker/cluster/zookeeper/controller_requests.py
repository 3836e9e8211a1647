"""What the controller of a ZooKeeper cluster asks of this broker: done one after the other, in the order in which it comes.

| refused | why |
|---|---|
| STALE_CONTROLLER_EPOCH | a former controller asks, which has not noticed yet that another one was elected |
| … of a partition | its leader epoch is not newer than the one that is known, and neither is its partition epoch |
| STALE_BROKER_EPOCH | it is meant for a former session of this broker |
| INCONSISTENT_TOPIC_ID | the replica here is of another topic of that name |
| FENCED_LEADER_EPOCH | StopReplica in an older leader epoch |
| KAFKA_STORAGE_ERROR | the disk refuses the replica |

LeaderAndIsr and StopReplica say which replicas are here; UpdateMetadata says what clients get to know of all of them, and makes
or ends none. Belongs to the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tidelog.broker.cluster.zookeeper.cluster_state import LedState, known_states, led_states, take_led, take_metadata
from tidelog.broker.replicas.partition import ReplicaState
from tidelog.metadata.assumed_topic_id import known_topic_id
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import MetadataImage
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import ZERO_UUID
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from tidelog.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node

logger = logging.getLogger("tidelog.broker")

_FIRST_BY_TOPIC_ID = 5

Learn = Callable[[list[str]], Awaitable[None]]
"""Reads the properties of topics that nobody has known so far."""


class ControllerRequests:
    """Does them. `listener` is the one between brokers; `learn` is called with names of topics before they are there."""

    def __init__(self, image: MetadataImage, listener: str, broker_epoch: Callable[[], int], learn: Learn) -> None:
        self.controller_epoch = 0
        self.controller_id = -1
        """The broker that has asked last, in the newest epoch; -1 before."""
        self.has_metadata: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once an UpdateMetadata has come."""
        self.controller_epochs: dict[TopicPartition, int] = {}
        """In which epoch the leader of each partition here was elected."""
        self.node: Node | None = None
        self.lock = asyncio.Lock()
        self._image = image
        self._listener = listener
        self._broker_epoch = broker_epoch
        self._learn = learn

    # --- the three

    async def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        """Lead and follow what a request says."""
        async with self.lock:
            code = self._refusal(request)
            if code:
                return LeaderAndIsrResponse(code)
            node = self._node()
            states = list(led_states(request))
            codes = {one.key: self._partition_refusal(one) for one in states}
            wanted = [one for one in states if not codes[one.key]]
            await self._learn_new({one.key.topic for one in wanted})
            delta = take_led(self._image, wanted, request.live_leaders, self._listener)
            for one in wanted:
                self.controller_epochs[one.key] = one.state.controller_epoch
            await self.publish(delta)
            assert node.replicas is not None
            for one in wanted:
                partition = node.replicas.get(one.key)
                if partition is None or partition.state is ReplicaState.OFFLINE:
                    codes[one.key] = ErrorCode.KAFKA_STORAGE_ERROR
            return _led_response(states, codes, version)

    async def update_metadata(self, request: UpdateMetadataRequest, version: int) -> UpdateMetadataResponse:
        """Take over what clients get to know."""
        async with self.lock:
            code = self._refusal(request)
            if code:
                return UpdateMetadataResponse(code)
            await self._learn_new({name for name, _, state in known_states(request) if state.leader >= -1})
            delta = take_metadata(self._image, request, self._listener)
            node = self._node()
            node.metadata_changed(delta)
            if delta.brokers:
                brokers = MetadataDelta(self._image)
                brokers.brokers = delta.brokers
                assert node.replicas is not None
                await node.replicas.published(brokers)
            if not self.has_metadata.done():
                self.has_metadata.set_result(None)
            return UpdateMetadataResponse()

    async def stop_replica(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse:
        """Stop following replicas, or delete them."""
        async with self.lock:
            code = self._refusal(request)
            if code:
                return StopReplicaResponse(code)
            node = self._node()
            assert node.replicas is not None
            codes: dict[TopicPartition, ErrorCode] = {}
            sorted_ones: dict[bool, list[TopicPartition]] = {False: [], True: []}
            for key, epoch, deletes in _stopped(request):
                partition = node.replicas.get(key)
                is_old = partition is not None and 0 <= epoch < partition.leader_epoch
                codes[key] = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.NONE
                if not is_old:
                    sorted_ones[deletes].append(key)
            for deletes, keys in sorted_ones.items():
                if keys:
                    await node.replicas.stopped(keys, deleting=deletes)
            for key in sorted_ones[True]:
                self.controller_epochs.pop(key, None)
            errors = [StopReplicaPartitionError(*key, code) for key, code in codes.items()]
            return StopReplicaResponse(partition_errors=errors)

    async def publish(self, delta: MetadataDelta) -> None:
        """Have clients see what has changed, and replicas be what it says."""
        if self.node is None or delta.is_empty:
            return
        self.node.metadata_changed(delta)
        assert self.node.replicas is not None
        await self.node.replicas.published(delta)

    # --- inside

    def _node(self) -> Node:
        assert self.node is not None, "the controller asks a broker that does not serve yet"
        return self.node

    def _refusal(self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest) -> ErrorCode:
        if request.controller_epoch < self.controller_epoch:
            logger.warning(
                "%s of controller %d in epoch %d is refused: %d is the newest",
                request.API_NAME,
                request.controller_id,
                request.controller_epoch,
                self.controller_epoch,
            )
            return ErrorCode.STALE_CONTROLLER_EPOCH
        # One that is newer than what is known here is this session's: ZooKeeper's answer has not come yet.
        if -1 < request.broker_epoch < self._broker_epoch():
            logger.warning("%s for broker epoch %d is refused: it is over", request.API_NAME, request.broker_epoch)
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch, self.controller_id = request.controller_epoch, request.controller_id
        return ErrorCode.NONE

    def _partition_refusal(self, one: LedState) -> ErrorCode:
        node = self._node()
        assert node.replicas is not None
        partition, state = node.replicas.get(one.key), one.state
        log = node.manager.logs.get(one.key)
        if log is not None and None not in (log.topic_id, one.topic_id) and log.topic_id != one.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if node.node_id not in state.replicas:
            logger.warning("%s-%d is to be led or followed here, and has no replica here", *one.key)
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition is None or partition.state is ReplicaState.OFFLINE or state.leader_epoch > partition.leader_epoch:
            return ErrorCode.NONE
        is_identified = one.topic_id is not None and log is not None and log.topic_id is None
        is_same_epoch = state.leader_epoch == partition.leader_epoch
        if is_same_epoch and (state.partition_epoch > partition.partition_epoch or is_identified):
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    async def _learn_new(self, names: set[str]) -> None:
        new = [name for name in names if name not in self._image.topics]
        if new:
            await self._learn(new)


def _led_response(states: list[LedState], codes: dict[TopicPartition, ErrorCode], version: int) -> LeaderAndIsrResponse:
    if version < _FIRST_BY_TOPIC_ID:
        return LeaderAndIsrResponse(partition_errors=[LeaderAndIsrPartitionError(*one.key, codes[one.key]) for one in states])
    topics: dict[str, LeaderAndIsrTopicError] = {}
    for one in states:
        topic = topics.setdefault(one.key.topic, LeaderAndIsrTopicError(known_topic_id(one.topic_id) or ZERO_UUID))
        topic.partition_errors.append(LeaderAndIsrPartitionError(partition_index=one.key.partition, error_code=codes[one.key]))
    return LeaderAndIsrResponse(topics=list(topics.values()))


def _stopped(request: StopReplicaRequest) -> list[tuple[TopicPartition, int, bool]]:
    """Return what a request stops: partition, leader epoch (-1: none is said), whether it is deleted."""
    deletes = request.delete_partitions
    found = [(TopicPartition(one.topic_name, one.partition_index), -1, deletes) for one in request.ungrouped_partitions]
    found += [(TopicPartition(topic.name, index), -1, deletes) for topic in request.topics for index in topic.partition_indexes]
    found += [
        (TopicPartition(topic.topic_name, one.partition_index), one.leader_epoch, one.delete_partition)
        for topic in request.topic_states
        for one in topic.partition_states
    ]
    return found
