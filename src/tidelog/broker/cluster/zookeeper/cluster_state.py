"""Applies a controller's requests to the image: the brokers, and each partition's leader and ISR.

| request | brokers | partitions |
|---|---|---|
| UpdateMetadata | all live brokers | the named ones; leader -2 deletes a partition, and a topic with its last partition |
| LeaderAndIsr | leaders that were not known yet | the named ones |

If a request has no topic id, the topic keeps its known id or gets a placeholder (`AssumedTopicId`). A topic without an id gets
one once the cluster uses protocol 2.8; it is still the same topic. A different id means a different topic.

The functions change only the image. A controller sends all partitions, possibly tens of thousands, to a starting broker;
`take_led` and `take_metadata` therefore yield after every `AT_ONCE` partitions to let other tasks run.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Generator, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from tidelog.metadata import records as r
from tidelog.metadata.assumed_topic_id import AssumedTopicId
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import MetadataImage, TopicImage
from tidelog.model import TopicPartition, is_topic_name
from tidelog.wire.fields import ZERO_UUID
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrLiveLeader, LeaderAndIsrPartitionState, LeaderAndIsrRequest
from tidelog.wire.messages.update_metadata import (
    LEADER_DURING_DELETE,
    UpdateMetadataBroker,
    UpdateMetadataRequest,
)

logger = logging.getLogger("tidelog.broker")

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Security protocols by id. Before listeners had names, the protocol was the listener's name."""

PLAINTEXT_ID = 0

AT_ONCE = 128
"""Partitions applied between two yields: a few milliseconds of work."""

Taking: TypeAlias = Generator[None, None, MetadataDelta]


class LedState(NamedTuple):
    """A partition in a LeaderAndIsr request. `topic_id` is None if the request has none."""

    key: TopicPartition
    topic_id: uuid.UUID | None
    state: LeaderAndIsrPartitionState


def is_partition(key: TopicPartition) -> bool:
    """Whether the name and number are valid for a partition's folder."""
    return is_topic_name(key.topic) and key.partition >= 0


def led_states(request: LeaderAndIsrRequest) -> Iterator[LedState]:
    """Yield each partition of a request, of any version, with its topic and topic id."""
    for name, topic_id, state in known_states(request):
        yield LedState(TopicPartition(name, state.partition_index), topic_id, state)


def known_states(request: LeaderAndIsrRequest | UpdateMetadataRequest) -> Iterator[tuple[str, uuid.UUID | None, Any]]:
    """Yield each partition of a request, of any version, with its topic and topic id (None if the request has none)."""
    for state in request.ungrouped_partition_states:
        yield state.topic_name, None, state
    for topic in request.topic_states:
        topic_id = None if topic.topic_id == ZERO_UUID else topic.topic_id
        for state in topic.partition_states:
            yield topic.topic_name, topic_id, state


def take_led(
    image: MetadataImage, states: Iterable[LedState], leaders: Iterable[LeaderAndIsrLiveLeader], listener: str
) -> Taking:
    """Apply a LeaderAndIsr request to an image; `listener` is the inter-broker listener."""
    delta = MetadataDelta(image)
    for broker in leaders:
        if broker.broker_id not in image.brokers:
            endpoint = r.BrokerEndpoint(listener, broker.host_name, broker.port, PLAINTEXT_ID)
            delta.replay(r.RegisterBrokerRecord(broker.broker_id, broker_epoch=-1, end_points=[endpoint], fenced=False))
    for count, (key, topic_id, state) in enumerate(states, 1):
        topic = _topic(image, delta, key.topic, topic_id)
        if topic is None:
            continue
        delta.replay(
            r.PartitionRecord(
                key.partition,
                topic.topic_id,
                list(state.replicas),
                list(state.isr),
                removing_replicas=list(state.removing_replicas),
                adding_replicas=list(state.adding_replicas),
                leader=state.leader,
                leader_recovery_state=state.leader_recovery_state,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
            )
        )
        if not count % AT_ONCE:
            yield None
    return delta


