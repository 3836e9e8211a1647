"""Handles the requests of a ZooKeeper cluster's controller, one at a time and in order of arrival.

| error | cause |
|---|---|
| STALE_CONTROLLER_EPOCH | the request comes from a former controller that has not noticed its successor's election |
| … for a partition | neither its leader epoch nor its partition epoch is newer than the known one |
| STALE_BROKER_EPOCH | the request is meant for an earlier registration of this broker |
| INVALID_TOPIC_EXCEPTION | the topic's name or the partition's number is invalid |
| UNKNOWN_TOPIC_OR_PARTITION | this broker is not one of the replicas |
| INCONSISTENT_TOPIC_ID | the local replica has a different topic id, or a different topic has that id |
| FENCED_LEADER_EPOCH | a StopReplica has an older leader epoch |
| KAFKA_STORAGE_ERROR | the replica's disk fails |

LeaderAndIsr and StopReplica determine the local replicas. UpdateMetadata only determines what clients see of the cluster. Use
only on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator

from tidelog.broker.cluster.zookeeper.cluster_state import (
    AT_ONCE,
    LedState,
    is_partition,
    known_states,
    led_states,
    take_led,
    take_metadata,
)
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.node import Node
from tidelog.broker.replicas.partition import ReplicaState
from tidelog.broker.requests.slices import in_slices, slowly
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

logger = logging.getLogger("tidelog.broker")

_FIRST_BY_TOPIC_ID = 5

LINES = 20
"""Log lines per minute about refusals: a controller may repeat a request with thousands of partitions."""

Learn = Callable[[list[str]], Awaitable[None]]
"""Reads the properties of new topics."""


class ControllerRequests:
    """Executes the requests. `listener` is the inter-broker listener; `learn` is called with topic names before the topics are
    added.
    """

    def __init__(self, image: MetadataImage, listener: str, broker_epoch: Callable[[], int], learn: Learn) -> None:
        self.controller_epoch = 0
        self.controller_id = -1
        """The controller that sent the last request in the newest epoch; -1 before the first."""
        self.has_metadata: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Completes with the first UpdateMetadata."""
        self.controller_epochs: dict[TopicPartition, int] = {}
        """The controller epoch in which the leader of each local partition was elected."""
        self.node: Node | None = None
        self.lock = asyncio.Lock()
        self._image = image
        self._listener = listener
        self._broker_epoch = broker_epoch
        self._learn = learn
        self.retries = RetryLog(logger, LINES)
        """Limits the log lines about refusals, which the controller may cause repeatedly."""

    # --- the three

    async def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
        """Become the leader or a follower of each partition in a LeaderAndIsr request."""
        async with self.lock:
            code = self._refusal(request)
            if code:
                return LeaderAndIsrResponse(code)
            node = self._node()
            codes: dict[TopicPartition, ErrorCode] = {}
            states = await in_slices(slowly(self._judged(request, codes), AT_ONCE))
            wanted = [one for one in states if not codes[one.key]]
            await self._learn_new({one.key.topic for one in wanted})
            delta = await in_slices(take_led(self._image, wanted, request.live_leaders, self._listener))
            self.controller_epochs.update((one.key, one.state.controller_epoch) for one in wanted)
            await self.publish(delta)
            assert node.replicas is not None
            for one in wanted:
                partition = node.replicas.get(one.key)
                if partition is None or partition.state is ReplicaState.OFFLINE:
                    codes[one.key] = ErrorCode.KAFKA_STORAGE_ERROR
            return await in_slices(_led_response(states, codes, version))

    async def update_metadata(self, request: UpdateMetadataRequest, version: int) -> UpdateMetadataResponse:
        async with self.lock:
            code = self._refusal(request)
            if code:
                return UpdateMetadataResponse(code)
            await self._learn_new({name for name, _, state in known_states(request) if state.leader >= -1})
            delta = await in_slices(take_metadata(self._image, request, self._listener))
            node = self._node()
            await in_slices(node.metadata_changed(delta))
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
        """Publish the changes to clients and apply them to the replicas."""
        if self.node is None or delta.is_empty:
            return
        await in_slices(self.node.metadata_changed(delta))
        assert self.node.replicas is not None
        await self.node.replicas.published(delta)

    # --- inside

    def _node(self) -> Node:
        assert self.node is not None, "the controller has sent a request before this broker serves"
        return self.node

    def _refusal(self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest) -> ErrorCode:
        if request.controller_epoch < self.controller_epoch:
            self.retries.failed(
                "%s of controller %d in epoch %d is refused: the newest epoch is %d",
                request.API_NAME,
                request.controller_id,
                request.controller_epoch,
                self.controller_epoch,
            )
            return ErrorCode.STALE_CONTROLLER_EPOCH
        # A newer epoch than the known one belongs to this session, whose response from ZooKeeper has not arrived yet.
        if -1 < request.broker_epoch < self._broker_epoch():
            self.retries.failed("%s for broker epoch %d is refused: that epoch is over", request.API_NAME, request.broker_epoch)
            return ErrorCode.STALE_BROKER_EPOCH
        self.controller_epoch, self.controller_id = request.controller_epoch, request.controller_id
        return ErrorCode.NONE

    def _judged(self, request: LeaderAndIsrRequest, codes: dict[TopicPartition, ErrorCode]) -> Iterator[LedState]:
        """Yield each partition of a request, after putting its error code into `codes` (NONE if the partition is accepted)."""
        for one in led_states(request):
            codes[one.key] = self._partition_refusal(one)
            yield one

    def _partition_refusal(self, one: LedState) -> ErrorCode:
        node = self._node()
        assert node.replicas is not None
        partition, state = node.replicas.get(one.key), one.state
        log = node.manager.logs.get(one.key)
        if not is_partition(one.key):
            self.retries.failed("%r-%d is refused: its topic name or partition number is invalid", *one.key)
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        namesake = None if one.topic_id is None else self._image.topics_by_id.get(one.topic_id)
        if namesake is not None and namesake.name != one.key.topic:
            self.retries.failed("%s-%d is refused: its topic id is that of topic %s", *one.key, namesake.name)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if log is not None and None not in (log.topic_id, one.topic_id) and log.topic_id != one.topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if node.node_id not in state.replicas:
            self.retries.failed("%s-%d is refused: this broker is not one of its replicas", *one.key)
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if state.leader_epoch < 0:
            return ErrorCode.STALE_CONTROLLER_EPOCH
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