def take_metadata(image: MetadataImage, request: UpdateMetadataRequest, listener: str) -> Taking:
    """Apply an UpdateMetadata request to an image; `listener` is the inter-broker listener."""
    delta = MetadataDelta(image)
    _take_brokers(image, delta, request.live_brokers, listener)
    skipped: list[tuple[str, int, uuid.UUID | None]] = []
    for count, (name, topic_id, state) in enumerate(known_states(request), 1):
        if not count % AT_ONCE:
            yield None
        if state.leader == LEADER_DURING_DELETE:
            _delete(image, delta, name, state.partition_index)
            continue
        topic = _topic(image, delta, name, topic_id) if is_partition(TopicPartition(name, state.partition_index)) else None
        if topic is None:
            skipped.append((name, state.partition_index, topic_id))
            continue
        known = topic.partitions.get(state.partition_index)
        delta.replay(
            r.PartitionRecord(
                state.partition_index,
                topic.topic_id,
                list(state.replicas),
                list(state.isr),
                removing_replicas=[] if known is None else known.removing_replicas,
                adding_replicas=[] if known is None else known.adding_replicas,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.zk_version,
            )
        )
    if skipped:
        logger.warning(
            "skipping %d invalid partitions in UpdateMetadata; the first is %r-%d with topic id %s", len(skipped), *skipped[0]
        )
    return delta


def _take_brokers(image: MetadataImage, delta: MetadataDelta, brokers: Iterable[UpdateMetadataBroker], listener: str) -> None:
    alive = {one.id: _registration(one, listener) for one in brokers}
    for broker_id in list(image.brokers):
        if broker_id not in alive:
            delta.replay(r.UnregisterBrokerRecord(broker_id))
    for broker_id, record in alive.items():
        if image.brokers.get(broker_id) != record:
            delta.replay(record)


def _registration(broker: UpdateMetadataBroker, listener: str) -> r.RegisterBrokerRecord:
    if broker.endpoints:
        endpoints = [
            r.BrokerEndpoint(
                one.listener or PROTOCOLS[one.security_protocol] if 0 <= one.security_protocol < len(PROTOCOLS) else listener,
                one.host,
                one.port,
                one.security_protocol,
            )
            for one in broker.endpoints
        ]
    else:
        endpoints = [r.BrokerEndpoint(listener, broker.v0_host, broker.v0_port, PLAINTEXT_ID)]
    return r.RegisterBrokerRecord(broker.id, broker_epoch=-1, end_points=endpoints, rack=broker.rack, fenced=False)


def _topic(image: MetadataImage, delta: MetadataDelta, name: str, topic_id: uuid.UUID | None) -> TopicImage | None:
    """Return the topic of this name, with its id set to `topic_id` if it had none. Return None if another topic has that id."""
    topic = image.topics.get(name)
    if topic is not None and topic_id in (None, topic.topic_id):
        return topic
    if topic_id is not None and topic_id in image.topics_by_id:
        return None
    if topic is not None and topic_id is not None and isinstance(topic.topic_id, AssumedTopicId):
        _identify(image, delta, topic, topic_id)
        return topic
    delta.replay(r.TopicRecord(name, topic_id or AssumedTopicId.new()))
    return image.topics[name]


def _identify(image: MetadataImage, delta: MetadataDelta, topic: TopicImage, topic_id: uuid.UUID) -> None:
    """Set the id of a topic that had none, and mark all its partitions as changed."""
    before = topic.topic_id
    del image.topics_by_id[before]
    topic.topic_id = topic_id
    image.topics_by_id[topic_id] = topic
    for partition in topic.partitions.values():
        partition.topic_id = topic_id
    if delta.created_topics.pop(before, None) is not None:
        delta.created_topics[topic_id] = topic.name
    delta.partitions.pop(before, None)
    delta.partitions[topic_id] = set(topic.partitions)


def _delete(image: MetadataImage, delta: MetadataDelta, name: str, partition: int) -> None:
    topic = image.topics.get(name)
    if topic is None:
        return
    topic.partitions.pop(partition, None)
    changed = delta.partitions.get(topic.topic_id)
    if changed is not None:
        changed.discard(partition)
    if not topic.partitions:
        delta.replay(r.RemoveTopicRecord(topic.topic_id))