def _led_response(
    states: list[LedState], codes: dict[TopicPartition, ErrorCode], version: int
) -> Generator[None, None, LeaderAndIsrResponse]:
    if version < _FIRST_BY_TOPIC_ID:
        named = (LeaderAndIsrPartitionError(*one.key, codes[one.key]) for one in states)
        return LeaderAndIsrResponse(partition_errors=(yield from slowly(named, AT_ONCE)))
    topics: dict[str, LeaderAndIsrTopicError] = {}
    for count, one in enumerate(states, 1):
        topic = topics.setdefault(one.key.topic, LeaderAndIsrTopicError(known_topic_id(one.topic_id) or ZERO_UUID))
        topic.partition_errors.append(LeaderAndIsrPartitionError(partition_index=one.key.partition, error_code=codes[one.key]))
        if not count % AT_ONCE:
            yield None
    return LeaderAndIsrResponse(topics=list(topics.values()))


def _stopped(request: StopReplicaRequest) -> list[tuple[TopicPartition, int, bool]]:
    """Return the partitions that a request stops, each with its leader epoch (-1 if none is given) and whether it is deleted."""
    deletes = request.delete_partitions
    found = [(TopicPartition(one.topic_name, one.partition_index), -1, deletes) for one in request.ungrouped_partitions]
    found += [(TopicPartition(topic.name, index), -1, deletes) for topic in request.topics for index in topic.partition_indexes]
    found += [
        (TopicPartition(topic.topic_name, one.partition_index), one.leader_epoch, one.delete_partition)
        for topic in request.topic_states
        for one in topic.partition_states
    ]
    return found
